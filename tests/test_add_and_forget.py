"""Photos are added and forgotten as if they had been there at first, or never; and no kill -9 leaves half of it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.killed import killed, run
from helpers.quick_network import QUICK, SHADES, QuickNetwork, loaded, quick
from helpers.small_models import header_of
from patchvote import ImageClassifier, PatchvoteError
from patchvote.models.file import arrays_of, read_model


def photos_in(folder: Path, count: int, first: int = 0, labels=SHADES) -> Path:
    """Write photos of some classes, from a number on; the same number always has the same content."""
    for label in labels:
        (folder / label).mkdir(parents=True, exist_ok=True)
        shade = 75 * SHADES.index(label)
        for index in range(first, first + count):
            rng = np.random.default_rng([shade, index])
            pixels = rng.integers(0, 90, (64, 64, 3)) + shade + rng.integers(-30, 31)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / label / f"{index:02}.png")
    return folder


def content(model: Path | ImageClassifier, folder: Path | None = None) -> tuple[str, dict[str, bytes]]:
    """Return all that the file of a model holds, but dates."""
    if folder is not None:
        model.save(folder / "content.patchvote")
        return content(folder / "content.patchvote")
    header = re.sub(r"\d{4}-\d\d-\d\d", "some day", json.dumps(header_of(model), sort_keys=True))
    return header, {name: array.tobytes() for name, array in arrays_of(read_model(model)).items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The photos of a collection: `all`, those at `first`, and `more`; and models of `all` and `first`."""
    folder = tmp_path_factory.mktemp("collection")
    photos_in(folder / "first", 8)
    photos_in(folder / "more", 4, 8)
    photos_in(folder / "all", 12)
    for name in ("first", "all"):
        quick().fit(folder / name).save(folder / f"{name}.patchvote")
    return folder


def test_a_model_with_photos_or_a_class_added_is_that_of_a_fit_to_all(made, tmp_path):
    expected = content(made / "all.patchvote")
    assert content(quick(cache=tmp_path / "cache").fit(made / "all"), tmp_path) == expected
    grown = loaded(made / "first.patchvote").add(made / "more")
    assert grown.added == {"dark": 4, "grey": 4, "light": 4}
    assert content(grown, tmp_path) == expected
    again = loaded(tmp_path / "content.patchvote").add(made / "all")
    assert (again.added, again.known) == ({}, 36)
    photos_in(tmp_path / "two", 12, labels=("dark", "light"))
    photos_in(tmp_path / "third", 12, labels=("grey",))
    assert content(quick().fit(tmp_path / "two").add(tmp_path / "third"), tmp_path) == expected


@pytest.mark.parametrize("how", ["names", "pattern", "digests", "class"])
def test_a_model_that_forgot_photos_is_that_of_a_fit_without_them(how, made, tmp_path):
    photos = shutil.copytree(made / "all", tmp_path / "photos")
    gone = sorted((photos / "grey").iterdir())
    gone = gone if how == "class" else gone[:2]
    chosen = {
        "names": [f"grey/{path.name}" for path in gone],
        "pattern": "grey/0[01]*",
        "digests": [hashlib.sha256(path.read_bytes()).hexdigest() for path in gone],
        "class": "grey/",
    }[how]
    model = loaded(made / "all.patchvote").forget(chosen)
    assert sorted(model.forgotten) == [f"grey/{path.name}" for path in gone]
    for path in gone:
        path.unlink()
    assert content(model, tmp_path) == content(quick().fit(photos), tmp_path)


def test_a_name_that_looks_like_a_pattern_and_a_wrong_digest_forget_no_other_photo(made, tmp_path):
    photos = shutil.copytree(made / "all", tmp_path / "photos")
    (photos / "grey" / "00.png").rename(photos / "grey" / "x[1].png")
    (photos / "grey" / "01.png").rename(photos / "grey" / "x1.png")
    model = quick().fit(photos)
    digest = hashlib.sha256((photos / "grey" / "02.png").read_bytes()).hexdigest()
    with pytest.raises(PatchvoteError, match="has learned no photo"):
        model.forget(digest[:16] + "f" * 48)
    assert model.forget(digest.upper()).forgotten == ["grey/02.png"]
    assert model.forget("grey/x[1].png").forgotten == ["grey/x[1].png"]
    assert model.forget("grey/x[1].p*").forgotten == ["grey/x1.png"]


