"""The cache of bags: every run gets the bags of its own photos, whatever other runs do meanwhile."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.quick_network import QUICK, QuickNetwork
from patchvote import ImageClassifier, PatchvoteError, Store, StoreError, find_photos

COLOURS = {"red": (200, 40, 40), "blue": (40, 40, 200)}
NAMES = [f"{label} {index}.png" for label in COLOURS for index in range(4)]
LABELS = [name.split()[0] for name in NAMES]


def pixels_of(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(COLOURS[label], 30, (64, 64, 3)).clip(0, 255).astype(np.uint8) for label in LABELS]


def write_photos(folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels in zip(NAMES, pixels_of(seed), strict=True):
        Image.fromarray(pixels).save(folder / name)
    return folder


def classifier(cache: Path) -> ImageClassifier:
    return ImageClassifier(QUICK, cache=cache, backbone=QuickNetwork(), budget=0)


def learned(one: ImageClassifier) -> dict[str, list]:
    return {name: array.tolist() for name, array in one.model.scorer.arrays.items()}


def store_of(cache: Path) -> Store:
    (folder,) = cache.iterdir()
    return Store.open(folder)


@pytest.fixture
def before_reading(monkeypatch):
    """Let something happen once, when the cache is up to date and before its bags are read."""

    def arrange(action) -> None:
        opened, todo = Store.open, [action]

        def open_after(path):
            if todo:
                todo.pop()()
            return opened(path)

        monkeypatch.setattr(Store, "open", open_after)

    return arrange


def test_the_same_relative_names_in_two_folders_are_not_the_same_photos(tmp_path, monkeypatch, before_reading):
    mine, other = write_photos(tmp_path / "mine", 1), write_photos(tmp_path / "other", 2)
    monkeypatch.chdir(mine)
    expected = learned(classifier(tmp_path / "fresh").fit(NAMES, LABELS))

    def other_run():
        with monkeypatch.context() as patch:
            patch.chdir(other)
            classifier(tmp_path / "cache").fit(NAMES, LABELS)

    before_reading(other_run)
    found = classifier(tmp_path / "cache").fit(NAMES, LABELS)
    assert learned(found) == expected
    assert set(found.scores.names) <= set(NAMES)  # what is shown are the names as they were given


def test_two_runs_at_once_on_images_in_memory_get_their_own_bags(tmp_path, monkeypatch):
    expected = [learned(classifier(tmp_path / f"fresh {seed}").fit(pixels_of(seed), LABELS)) for seed in (1, 2)]
    opened, both_are_filled = Store.open, threading.Barrier(2)

    def open_together(path):
        both_are_filled.wait(60)
        return opened(path)

    monkeypatch.setattr(Store, "open", open_together)
    found: dict[int, dict] = {}

    def run(seed: int) -> None:
        found[seed] = learned(classifier(tmp_path / "cache").fit(pixels_of(seed), LABELS))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [found[1], found[2]] == expected


def test_adapting_looks_at_the_photos_that_were_asked_for(tmp_path, monkeypatch, before_reading):
    labelled = write_photos(tmp_path / "labelled", 0)
    mine, other = write_photos(tmp_path / "mine", 1), write_photos(tmp_path / "other", 2)
    classifier(tmp_path / "first").fit([labelled / name for name in NAMES], LABELS).save(tmp_path / "m")
    monkeypatch.chdir(mine)

    def model(cache):
        return ImageClassifier.load(tmp_path / "m", cache=tmp_path / cache, backbone=QuickNetwork())

    expected = learned(model("fresh").adapt(NAMES, insist=True))
    assert expected != learned(model("plain"))

    def other_run():
        with monkeypatch.context() as patch:
            patch.chdir(other)
            model("cache").adapt(NAMES, insist=True)

    before_reading(other_run)
    assert learned(model("cache").adapt(NAMES, insist=True)) == expected


@pytest.mark.parametrize("kind", ["list", "folder", "manifest"])
def test_photos_that_are_replaced_meanwhile_count_as_they_were_seen(tmp_path, before_reading, kind):
    folder = write_photos(tmp_path / "photos" / "all", 1)
    for label in COLOURS:
        (tmp_path / "photos" / "sorted" / label).mkdir(parents=True)
    sources = {
        "list": lambda: ([folder / name for name in NAMES], LABELS),
        "folder": lambda: (tmp_path / "photos" / "sorted", None),
        "manifest": lambda: (tmp_path / "photos" / "list.csv", None),
    }
    rows = [f"all/{name},{label}" for name, label in zip(NAMES, LABELS, strict=True)]
    (tmp_path / "photos" / "list.csv").write_text("\n".join(["file_name,label", *rows]))

    def replace(seed):
        write_photos(folder, seed)
        for name, label in zip(NAMES, LABELS, strict=True):
            shutil.copy(folder / name, tmp_path / "photos" / "sorted" / label / name)

    replace(1)
    expected = learned(classifier(tmp_path / "fresh").fit(*sources[kind]()))

    def other_run():
        replace(2)
        classifier(tmp_path / "cache").fit(*sources[kind]())

    before_reading(other_run)
    assert learned(classifier(tmp_path / "cache").fit(*sources[kind]())) == expected


def test_labels_that_are_changed_meanwhile_count_as_they_were_seen(tmp_path, before_reading):
    folder = write_photos(tmp_path / "photos", 1)
    manifest = folder / "list.csv"

    def write(labels):
        rows = [f"{name},{label}" for name, label in zip(NAMES, labels, strict=True)]
        manifest.write_text("\n".join(["file_name,label", *rows]))

    def other_run():
        write(["red", *LABELS[4:], *LABELS[:3]])
        classifier(tmp_path / "cache").fit(manifest)

    write(LABELS)
    expected = learned(classifier(tmp_path / "fresh").fit(manifest))
    before_reading(other_run)
    assert learned(classifier(tmp_path / "cache").fit(manifest)) == expected


def test_a_photo_that_another_run_finds_unreadable_counts_as_it_was_seen(tmp_path, before_reading):
    folder = write_photos(tmp_path / "photos", 1)
    paths = [folder / name for name in NAMES]
    expected = learned(classifier(tmp_path / "fresh").fit(paths, LABELS))

    def other_run():
        paths[0].write_text("no photo any more")
        assert len(classifier(tmp_path / "cache").fit(paths, LABELS).skipped) == 1

    before_reading(other_run)
    assert learned(classifier(tmp_path / "cache").fit(paths, LABELS)) == expected


def test_images_in_memory_are_known_again_by_their_content_in_whatever_order(tmp_path):
    images = pixels_of(1)
    first = classifier(tmp_path / "cache").fit(images, LABELS)
    assert first.filled.extracted == 8
    again = classifier(tmp_path / "cache").fit([Image.fromarray(image) for image in images[::-1]], LABELS[::-1])
    assert (again.filled.extracted, again.filled.kept) == (0, 8)
    assert store_of(tmp_path / "cache").summary()["superseded"] == 0
    assert not any("image" in name for name in store_of(tmp_path / "cache").names)


def test_one_image_may_stand_in_a_list_twice(tmp_path):
    images = pixels_of(1)
    found = classifier(tmp_path / "cache").fit([*images, images[0].copy()], [*LABELS, LABELS[0]])
    assert found.model.about.images == {"blue": 4, "red": 5}
    assert found.filled.extracted == 8


def test_a_link_is_the_photo_that_it_leads_to(tmp_path):
    folder, other = write_photos(tmp_path / "photos", 1), write_photos(tmp_path / "other", 2)
    (tmp_path / "current").symlink_to(folder)
    paths = [tmp_path / "current" / name for name in NAMES]
    classifier(tmp_path / "cache").fit(paths, LABELS)
    again = classifier(tmp_path / "cache").fit([folder / name for name in NAMES], LABELS)
    assert (again.filled.extracted, again.filled.kept) == (0, 8)
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to(other)
    moved = classifier(tmp_path / "cache").fit(paths, LABELS)
    assert moved.filled.extracted == 8
    assert learned(moved) == learned(classifier(tmp_path / "fresh").fit(paths, LABELS))


def test_copies_in_another_folder_do_not_make_a_list_forget_the_originals(tmp_path, monkeypatch):
    monkeypatch.setattr("patchvote.bags.storing._SETTLED", 0)
    folder = write_photos(tmp_path / "photos", 1)
    copies = Path(shutil.copytree(folder, tmp_path / "copies"))
    for photos in (folder, copies, folder, copies):
        found = classifier(tmp_path / "cache").fit([photos / name for name in NAMES], LABELS)
    assert (found.filled.kept, found.filled.forgotten) == (8, 0)
    assert len(store_of(tmp_path / "cache")) == 16


def test_a_manifest_that_is_a_link_names_the_photos_beside_the_link(tmp_path):
    rows = [f"{name},{label}" for name, label in zip(NAMES, LABELS, strict=True)]
    (tmp_path / "list.csv").write_text("\n".join(["file_name,label", *rows]))
    for seed in (1, 2):
        (write_photos(tmp_path / f"photos {seed}", seed) / "list.csv").symlink_to(tmp_path / "list.csv")
        classifier(tmp_path / "cache").fit(tmp_path / f"photos {seed}" / "list.csv")
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_two_different_photos_of_one_name_are_refused(tmp_path):
    photos = [*find_photos(write_photos(tmp_path / "a", 1)), *find_photos(write_photos(tmp_path / "b", 2))]
    with pytest.raises(StoreError, match="two different photos are both called 'blue 0.png'"):
        classifier(tmp_path / "cache").fit(photos, sorted(LABELS) * 2)


def test_photos_that_cannot_be_read_are_named_as_they_were_given(tmp_path, monkeypatch):
    monkeypatch.chdir(write_photos(tmp_path / "photos", 1))
    Path("bad.png").write_text("no photo")
    found = classifier(tmp_path / "cache").fit([*NAMES, "bad.png", "a\0b.png"], [*LABELS, "red", "red"])
    assert [error.name for error in found.skipped] == ["bad.png", "a\0b.png"]
    with pytest.raises(PatchvoteError, match="the only photo cannot be read. bad.png: is not an image"):
        found.adapt(["bad.png"])


def test_a_folder_whose_name_is_not_utf8_has_a_cache_too(tmp_path):
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    for name, pixels in zip(NAMES, pixels_of(1), strict=True):
        (root / name.split()[0]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / name.split()[0] / name)
    assert classifier(tmp_path / "cache").fit(root).filled.extracted == 8


@pytest.mark.parametrize("cache", ["memory://somewhere/cache", "s3://bucket/cache"])
def test_a_cache_on_another_file_system_is_refused_and_makes_no_local_folder(cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    classifier = ImageClassifier(QUICK, cache=cache, backbone=QuickNetwork())
    with pytest.raises(PatchvoteError, match=f"must be a folder of this machine, got {cache}"):
        classifier.fit([Image.new("RGB", (64, 64), colour) for colour in ("red", "blue")], ["a", "b"])
    assert not list(tmp_path.iterdir())
