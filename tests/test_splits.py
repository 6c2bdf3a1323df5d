"""Image sets are read in the layout in which they are published, and split as a protocol says."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.clutter import write_collages
from experiments.datasets import LAYOUTS, Dataset, read_dataset
from experiments.protocol import Protocol, Setting
from experiments.results import Draw, read_draws
from experiments.splits import make_split
from patchvote.errors import PatchvoteError
from patchvote.photos.find import Photo


def dataset(*domains: str, count: int = 30) -> Dataset:
    names = [f"{domain}/{label}/{n}.jpg" for domain in domains for label in ("cat", "dog") for n in range(count)]
    return Dataset([Photo(name, Path(name), name.split("/")[1]) for name in names])


def test_a_random_split_takes_so_many_of_each_class_and_never_one_twice_in_whatever_order_photos_are_found():
    setting, photos = Setting("random", "random", 3, train=10, test=5), dataset("a").photos
    splits = [make_split(Dataset(photos), setting, None, index) for index in range(3)]
    for split in splits:
        assert sum("cat" in name for name in split.train) == sum("dog" in name for name in split.train) == 10
        assert sum("cat" in name for name in split.test) == 5
        assert not set(split.train) & set(split.test)
    assert splits[0] == make_split(Dataset(photos[::-1]), setting, None, 0)
    assert splits[0].train != splits[1].train


def test_a_target_is_tested_whole_and_gives_its_labelled_photos_to_training():
    plain = Setting("unsupervised", "domains", 2, train=20, fewer={"b": 15})
    three = dataset("a", "b", "c")
    split = make_split(three, plain, "a-b", 0)
    assert (len(split.train), len(split.test)) == (2 * 15, 2 * 30)
    assert make_split(three, plain, "b-a", 0).train == make_split(three, plain, "b-c", 0).train
    half = Setting("semi-supervised", "domains", 2, train=20, fewer={"b": 15}, labelled=3)
    more = make_split(three, half, "a-b", 0)
    assert more.train[:30] == split.train
    assert [name.split("/")[0] for name in more.train[30:]] == ["b"] * 6
    assert not set(more.train) & set(more.test)
    within = make_split(dataset("a", count=8), Setting("x", "domains", 1, train=20), "a-a", 0)
    assert (len(within.train), len(within.test)) == (10, 6)


@pytest.mark.parametrize(
    ("photos", "setting", "pair", "message"),
    [
        (dataset("a"), Setting("x", "random", 1, train=28, test=5), None, "cat has 30 photos"),
        (dataset("a", count=3), Setting("x", "domains", 1, train=20), "a-a", "cat has 3 photos in a, .* train"),
        (dataset("a", "b", count=2), Setting("x", "domains", 1, train=20, labelled=3), "a-b", "2 photos in b, .* test"),
        (dataset("a", "b"), Setting("x", "domains", 1, train=2), "a-z", "'a-z' is not a pair of domains"),
        (Dataset([], []), Setting("official", "lists", 10), None, "needs a published list"),
    ],
)
def test_what_a_split_lacks_is_named(photos, setting, pair, message):
    with pytest.raises(PatchvoteError, match=message):
        make_split(photos, setting, pair, 0)


# --- layouts ----------------------------------------------------------------------------------------------------------

SCENES = ["bedroom", "CALsuburb", "industrial", "kitchen", "livingroom", "MITcoast", "MITforest", "MIThighway"]
SCENES += ["MITinsidecity", "MITmountain", "MITopencountry", "MITstreet", "MITtallbuilding", "PARoffice", "store"]
OBJECTS = ["backpack", "bike", "calculator", "headphones", "keyboard", "laptop", "monitor", "mouse", "mug", "projector"]
CAMERAS = ("amazon", "caltech10", "dslr", "webcam")


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_scene_15_is_read_under_every_published_name(tmp_path):
    first = touch(tmp_path / "a", *(f"{label}/image_{n:04d}.jpg" for label in SCENES for n in (1, 2)))
    second = touch(tmp_path / "b", *(f"{number:02d}/1.jpg" for number in range(15)))
    photos = read_dataset("scene15", first).photos
    assert (len(photos), photos[0].name) == (30, "bedroom/image_0001.jpg")
    assert {photo.label for photo in photos} == {photo.label for photo in read_dataset("scene15", second).photos}


def test_office_caltech_names_photos_by_domain_and_class(tmp_path):
    touch(tmp_path, *(f"{domain}/images/{label}/1.jpg" for domain in CAMERAS for label in OBJECTS[1:]))
    touch(tmp_path, *(f"{domain}/images/back_pack/1.jpg" for domain in CAMERAS[:1] + CAMERAS[2:]))
    touch(tmp_path, "caltech10/images/003.backpack/1.jpg")
    photos = read_dataset("office-caltech", tmp_path).photos
    assert len(photos) == 40
    assert {photo.name for photo in photos if photo.label == "backpack"} == {
        f"{domain}/backpack/1.jpg" for domain in ("amazon", "caltech", "dslr", "webcam")
    }
    (tmp_path / "dslr" / "images" / "mug" / "1.jpg").unlink()
    with pytest.raises(PatchvoteError, match="in dslr, the folder mug has no photos"):
        read_dataset("office-caltech", tmp_path)


def test_mit_67_is_read_with_its_lists(tmp_path):
    labels = [f"room_{number:02d}" for number in range(67)]
    touch(tmp_path / "Images", *(f"{label}/{n}.jpg" for label in labels for n in (1, 2, 3)))
    (tmp_path / "TrainImages.txt").write_text("".join(f"{label}/1.jpg\n{label}/2.jpg\n" for label in labels))
    (tmp_path / "TestImages.txt").write_text("".join(f"{label}/3.jpg\r\n" for label in labels))
    ((train, test),) = read_dataset("mit67", tmp_path).lists
    assert (len(train), len(test), test[0]) == (134, 67, "room_00/3.jpg")
    (tmp_path / "Images" / test[0]).unlink()
    with pytest.raises(PatchvoteError, match=f"1 of 201 photos that its lists name are missing, such as {test[0]}"):
        read_dataset("mit67", tmp_path)
    for number in range(2, 67):
        shutil.rmtree(tmp_path / "Images" / f"room_{number:02d}")
    part = read_dataset("mit67-part", tmp_path)
    assert ([len(names) for names in part.lists[0]], len({photo.label for photo in part.photos})) == ([4, 1], 2)


def test_sun_397_may_end_after_any_whole_partition_but_the_first_is_needed(tmp_path):
    labels = [f"{'abc'[number % 3]}/place_{number:03d}" for number in range(396)] + ["a/house/outdoor"]
    touch(tmp_path, *(f"{label}/sun_{n}.jpg" for label in labels for n in (1, 2)))
    (tmp_path / "ClassName.txt").write_text("".join(f"/{label}\n" for label in labels))
    for number in ("01", "02"):
        for n, part in ((1, "Training"), (2, "Testing")):
            (tmp_path / f"{part}_{number}.txt").write_text("".join(f"/{label}/sun_{n}.jpg\n" for label in labels))
    read = read_dataset("sun397", tmp_path)
    assert (len(read.lists), len(read.photos)) == (2, 794)
    assert "a/house/outdoor" in {photo.label for photo in read.photos}
    (tmp_path / "Testing_02.txt").unlink()
    assert len(read_dataset("sun397", tmp_path).lists) == 1
    (tmp_path / "Testing_01.txt").unlink()
    with pytest.raises(PatchvoteError, match=r"Testing_01.txt is missing"):
        read_dataset("sun397", tmp_path)


def test_a_collage_has_the_thing_in_one_quarter_and_places_in_the_others(tmp_path):
    things = [f"things/{label}/{number}.jpg" for label in ("bike", "mug") for number in (1, 2)]
    for path, colour in {**dict.fromkeys(things, "red"), "sun/d/desert/sand/1.jpg": "blue"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30, 20), colour).save(tmp_path / path)
    for number in range(3):
        shutil.copy(tmp_path / "sun/d/desert/sand/1.jpg", tmp_path / f"sun/d/desert/{number}.jpg")
    assert write_collages(tmp_path / "things", tmp_path / "sun", tmp_path / "set") == 4
    collage = np.asarray(Image.open(tmp_path / "set" / "quarter" / "mug" / "0003.png"), int)
    blue = collage[..., 2] > collage[..., 0] + 100
    assert blue.mean() == pytest.approx(0.75, abs=0.01)
    assert {photo.name for photo in read_dataset("domains", tmp_path / "set").photos} == {
        *("plain/bike/0000.png", "quarter/bike/0001.png", "plain/mug/0002.png", "quarter/mug/0003.png")
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrong_folder_gets_the_expected_layout(layout, tmp_path):
    touch(tmp_path, "holiday/beach.jpg", "notes.txt")
    for root in (tmp_path, tmp_path / "nowhere", tmp_path / "notes.txt"):
        with pytest.raises(PatchvoteError, match=f"does not have the layout '{layout}': .* Expected: DIR/"):
            read_dataset(layout, root)


@pytest.mark.data
def test_the_research_image_sets_are_whole_and_their_splits_are_those_of_the_records(data):
    scenes = read_dataset("scene15", data / "scene15")
    assert len(scenes.photos) == 4485
    kept = read_draws(Path(__file__).parent.parent / "results" / "scene15")
    for index in range(5):
        drawn = make_split(scenes, Protocol.load("scene15").settings[0], None, index)
        assert drawn == kept[Draw("random", None, index + 1)]
    photos = read_dataset("office-caltech", data / "office_caltech").photos
    count = {name: sum(photo.name.startswith(name) for photo in photos) for name in ("amazon", "caltech", "dslr")}
    assert count == {"amazon": 958, "caltech": 1123, "dslr": 157}
