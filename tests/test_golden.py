"""What a user gets at the doors, compared with recorded answers in `tests/golden`.

The photos are crops of three of scikit-image's, each mixed with one of another class so that answers are uncertain.
Numbers are compared with a tolerance that another processor passes. `PATCHVOTE_RECORD_GOLDEN=1` records them again.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from helpers.photo_bags import photos as made_up_bags

GOLDEN = Path(__file__).parent / "golden"
RECORD = os.environ.get("PATCHVOTE_RECORD_GOLDEN", "") not in ("", "0")
CLASSES = ("brick", "grass", "gravel")
# What differs from run to run, or with each version.
MASKED = {"seconds", "date", "patchvote", "checksum", "bytes", "free", "limit"}
ABSOLUTE, RELATIVE = 2e-3, 5e-3  # commands print probabilities with four digits


def plain(value: Any) -> Any:
    """Return a value as JSON has it: floats with five digits, and what differs from run to run masked."""
    if isinstance(value, dict):
        return {str(key): "…" if key in MASKED else plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return value


def assert_same(got: Any, wanted: Any, where: str, absolute: float = ABSOLUTE) -> None:
    """Compare nested values: floats approximately, everything else exactly."""
    if isinstance(wanted, dict):
        assert sorted(got) == sorted(wanted), where
        for key in wanted:
            assert_same(got[key], wanted[key], f"{where}/{key}", absolute)
    elif isinstance(wanted, list):
        assert len(got) == len(wanted), where
        for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
            assert_same(one, other, f"{where}/{index}", absolute)
    elif isinstance(wanted, float) and isinstance(got, int | float):
        assert math.isclose(got, wanted, rel_tol=RELATIVE, abs_tol=absolute), (where, got, wanted)
    else:
        assert got == wanted, (where, got, wanted)


def golden(name: str, got: Any, absolute: float = ABSOLUTE) -> None:
    """Compare with a recorded file, or record it."""
    got = plain(got)
    path = GOLDEN / f"{name}.json"
    if RECORD:
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(json.dumps(got, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert_same(got, json.loads(path.read_text(encoding="utf-8")), name, absolute)


def number(text: str) -> Any:
    """Return a cell of a table as a number if it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def write_photos(folder: Path, source: Path) -> None:
    """Write crops for training and for testing, mixed with crops of other classes, and two of something else."""
    rng = np.random.default_rng(0)
    images = {name: Image.open(source / f"{name}.png").convert("RGB") for name in (*CLASSES, "coffee")}

    def crop(name: str, size: tuple[int, int]) -> Image.Image:
        left, top = (int(rng.integers(whole - side)) for whole, side in zip(images[name].size, size, strict=True))
        return images[name].crop((left, top, left + size[0], top + size[1]))

    for part, count, strongest in (("train", 7, 0.5), ("test", 4, 0.6), ("new", 2, 0.5)):
        for index, name in enumerate(CLASSES):
            (folder / part / name).mkdir(parents=True)
            for number_ in range(count):
                size = (int(rng.integers(80, 130)), int(rng.integers(80, 130)))
                other = CLASSES[(index + 1 + number_ % 2) % 3]
                photo = Image.blend(crop(name, size), crop(other, size), float(rng.uniform(0, strongest)))
                photo.save(folder / part / name / f"{number_}.png")
    for original, copied in (
        ("train/grass/2.png", "train/grass/mirrored.png"),
        ("test/gravel/2.png", "train/brick/7.png"),
    ):
        ImageOps.mirror(Image.open(folder / original)).save(folder / copied)
    (folder / "other").mkdir()
    for number_ in range(2):
        crop("coffee", (100, 90)).save(folder / "other" / f"coffee {number_}.png")
    (folder / "broken").mkdir()
    shutil.copy(folder / "test" / "brick" / "0.png", folder / "broken" / "good.png")
    (folder / "broken" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, real_photos: Path) -> Path:
    """Folder of the photos, `cache`, and `m.patchvote` that learned them."""
    from patchvote import ImageClassifier

    folder = tmp_path_factory.mktemp("golden")
    write_photos(folder, real_photos)
    ImageClassifier(cache=folder / "cache").fit(folder / "train").save(folder / "m.patchvote")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, the current folder and the cache of commands."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(command: Any, *words: object) -> Any:
    """Run a command with --json, and return what it printed: one value, or a list of lines."""
    done = command(*words, "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    return {"code": done.code, "printed": lines[0] if len(lines) == 1 else lines}


CACHE = ("--cache", "cache")


def test_answers_in_json(command, here):
    golden(
        "answers",
        {
            "test": printed(command, "predict", "m.patchvote", "test", "other", *CACHE),
            "all": printed(command, "predict", "m.patchvote", "test/brick", "--all", "--top", 2, *CACHE),
            "rejected": printed(command, "predict", "m.patchvote", "test", "other", "--threshold", 0.5, *CACHE),
            "adapted": printed(command, "predict", "m.patchvote", "test", "--adapt", "--insist", *CACHE),
            "broken": printed(command, "predict", "m.patchvote", "broken", *CACHE),
        },
    )


def test_answers_in_csv(command, here):
    piped = command("predict", "m.patchvote", "test", "other", *CACHE).out
    command("predict", "m.patchvote", "test", "--all", "--top", 2, "-o", "all.csv", *CACHE)
    command("predict", "m.patchvote", "broken", "-o", "broken.csv", *CACHE)
    tables = [
        piped.splitlines(),
        *((here / name).read_text("utf-8").splitlines() for name in ("all.csv", "broken.csv")),
    ]
    golden("answers-csv", [[[number(cell) for cell in row] for row in csv.reader(lines)] for lines in tables])


def test_results_of_other_commands(command, here):
    golden(
        "results",
        {
            "fit": printed(command, "fit", "train", "f.patchvote", *CACHE),
            "evaluate": printed(command, "evaluate", "m.patchvote", "test", "--unknown", "other", *CACHE),
            "check": printed(command, "check", "train", "--test", "test", *CACHE),
            "suggest": printed(command, "suggest", "m.patchvote", "test", "-n", 3, *CACHE),
            "add": printed(command, "add", "m.patchvote", "new", "--output", "a.patchvote", *CACHE),
            "forget": printed(command, "forget", "m.patchvote", "brick/0.png", "--output", "b.patchvote"),
            "extract": printed(command, "extract", "test", "store"),
            "info": printed(command, "info", "m.patchvote"),
            "store": printed(command, "info", "store"),
            "export": printed(command, "export", "m.patchvote", "m.onnx"),
            "cache": sorted(printed(command, "cache", *CACHE)["printed"]),
            "networks": sorted(printed(command, "networks")["printed"]),
        },
    )


# Words of commands, run one after the other in one folder; their exit codes and the files that they make are recorded.
COMMANDS = """\
--version
--help
fit --help
nothing
predict
predict m.patchvote
predict m.patchvote test
predict m.patchvote nowhere
predict nowhere.patchvote test
predict test m.patchvote
predict m.patchvote test --top 0
predict m.patchvote test --threshold 2
predict m.patchvote test --insist
predict m.patchvote test --link
predict m.patchvote test --engine local --workers 2
predict m.patchvote test --device toaster
predict m.patchvote test -o answers.csv
predict m.patchvote test -o answers.csv
predict m.patchvote test -o answers.txt
predict m.patchvote test --sort-into sorted
predict m.patchvote broken
predict m.patchvote broken/bad.png
predict m.patchvote --json test/brick/0.png
predict m.patchvote 'test/brick/*.png'
predict m.patchvote 'test/brick/*.tif'
predict m.patchvote answers.csv
predict m.patchvote answers.csv --columns file=file,label=label
fit train
fit train model.patchvote
fit train small.patchvote --no-report --no-memory --voter nbnn --quiet
fit train x.patchvote --voter nothing
fit train x.patchvote --network nothing
fit train x.patchvote --report r.html --no-report
fit train x.patchvote --cache train/c
fit train test/brick/0.png
fit nowhere x.patchvote
fit test/brick x.patchvote
explain m.patchvote test/brick/0.png
explain m.patchvote test/brick/0.png --class tree
explain m.patchvote test/brick --class brick -o pictures --arrays arrays
evaluate m.patchvote test
evaluate m.patchvote other
check train
check train --apply nowhere.csv
suggest m.patchvote test -n 2 --copy-into label-these -o next.csv
add m.patchvote new --output added.patchvote
add m.patchvote nowhere
forget m.patchvote gravel/ --output less.patchvote
forget m.patchvote tree/
forget small.patchvote brick/0.png
export m.patchvote m.onnx
export m.patchvote m.onnx
export m.patchvote m.onnx --force
export small.patchvote small.onnx
extract broken store --sides 64
extract test store --sides 64
extract test other-store --sides big
extract test other-store --count 4
info m.patchvote
info m.patchvote --card
info m.patchvote --photos
info store
info nowhere
info test/brick/0.png
cache --cache cache
cache --cache cache --clear --yes
networks
serve nowhere.patchvote
serve --host 0.0.0.0
"""


def test_exit_codes_and_files_of_commands(command, here):
    import shlex

    codes, known = [], set()
    for line in COMMANDS.splitlines():
        words = shlex.split(line)
        if words[0] in ("predict", "fit", "evaluate", "check", "suggest", "add") and "--cache" not in words[1:]:
            words += CACHE if len(words) > 2 else ()
        code = command(*words).code
        files = {path.name for path in here.iterdir()}
        codes.append([line, code, sorted(files - known) if known else []])
        known |= files
    golden("codes", codes)


def test_numbers_of_a_report(command, here):
    command("evaluate", "m.patchvote", "test", "--unknown", "other", "--report", "r.html", *CACHE)
    page = (here / "r.html").read_text("utf-8")
    rows = []
    for row in re.findall(r"<tr.*?</tr>", page, flags=re.DOTALL):
        cells = re.findall(r"<t[dh].*?</t[dh]>", row, flags=re.DOTALL)
        texts = [re.sub(r"\s+", " ", re.sub(r"<[^>]*>|&nbsp;|%", " ", cell)).strip() for cell in cells]
        if any(character.isdigit() for text in texts for character in text):
            rows.append([number(text) for text in texts])
    numbers = {"rows": rows, "figures": page.count("<svg"), "pictures": page.count("data:image/")}
    golden("report", numbers, absolute=1.01)  # whole percentages


def test_an_evidence_map(command, here):
    answer = printed(command, "explain", "m.patchvote", "test/brick/2.png", "--arrays", "a.npz")
    with np.load(here / "a.npz") as arrays:
        maps = arrays["maps"].reshape(len(CLASSES), 8, 8, 8, 8).mean(axis=(2, 4))
        golden(
            "evidence",
            {
                "answer": answer,
                "arrays": {name: list(arrays[name].shape) for name in arrays},
                "maps": np.round(maps, 4),
                "mean votes": arrays["votes"].mean(axis=0),
                "boxes": arrays["boxes"][::40],
            },
        )


def test_outputs_of_an_exported_graph(command, here):
    import onnxruntime

    command("export", "m.patchvote", "m.onnx")
    session = onnxruntime.InferenceSession(here / "m.onnx")
    names = [value.name for value in session.get_outputs()]
    pixels = np.asarray(Image.open(here / "test" / "brick" / "2.png").convert("RGB"))
    outputs = dict(zip(names, session.run(None, {session.get_inputs()[0].name: pixels}), strict=True))
    summary = {name: value.mean(axis=(-1, -2)) if value.ndim > 2 else value for name, value in outputs.items()}
    golden(
        "graph",
        {
            "input": session.get_inputs()[0].name,
            "metadata": sorted(session.get_modelmeta().custom_metadata_map),
            "shapes": {name: list(np.shape(value)) for name, value in outputs.items()},
            "outputs": summary,
        },
    )


def test_bags_of_a_store(command, here):
    from patchvote import Store

    command("extract", "test/brick", "store", "--sides", "64,96")
    command("extract", "test/brick", "patches", "--mode", "patch", "--count", 8, "--levels", 2)
    told = {}
    for name in ("store", "patches"):
        store = Store.open(here / name)
        bags, _ = store.load()
        for one, bag in zip(store.names, bags, strict=True):
            values = np.asarray(bag.values, dtype=np.float64)
            told[f"{name}/{one}"] = {
                "shape": list(values.shape),
                "mean": values.mean(),
                "parts": values.reshape(len(values), 8, -1).mean(axis=(0, 2)),
                "first": values[0, ::160],
                "boxes": np.asarray(bag.boxes)[:: max(1, len(values) // 3)],
                "levels": np.bincount(np.asarray(bag.level)),
            }
    golden("bags", told)


def test_prototypes_of_a_fixed_training():
    from patchvote import NBNL, NBNN, SNBNL, LocalNBNN

    bags, labels = made_up_bags(30)
    settings = {"n_prototypes": 2, "max_iter": 20, "random_state": 0}
    trained = SNBNL(**settings).fit(bags, labels)
    golden(
        "prototypes",
        {
            "SNBNL": np.round(trained.weights_, 4),
            "SNBNL answers": trained.predict_proba(bags[:6]),
            "NBNL": np.round(NBNL().fit(bags, labels).decision_function(bags[:6]), 4),
            "NBNN": np.round(NBNN().fit(bags, labels).decision_function(bags[:6]), 4),
            "LocalNBNN": np.round(LocalNBNN().fit(bags, labels).decision_function(bags[:6]), 4),
        },
    )


def fields(schema: Any, schemas: dict[str, Any], inside: tuple[str, ...] = ()) -> Any:
    """Return the fields of a schema of the OpenAPI document and their types, without names of classes and prose."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "…" if name in inside else fields(schemas[name], schemas, (*inside, name))
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return {key: [fields(part, schemas, inside) for part in schema[key]]}
    if "properties" in schema:
        required = schema.get("required", ())
        return {
            name + ("" if name in required else "?"): fields(part, schemas, inside)
            for name, part in sorted(schema["properties"].items())
        }
    if schema.get("type") == "array":
        return [fields(schema.get("items", {}), schemas, inside)]
    if isinstance(schema.get("additionalProperties"), dict):
        return {"*": fields(schema["additionalProperties"], schemas, inside)}
    return schema.get("enum") or schema.get("const") or schema.get("type", "any")


def test_the_description_of_the_api(tmp_path):
    pytest.importorskip("fastapi")
    from helpers.web import client, settings

    with client(settings(tmp_path / "data")) as made:
        document = made.get("/openapi.json").json()
    schemas = document["components"]["schemas"]

    def contents(holder: dict[str, Any]) -> dict[str, Any]:
        return {kind: fields(one.get("schema", {}), schemas) for kind, one in holder.get("content", {}).items()}

    told = {}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            told[f"{method.upper()} {re.sub('{[^}]*}', '{}', path)}"] = {
                "parameters": sorted(f"{one['in']} {one['name']}" for one in route.get("parameters", [])),
                "body": contents(route.get("requestBody", {})),
                "answers": {
                    code: contents(answer) for code, answer in route["responses"].items() if code.startswith("2")
                },
                "refusals": sorted(code for code in route["responses"] if not code.startswith("2")),
            }
    golden("openapi", told)
