"""Models whose header says anything at all: refused with a reason, or harmless in every command."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import itertools
import json
import math
import shutil
import time

import numpy as np
import pytest
from PIL import Image

from helpers.small_models import header_of, remade, with_header
from patchvote import NBNL, SNBNL, Dense, ImageClassifier, ModelError, PatchvoteError, Recipe
from patchvote.cli.info import model_info
from patchvote.models.export import export_model
from patchvote.models.file import read_model, write_model
from patchvote.networks import load
from patchvote.utils.machine import memory
from patchvote.utils.schema import record
from patchvote.voters.registry import kinds, scorer_class, voter_class

KINDS = kinds()[:5]
RAW = "raw JSON: "  # before text that stands in the header as it is

# What no header says that patchvote wrote; not in every place is it wrong.
HOSTILE = (
    None,
    True,
    -1,
    0,
    10**30,
    1e300,
    1e-300,
    RAW + "1e999",
    RAW + "NaN",
    "",
    "inf",
    "\x1b[2J\x1b]0;owned\x07",
    "../\udcff\u202e\n\r",
    "x" * 100_000,
    [],
    [7],
    {},
    {"x": 7},
    RAW + "[" * 20 + "]" * 20,
    RAW + "[" * 900 + "]" * 900,
    RAW + '{"a":' * 900 + "1" + "}" * 900,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_network):
    """A model of each kind, fitted on a few photos, with its network and photos beside it."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copy(tiny_network, folder / "tiny.onnx")
    (folder / "tiny.toml").write_text('output = "features"\n')
    rng = np.random.default_rng(0)
    for label, index in itertools.product(("bright", "dark"), range(4)):
        (folder / "photos" / label).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 90, (64, 64, 3)) + 150 * (label == "bright")
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / label / f"{index}.png")
    recipe = Recipe(str(folder / "tiny.onnx"), Dense((64,)))
    voters = ("moment-ridge", SNBNL(2, max_iter=1), NBNL(2, max_iter=1), "nbnn", "local-nbnn")
    for kind, voter in zip(KINDS, voters, strict=True):
        ImageClassifier(recipe, voter=voter, cache=folder / "bags").fit(folder / "photos").save(folder / kind)
    return folder


@pytest.fixture(scope="module")
def network(folder):
    return load(str(folder / "tiny.onnx"))


