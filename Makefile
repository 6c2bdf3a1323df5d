# `make demo` and `make test` do all set-up themselves: they need Python 3.11+ and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-slow test-ray test-torch mutants coverage check bench paper docs dist test-wheel test-sdist test-oldest sbom clean

demo: .venv/installed-demo,web
	$(BIN)/patchvote demo demo
	@echo "teach it and ask it in the browser: $(BIN)/patchvote serve --open demo/model.patchvote"

# Tests that need a process of their own are run by test-ray and test-torch.
APART := --ignore-glob 'tests/test_ray*.py' --ignore tests/test_torch_libraries.py
PARALLEL := --numprocesses auto --dist worksteal
test: check
	$(BIN)/python -m pytest $(PARALLEL) $(APART) -m "not slow and not browser"

# What takes seconds by its nature: pages in a browser, trainings in torch, measured memory, killed processes, the site.
test-slow: .venv/installed-dev
	$(BIN)/python -m pytest $(PARALLEL) $(APART) -m "slow or browser"

# One process after the other: a cluster of two workers takes all cores of a small machine.
RAY_TESTS := $(wildcard tests/test_ray*.py)
test-ray: .venv/installed-dev
	$(BIN)/python -m pytest $(RAY_TESTS)

# Networks of timm and torchvision, against the real packages.
test-torch: .venv/installed-libraries
	$(BIN)/python -m pytest tests/test_torch_libraries.py

# Small changes of the code that no test notices, in some modules. SAMPLE is a number per module.
mutants: .venv/installed-dev,mutants
	$(BIN)/python tools/mutation.py $(if $(SAMPLE),--sample $(SAMPLE)) --json build/mutants.json

# Branch coverage of src over these tests, the processes that they start included: about twice their time.
coverage: .venv/installed-dev
	$(BIN)/coverage run -m pytest $(PARALLEL) $(APART)
	$(BIN)/coverage run -m pytest $(RAY_TESTS)
	$(BIN)/coverage combine --quiet --append
	$(BIN)/coverage report

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# patchvote beside its peers, and how it grows: about half an hour. PHOTOS is a folder of class folders (without it, crops
# of scikit-image's photos are measured), RECORDS where to write records and tables.
RECORDS ?= bench
bench: .venv/installed-dev,bench
	mkdir -p "$(RECORDS)"
	$(BIN)/python benchmarks/peers.py $(if $(PHOTOS),--photos "$(PHOTOS)") --json "$(RECORDS)"/peers.json --table "$(RECORDS)"/peers.md
	$(BIN)/python benchmarks/growth.py $(if $(PHOTOS),--photos "$(PHOTOS)") --json "$(RECORDS)"/growth.json

# The paper's tables (experiments/README.md): make paper DATA=folder-of-image-sets, or one of them with TABLE=scenes. It
# continues where it ended. Any other command of the experiments: make paper ARGS="summary scene15".
paper: .venv/installed-dev
	$(BIN)/python -m experiments $(or $(ARGS),paper --data "$(DATA)" $(if $(TABLE),--table $(TABLE)))

# The site, into site/. The variable silences a note about the end of the theme.
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html; the search needs a server: python -m http.server -d site"

# Wheel and sdist, built twice; refused if the two builds differ in a byte.
dist: build/tools/installed
	build/tools/bin/python tools/distribution.py dist

# The wheel in an empty environment: its size without extras, and the demonstration, away from the repository.
test-wheel: dist
	rm -rf build/wheel build/empty && mkdir -p build/empty
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet dist/*.whl
	$(PYTHON) tools/installed.py build/wheel/bin/python 600
	build/wheel/bin/python -m pip install --quiet "$$(echo dist/*.whl)[demo]"
	cd build/empty && ../wheel/bin/patchvote demo demo && ls -l demo

# The tests of the sdist, unpacked away from the repository, against the installed wheel. The folder is removed at the end.
SDIST_TESTS ?= tests
test-sdist: dist
	set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; tar -xzf dist/*.tar.gz --strip-components 1 -C "$$folder"; \
		$(PYTHON) -m venv "$$folder/.venv"; \
		"$$folder/.venv/bin/python" -m pip install --quiet "$$(echo $(CURDIR)/dist/*.whl)[dev]"; cd "$$folder"; \
		.venv/bin/python -c 'import patchvote; assert "site-packages" in patchvote.__file__, patchvote.__file__'; \
		.venv/bin/python -m pytest $(SDIST_TESTS) $(PARALLEL) $(APART)

# The tests that need no development tools, with the lower bounds of pyproject.toml and of the extras that need no other machine.
OLDEST_EXTRAS := networks,demo,plots,heic,web,remote
OLDEST_TESTS ?= tests/test_golden.py tests/test_package.py
test-oldest: build/oldest/installed
	build/oldest/bin/python -m pytest -q $(OLDEST_TESTS)

comma := ,
build/oldest/installed: pyproject.toml tools/oldest.py
	rm -rf build/oldest && $(PYTHON) -m venv build/oldest
	$(PYTHON) tools/oldest.py $(subst $(comma), ,$(OLDEST_EXTRAS)) > build/oldest/constraints.txt
	build/oldest/bin/python -m pip install --quiet -c build/oldest/constraints.txt -e '.[$(OLDEST_EXTRAS)]' pytest hypothesis httpx pandas
	@touch $@

# What `pip install patchvote` brings: a list of parts (CycloneDX) and of licences.
sbom: dist build/tools/installed
	rm -rf build/plain && $(PYTHON) -m venv --without-pip build/plain
	build/tools/bin/python -m pip --python build/plain/bin/python install --quiet --find-links dist \
		"patchvote==$$(ls dist/*.whl | cut -d- -f2)"   # by its name: the path of a file would stand in the list
	build/tools/bin/cyclonedx-py environment --output-reproducible --of JSON -o dist/sbom.cdx.json build/plain/bin/python
	$(PYTHON) tools/licences.py dist/sbom.cdx.json > dist/licences.md

build/tools/installed:
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet --upgrade pip 'hatchling>=1.24' 'cyclonedx-bom>=4.1'
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("patchvote needs Python 3.11 or newer; this is %d.%d. Try: make PYTHON=python3.12 ..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv

# A stamp beside the environment, so that a changed list of dependencies installs again and an unchanged one does not.
.venv/installed-%: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e '.[$*]'
	@touch $@

# Without their dependencies: these would replace torch by the build that torchvision's wheel was made for.
.venv/installed-libraries: tests/torch-libraries.txt .venv/installed-dev
	$(BIN)/python -m pip install --quiet --no-deps -r tests/torch-libraries.txt
	@touch $@

clean:
	rm -rf .venv demo build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
