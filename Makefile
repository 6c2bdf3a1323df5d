# `make demo` and `make test` do all set-up themselves: they need Python 3.11+ and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-ray test-torch check bench docs clean

demo: .venv/installed-demo,web
	$(BIN)/patchvote demo demo
	@echo "teach it and ask it in the browser: $(BIN)/patchvote serve --open demo/model.patchvote"

test: check
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --ignore-glob 'tests/test_ray*.py' \
		--ignore tests/test_torch_libraries.py

# One process after the other: a cluster of two workers takes all cores of a small machine.
test-ray: .venv/installed-dev
	$(BIN)/python -m pytest tests/test_ray*.py

# Networks of timm and torchvision, against the real packages.
test-torch: .venv/installed-libraries
	$(BIN)/python -m pytest tests/test_torch_libraries.py

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed-dev
	$(BIN)/python benchmarks/extract.py --quick

# The site, into site/. The variable silences a note about the end of the theme (docs/architecture.md has the plan).
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html; the search needs a server: python -m http.server -d site"

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