def test_a_photo_that_was_forgotten_may_be_added_again_as_another_class(made, tmp_path):
    wrong = tmp_path / "more" / "light" / "wrong.png"
    wrong.parent.mkdir(parents=True)
    shutil.copy(made / "all" / "grey" / "03.png", wrong)
    model = loaded(made / "all.patchvote").add(tmp_path / "more")
    assert "learned as grey" in str(model.skipped[0])
    assert model.forget("grey/03.png").add(tmp_path / "more").added == {"light": 1}
    assert model.model.about.images == {"dark": 12, "grey": 11, "light": 13}


def test_what_cannot_be_forgotten_is_refused_and_nothing_changes(made):
    model = loaded(made / "all.patchvote")
    before = model.model
    for chosen, keyword in (
        (["grey/", "dark/"], "two classes"),
        ("*", "two classes"),
        ("grey/99.png", "no photo 'grey/99.png'"),
        (["grey/00.png", "0" * 64], "no photo '0000"),
        ("brown/", "no photo 'brown/'"),
    ):
        with pytest.raises(PatchvoteError, match=keyword):
            model.forget(chosen)
        assert model.model is before
    with pytest.raises(PatchvoteError, match="nbnn cannot forget"):
        quick("nbnn").fit(made / "first").forget("grey/00.png")


def test_a_model_without_memory_or_adapted_answers_and_changes_no_more(made, tmp_path):
    whole = loaded(made / "all.patchvote")
    whole.save(tmp_path / "small.patchvote", memory=False)
    small = loaded(tmp_path / "small.patchvote")
    assert list(small.answers(made / "all")) == list(whole.answers(made / "all"))
    before = small.model
    for change in (small.add, small.adapt, lambda photos: small.forget("grey/")):
        with pytest.raises(PatchvoteError, match="without its memory"):
            change(made / "more")
    assert small.model is before
    adapted = loaded(made / "first.patchvote").adapt(made / "more", insist=True)
    for change in (adapted.add, adapted.adapt, lambda photos: adapted.forget("grey/")):
        with pytest.raises(PatchvoteError, match="adapted"):
            change(made / "more")


def test_a_model_of_300_photos_takes_12_megabytes_and_3_without_memory(tmp_path):
    rng, wide = np.random.default_rng(0), QuickNetwork(times=183)  # 1,281 features; the default network has 1,280
    model = ImageClassifier(QUICK, backbone=wide, cache=False)
    photos = [rng.integers(0, 256, (64, 64, 3)).astype(np.uint8) for _ in range(300)]
    model.fit(photos, [f"class {index % 15}" for index in range(300)])
    model.save(tmp_path / "m.patchvote")
    model.save(tmp_path / "small.patchvote", memory=False)
    assert (tmp_path / "m.patchvote").stat().st_size < 12_000_000
    assert (tmp_path / "small.patchvote").stat().st_size < 3_000_000


@pytest.mark.parametrize("what", ["fit", "add", "forget", "predict"])
def test_a_process_that_is_killed_leaves_the_old_model_or_the_new_one_and_a_cache_that_serves(what, made, tmp_path):
    def fresh(name: str) -> Path:
        folder = shutil.copytree(made, tmp_path / name)
        shutil.copy(folder / "first.patchvote", folder / "m.patchvote")
        return folder

    undisturbed = fresh("undisturbed")
    old = content(undisturbed / "m.patchvote")
    answers = run(what, undisturbed)
    new = content(undisturbed / "m.patchvote")
    assert (new == old) == (what == "predict")
    whole = min(killed(what, fresh(f"whole {number}"), 60) for number in range(2))
    rng = np.random.default_rng(len(what))
    moments = whole * np.concatenate([rng.uniform(0, 1, 5), rng.uniform(0.75, 1.2, 5)])  # the file is written last
    for number, after in enumerate(moments.tolist()):
        folder = fresh(str(number))
        killed(what, folder, after)
        found = content(folder / "m.patchvote")
        assert found in (old, new)
        if found == old:
            assert run(what, folder) == answers
            assert content(folder / "m.patchvote") == new
        shutil.rmtree(folder)
