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

from helpers.killed import classifier, killed, loaded, run
from helpers.quick_network import QUICK, QuickNetwork
from helpers.small_models import header_of
from patchvote import ImageClassifier, PatchvoteError, Recipe
from patchvote.models.file import arrays_of, read_model

SHADES = {"dark": 0, "grey": 75, "light": 150}


def photos_in(folder: Path, count: int, first: int = 0, labels=tuple(SHADES)) -> Path:
    """Write photos of some classes, from a number on; the same number always has the same content."""
    for label in labels:
        (folder / label).mkdir(parents=True, exist_ok=True)
        for index in range(first, first + count):
            rng = np.random.default_rng([SHADES[label], index])
            pixels = rng.integers(0, 90, (64, 64, 3)) + SHADES[label] + rng.integers(-30, 31)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / label / f"{index:02}.png")
    return folder


def content(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return all that a model file holds, but dates."""
    header = re.sub(r"\d{4}-\d\d-\d\d", "some day", json.dumps(header_of(path), sort_keys=True))
    return header, {name: array.tobytes() for name, array in arrays_of(read_model(path)).items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The photos of a collection: `all`, those at `first`, and `more`; and models of `all` and `first`."""
    folder = tmp_path_factory.mktemp("collection")
    photos_in(folder / "first", 8)
    photos_in(folder / "more", 4, 8)
    photos_in(folder / "all", 12)
    for name in ("first", "all"):
        classifier().fit(folder / name).save(folder / f"{name}.patchvote")
    return folder


def test_the_same_photos_give_the_same_bytes(made, tmp_path):
    classifier(tmp_path / "cache").fit(made / "all").save(tmp_path / "m.patchvote")
    assert content(tmp_path / "m.patchvote") == content(made / "all.patchvote")


def test_a_model_with_photos_added_is_that_of_a_fit_to_all(made, tmp_path):
    grown = loaded(made / "first.patchvote").add(made / "more")
    assert grown.added == {"dark": 4, "grey": 4, "light": 4}
    grown.save(tmp_path / "m.patchvote")
    assert content(tmp_path / "m.patchvote") == content(made / "all.patchvote")
    again = loaded(tmp_path / "m.patchvote").add(made / "all")
    assert (again.added, again.known) == ({}, 36)


def test_a_new_class_may_be_added(made, tmp_path):
    photos_in(tmp_path / "two", 12, labels=("dark", "light"))
    photos_in(tmp_path / "third", 12, labels=("grey",))
    grown = classifier().fit(tmp_path / "two").add(tmp_path / "third")
    grown.save(tmp_path / "m.patchvote")
    assert content(tmp_path / "m.patchvote") == content(made / "all.patchvote")


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
    model.save(tmp_path / "forgot.patchvote")
    classifier().fit(photos).save(tmp_path / "without.patchvote")
    assert content(tmp_path / "forgot.patchvote") == content(tmp_path / "without.patchvote")


def test_a_name_that_looks_like_a_pattern_and_a_wrong_digest_forget_no_other_photo(made, tmp_path):
    photos = shutil.copytree(made / "all", tmp_path / "photos")
    (photos / "grey" / "00.png").rename(photos / "grey" / "x[1].png")
    (photos / "grey" / "01.png").rename(photos / "grey" / "x1.png")
    model = classifier().fit(photos)
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
    assert "it was learned as grey, and is not learned as light, too" in str(model.skipped[0])
    assert model.forget("grey/03.png").add(tmp_path / "more").added == {"light": 1}
    assert model.model.about.images == {"dark": 12, "grey": 11, "light": 13}


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        (["grey/", "dark/"], "needs readable photos of two classes"),
        ("*", "needs readable photos of two classes"),
        ("grey/99.png", "has learned no photo 'grey/99.png': give a photo's path"),
        (["grey/00.png", "0" * 64], "has learned no photo '0000"),
        ("brown/", "has learned no photo 'brown/'"),
    ],
)
def test_what_cannot_be_forgotten_is_refused_and_nothing_changes(chosen, says, made):
    model = loaded(made / "all.patchvote")
    before = model.model
    with pytest.raises(PatchvoteError, match=re.escape(says)):
        model.forget(chosen)
    assert model.model is before


def test_a_model_without_memory_answers_and_says_why_it_changes_no_more(made, tmp_path):
    whole = loaded(made / "all.patchvote")
    whole.save(tmp_path / "small.patchvote", memory=False)
    small = loaded(tmp_path / "small.patchvote")
    np.testing.assert_array_equal(small.predict_proba(made / "all"), whole.predict_proba(made / "all"))
    assert [one.rejected for one in small.answers(made / "all")] == [
        one.rejected for one in whole.answers(made / "all")
    ]
    before = small.model
    for change in (small.add, small.adapt, lambda photos: small.forget("grey/")):
        with pytest.raises(PatchvoteError, match="written without its memory .--no-memory.: fit it again"):
            change(made / "more")
    assert small.model is before


def test_an_adapted_model_changes_no_more(made):
    adapted = loaded(made / "first.patchvote").adapt(made / "more", insist=True)
    assert adapted.model.about.adapted
    for change in (adapted.add, lambda photos: adapted.forget("grey/")):
        with pytest.raises(PatchvoteError, match="an adapted model cannot learn or forget: change the model that was"):
            change(made / "more")
    with pytest.raises(PatchvoteError, match="is adapted already"):
        adapted.adapt(made / "more")


def test_other_voters_cannot_forget(made):
    model = ImageClassifier(QUICK, backbone=QuickNetwork(), cache=False, voter="nbnn").fit(made / "first")
    with pytest.raises(PatchvoteError, match="a model of nbnn cannot forget photos: fit it again without them"):
        model.forget("grey/00.png")


# --- sizes ------------------------------------------------------------------------------------------------------------


class Wide(QuickNetwork):
    """Describes cells by 1,280 numbers."""

    def __init__(self) -> None:
        super().__init__(times=200)
        self.across = np.random.default_rng(0).normal(size=(1400, 1280)).astype(np.float32)
        self.spec = type(self.spec)(**{**vars(self.spec), "dim": 1280})

    def __call__(self, images):
        return np.maximum(super().__call__(images) @ self.across, 0)


def test_a_model_of_300_photos_takes_12_megabytes_and_3_without_memory(tmp_path):
    rng = np.random.default_rng(0)
    photos = [rng.integers(0, 256, (64, 64, 3)).astype(np.uint8) for _ in range(300)]
    model = ImageClassifier(Recipe("quick", QUICK.sampling), backbone=Wide(), cache=False)
    model.fit(photos, [f"class {index % 15}" for index in range(300)])
    model.save(tmp_path / "m.patchvote")
    model.save(tmp_path / "small.patchvote", memory=False)
    assert (tmp_path / "m.patchvote").stat().st_size < 12_000_000
    assert (tmp_path / "small.patchvote").stat().st_size < 3_000_000


# --- processes that are killed ----------------------------------------------------------------------------------------


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