def places(value, path=()):
    """Every place of a header, leaves and branches."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(header, path, value):
    """The text of a header with another value in one place."""
    header = copy.deepcopy(header)
    inner = header
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = "@here@" if isinstance(value, str) and value.startswith(RAW) else value
    text = json.dumps(header)
    return text.replace('"@here@"', value[len(RAW) :]) if isinstance(value, str) and value.startswith(RAW) else text


def use(path, folder, network):
    """Do with a model whatever a command does."""
    photo = folder / "photos" / "dark" / "0.png"
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), errors="replace")):  # as the command line does
        model_info(path, card=False, photos=False, as_json=False)
        model_info(path, card=False, photos=False, as_json=True)
        model_info(path, card=True, photos=True, as_json=False)
    classifier = ImageClassifier.load(path, network=str(folder / "tiny.onnx"), backbone=network, cache=folder / "bags")
    (answer,) = classifier.answers([photo])
    assert np.isfinite(answer.likeliest_probability)
    classifier.explain([photo])
    classifier.evaluate([photo], [classifier.classes[0]])
    classifier.report(folder / "report.html", title="a", measured="b")
    classifier.add([np.full((64, 64, 3), 77, np.uint8)], ["new"])  # a photo that it does not know
    classifier.save(folder / "added")
    read_model(folder / "added")


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_stands_in_a_header_only_the_one_error_comes_out_and_quickly(kind, folder, network):
    header = header_of(folder / kind)
    refused, harmless, longest = 0, 0, 0.0
    for path in list(places(header))[1:]:
        for value in HOSTILE:
            file = with_header(folder / kind, folder / "hostile", changed(header, path, value))
            began = time.process_time()
            try:
                read_model(file)
                harmless += 1
                if harmless % 7 == 0:  # what was read has a type that all can rely on: some of them will do
                    use(file, folder, network)
            except PatchvoteError:
                refused += 1
            except Exception as error:
                raise AssertionError(f"{path} = {str(value)[:60]!r}: {error!r}") from error
            longest = max(longest, time.process_time() - began)
    assert refused > 300
    assert harmless > 70
    assert longest < 2  # seconds of computing


def test_the_settings_that_a_file_may_have_are_those_of_the_voters():
    for kind in KINDS:
        voter, schema = voter_class(kind)(), scorer_class(kind).schema
        known = schema.settings
        assert set(known) == set(voter.get_params()) - {"callback", *schema.unstored}
        assert record({}, known)(voter._plain_settings()) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"about": RAW + "{" + ",".join(f'"{n}":0' for n in range(1_100_000)) + "}"}, "more than 1,048,576 values"),
        ({"about": RAW + "{" + ",".join(f'"{n}":0' for n in range(1_000_000)) + "}"}, "about has 1,000,000 keys"),
        ({"about": RAW + "[" + "{}," * 500_000 + "0]"}, "about must be a table"),
        ({"about": {"images": {str(n): n for n in range(300_000)} | {"last": "x"}}}, "images.'last'. must be a whole"),
        ({"settings": {str(n): 0 for n in range(500_000)}}, "'0' is not a setting of"),
        ({"recipe": {"mode": "dense", "sampling": {"k" * 10_000_000: 1}}}, "is not a setting of Dense"),
        ({"recipe": {"mode": "dense", "sampling": {"sides": [32] * 500_000}}}, "16 sides at most, got 500,000"),
        ({"card": "c" * 20_000_000}, "card must be text of at most 8,388,608 characters"),
        ({"card": "c" * 60_000_000}, "60,0.* characters, more than 33,554,432"),
        ({"fingerprint": "f" * 1_000_000}, "fingerprint must be text of at most 256"),
        ({"kind": "k" * 1_000_000}, "does not know: 'kkk"),
        ({"version": 10**3000}, "made by another version"),
        ({"classes": ["a", "b" * 1001]}, "a name of at most 1,000 characters, got 'bbb"),
        ({"classes": ["a", "b\0"]}, "a name of at most 1,000 characters"),
        ({"about": {"held_out": {"images": 1}}}, "about.held_out.accuracy is missing"),
        ({"about": {"curve": [{"photos": 7}]}}, "about.curve.0..*is missing"),
        ({"about": {"seconds": {"network": "long"}}}, "about.seconds.'network'. must be a number"),
        ({"about": RAW + '{"new":' + "[" * 50 + "]" * 50 + "}"}, "nests deeper than 8 levels"),
        ({"settings": {"alpha": 0.5, "device": "cuda"}}, "'device' is not a setting of moment-ridge"),
        ({"temperature": 1e-300}, "temperature must be"),
        ({"temperature": 1e300}, "temperature must be"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_a_header_beyond_all_bounds_is_refused_within_two_seconds(change, said, folder):
    header, ((name, value),) = header_of(folder / "moment-ridge"), change.items()
    file = with_header(folder / "moment-ridge", folder / "hostile", changed(header, (name,), value))
    began = time.process_time()
    with pytest.raises(ModelError, match=said) as caught:
        read_model(file)
    assert time.process_time() - began < 2
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


def test_a_model_that_could_not_be_read_again_is_not_written(folder, tmp_path):
    model = read_model(folder / "nbnn")
    with pytest.raises(ModelError, match="cannot be written: its header has .* too many photos"):
        write_model(dataclasses.replace(model, names=("n" * 1_000,) * 40_000), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_model_with_odd_names_of_classes_that_a_folder_may_have_still_loads(folder, network):
    header = header_of(folder / "moment-ridge")
    header["classes"] = ["\x1b[31mred\n", "\udcff" + "x" * 250]
    header["about"]["images"] = dict.fromkeys(header["classes"], 4)
    file = with_header(folder / "moment-ridge", folder / "odd", json.dumps(header))
    use(file, folder, network)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e16, 1e38])
def test_arrays_so_large_that_votes_overflow_are_refused(kind, size, folder):
    model = read_model(folder / kind)
    for name, array in model.scorer.arrays.items():
        if array.dtype in (np.float32, np.float64) and "boxes" not in name:
            large = array.copy()
            large.flat[-1] = -size
            with pytest.raises(ModelError, match="overflow|no scales|scales of its photos"):
                remade(model, arrays={**model.scorer.arrays, name: large})


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-310, 1e35])
def test_scales_that_no_feature_has_are_refused(scale, folder):
    model = read_model(folder / "snbnl")
    wrong = model.scorer.arrays["scale"].copy()
    wrong[0] = scale
    with pytest.raises(ModelError, match="no scales"):
        remade(model, arrays={**model.scorer.arrays, "scale": wrong})


@pytest.mark.parametrize(("weight", "mean", "scale"), [(1e14, 1.0, 1e4), (1.0, 0.0, 1e16)])
def test_prototypes_that_overflow_only_together_with_their_scales_are_refused(weight, mean, scale, folder):
    model = read_model(folder / "nbnl")
    arrays = {name: array.copy() for name, array in model.scorer.arrays.items()}
    for name, value in (("weights", weight), ("mean", mean), ("scale", scale)):
        arrays[name][...] = value
    with pytest.raises(ModelError, match="so large that votes would overflow"):
        remade(model, arrays=arrays)


def test_weights_as_large_as_they_may_be_give_votes_that_are_numbers(folder, network):
    model = read_model(folder / "snbnl")
    arrays = {name: array.copy() for name, array in model.scorer.arrays.items()}
    arrays["weights"][...] = 9e14
    arrays["mean"][...] = 1e12
    arrays["scale"][...] = 1.0
    write_model(remade(model, arrays=arrays, temperature=1e-20), folder / "largest")
    classifier = ImageClassifier.load(folder / "largest", network=str(folder / "tiny.onnx"), backbone=network)
    assert np.isfinite(classifier.predict_proba([folder / "photos" / "dark" / "0.png"])).all()


def test_a_bank_that_speaks_of_images_or_neighbours_that_it_lacks_is_refused(folder):
    model = read_model(folder / "nbnn")
    rows = len(model.scorer.arrays["image"])
    for wrong, said in (
        ({"arrays": {**model.scorer.arrays, "image": np.full(rows, -1)}}, "images that are not there"),
        ({"arrays": {**model.scorer.arrays, "image": np.full(rows, 8)}}, "images that are not there"),
        ({"settings": {**model.scorer.settings, "n_neighbors": rows}}, "fewer than"),
    ):
        with pytest.raises(ModelError, match=said):
            remade(model, **wrong)


@pytest.mark.parametrize("kind", ["moment-ridge", "snbnl"])
def test_exporting_a_hostile_model_ends_in_the_one_error(kind, folder):
    header = header_of(folder / kind)
    for path in ("recipe", "settings", "classes", "about", "fingerprint", "temperature"):
        for value in HOSTILE:
            file = with_header(folder / kind, folder / "hostile", changed(header, (path,), value))
            with contextlib.suppress(PatchvoteError):
                export_model(read_model(file), folder / "graph.onnx", network=str(folder / "tiny.onnx"))


def claiming(source, path, name, shape):
    """Write a model whose array `name` claims another shape, in a file as large as that but mostly a hole."""
    data = source.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    end = max(entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__")
    size = math.prod(shape) * 4
    header["unused"] = header[name]  # what lay there is read by nobody
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
    line = json.dumps(header).encode()
    path.write_bytes(len(line).to_bytes(8, "little") + line + data[8 + length :])
    with path.open("r+b") as file:
        file.truncate(8 + len(line) + end + size)
    return path


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ([2, memory() // 8 + 1], "larger than the memory of this machine"),
        ([2, 1 << 29, 1], "the array 'linear' has 3 axes of 'float32'"),
    ],
)
def test_an_array_that_claims_what_cannot_be_right_takes_no_memory(shape, says, folder, tmp_path):
    path = claiming(folder / "moment-ridge", tmp_path / "m", "linear", shape)
    with pytest.raises(ModelError, match=says):
        read_model(path)
    path.unlink()
