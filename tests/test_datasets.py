"""Image sets are read in the layout in which they are published, and wrong folders are told apart from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.datasets import LAYOUTS, read_dataset
from patchvote.errors import PatchvoteError

SCENES = ["bedroom", "CALsuburb", "industrial", "kitchen", "livingroom", "MITcoast", "MITforest", "MIThighway"]
SCENES += ["MITinsidecity", "MITmountain", "MITopencountry", "MITstreet", "MITtallbuilding", "PARoffice", "store"]
SPORTS = ["RockClimbing", "badminton", "bocce", "croquet", "polo", "rowing", "sailing", "snowboarding"]
OBJECTS = ["backpack", "bike", "calculator", "headphones", "keyboard", "laptop", "monitor", "mouse", "mug", "projector"]


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def lists_of(data: Path, name: str) -> list[str]:
    return (data / "splits" / name).read_text().splitlines()


def test_scene_15_is_read_under_every_published_name(tmp_path):
    first = touch(tmp_path / "a", *(f"{label}/image_{n:04d}.jpg" for label in SCENES for n in (1, 2)))
    second = touch(tmp_path / "b", *(f"{number:02d}/1.jpg" for number in range(15)))
    photos = read_dataset("scene15", first).photos
    assert len(photos) == 30
    assert photos[0].name == "bedroom/image_0001.jpg"
    assert {photo.label for photo in photos} == {photo.label for photo in read_dataset("scene15", second).photos}
    assert "coast" in {photo.label for photo in photos}


def test_sports_8_is_read_from_the_published_folder_or_from_its_classes(tmp_path):
    names = [f"{label}/{label}_{n}.jpg" for label in SPORTS for n in range(3)]
    touch(tmp_path / "event_dataset" / "event_img", *names)
    for root in (tmp_path, tmp_path / "event_dataset" / "event_img"):
        assert [photo.name for photo in read_dataset("sports8", root).photos] == sorted(names)


def test_office_caltech_names_photos_by_domain_and_class(tmp_path):
    touch(tmp_path, *(f"{domain}/images/back_pack/1.jpg" for domain in ("amazon", "dslr", "webcam")))
    touch(
        tmp_path,
        *(f"{domain}/images/{label}/1.jpg" for domain in ("amazon", "dslr", "webcam") for label in OBJECTS[1:]),
    )
    touch(tmp_path, "caltech10/003.backpack/1.jpg", *(f"caltech10/{label}/1.jpg" for label in OBJECTS[1:]))
    photos = read_dataset("office-caltech", tmp_path).photos
    assert len(photos) == 40
    assert {photo.name for photo in photos if photo.label == "backpack"} == {
        f"{domain}/backpack/1.jpg" for domain in ("amazon", "caltech", "dslr", "webcam")
    }


@pytest.mark.data
def test_mit_67_is_read_with_its_official_lists(tmp_path, data):
    train, test = lists_of(data, "mit67_TrainImages.txt"), lists_of(data, "mit67_TestImages.txt")
    touch(tmp_path / "Images", *train, *test, "kitchen/not_in_a_list.jpg")
    for name in ("TrainImages.txt", "TestImages.txt"):
        (tmp_path / name).write_text((data / "splits" / f"mit67_{name}").read_text())
    dataset = read_dataset("mit67", tmp_path)
    assert len(dataset.photos) == 6701
    assert [len(part) for part in dataset.lists[0]] == [5360, 1340]
    assert len({photo.label for photo in dataset.photos}) == 67
    (tmp_path / "Images" / test[0]).unlink()
    with pytest.raises(PatchvoteError, match=f"1 of 6,700 photos that its lists name are missing, such as {test[0]}"):
        read_dataset("mit67", tmp_path)


@pytest.mark.data
def test_sun_397_is_read_with_its_official_partitions(tmp_path, data):
    names = [lists_of(data, f"sun397_{part}_01.txt") for part in ("Training", "Testing")]
    touch(tmp_path / "SUN397", *(name.lstrip("/") for part in names for name in part))
    (tmp_path / "Partitions").mkdir()
    for name in ("ClassName.txt", "Training_01.txt", "Testing_01.txt"):
        (tmp_path / "Partitions" / name).write_text((data / "splits" / f"sun397_{name}").read_text())
    dataset = read_dataset("sun397", tmp_path)
    assert len(dataset.lists) == 1
    assert [len(part) for part in dataset.lists[0]] == [19850, 19850]
    assert len({photo.label for photo in dataset.photos}) == 397
    assert "a/apartment_building/outdoor" in {photo.label for photo in dataset.photos}


def test_a_small_tree_in_the_layout_of_mit_67_needs_no_research_data(tmp_path):
    labels = [f"room_{number:02d}" for number in range(67)]
    touch(tmp_path / "Images", *(f"{label}/{n}.jpg" for label in labels for n in (1, 2, 3)))
    (tmp_path / "TrainImages.txt").write_text("".join(f"{label}/1.jpg\n{label}/2.jpg\n" for label in labels))
    (tmp_path / "TestImages.txt").write_text("".join(f"{label}/3.jpg\r\n" for label in labels))
    dataset = read_dataset("mit67", tmp_path)
    assert [len(part) for part in dataset.lists[0]] == [134, 67]
    assert dataset.lists[0][1][0] == "room_00/3.jpg"


def test_a_small_tree_in_the_layout_of_sun_397_needs_no_research_data(tmp_path):
    labels = [f"{'abc'[number % 3]}/place_{number:03d}" for number in range(396)] + ["a/house/outdoor"]
    touch(tmp_path, *(f"{label}/sun_{n}.jpg" for label in labels for n in (1, 2)))
    (tmp_path / "ClassName.txt").write_text("".join(f"/{label}\n" for label in labels))
    for number in ("01", "02"):
        (tmp_path / f"Training_{number}.txt").write_text("".join(f"/{label}/sun_1.jpg\n" for label in labels))
        (tmp_path / f"Testing_{number}.txt").write_text("".join(f"/{label}/sun_2.jpg\n" for label in labels))
    dataset = read_dataset("sun397", tmp_path)
    assert len(dataset.lists) == 2
    assert len(dataset.photos) == 794


def small_sun_397(root: Path) -> list[str]:
    """Write two partitions of one training and one test photo per class, and return the classes."""
    labels = [f"{'abc'[number % 3]}/place_{number:03d}" for number in range(397)]
    touch(root, *(f"{label}/sun_{n}.jpg" for label in labels for n in (1, 2)))
    (root / "ClassName.txt").write_text("".join(f"/{label}\n" for label in labels))
    for number in ("01", "02"):
        for n, part in ((1, "Training"), (2, "Testing")):
            (root / f"{part}_{number}.txt").write_text("".join(f"/{label}/sun_{n}.jpg\n" for label in labels))
    return labels


def test_a_copy_of_sun_397_may_end_after_any_whole_partition_but_the_first_is_needed(tmp_path):
    small_sun_397(tmp_path)
    (tmp_path / "Testing_02.txt").unlink()
    assert len(read_dataset("sun397", tmp_path).lists) == 1
    (tmp_path / "Testing_01.txt").unlink()
    with pytest.raises(PatchvoteError, match="the list Testing_01.txt is missing"):
        read_dataset("sun397", tmp_path)


def test_lists_of_sun_397_that_do_not_fit_its_photos_or_classes_are_named(tmp_path):
    labels = small_sun_397(tmp_path)
    (tmp_path / labels[5] / "sun_2.jpg").unlink()
    with pytest.raises(PatchvoteError, match=f"1 of 794 photos that its lists name are missing, such as {labels[5]}/"):
        read_dataset("sun397", tmp_path)


def test_a_class_that_one_domain_lacks_is_named_with_the_domain(tmp_path):
    domains = ("amazon", "caltech10", "dslr", "webcam")
    touch(tmp_path, *(f"{domain}/{label}/1.jpg" for domain in domains for label in OBJECTS))
    (tmp_path / "dslr" / "mug" / "1.jpg").unlink()
    with pytest.raises(PatchvoteError, match="in dslr, the folder mug has no photos"):
        read_dataset("office-caltech", tmp_path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrong_folder_gets_the_expected_layout(layout, tmp_path):
    touch(tmp_path, "holiday/beach.jpg", "notes.txt")
    for root in (tmp_path, tmp_path / "nowhere", tmp_path / "notes.txt"):
        with pytest.raises(PatchvoteError, match=f"does not have the layout '{layout}': .* Expected: DIR/"):
            read_dataset(layout, root)


def test_a_missing_class_is_named(tmp_path):
    touch(tmp_path, *(f"{label}/1.jpg" for label in SPORTS[1:]))
    with pytest.raises(PatchvoteError, match="no folder for the class RockClimbing. It has: badminton, bocce"):
        read_dataset("sports8", tmp_path)
    touch(tmp_path, "RockClimbing/readme.txt")
    with pytest.raises(PatchvoteError, match="the folder RockClimbing has no photos"):
        read_dataset("sports8", tmp_path)


def test_an_unknown_layout_is_answered_with_the_known_ones():
    with pytest.raises(PatchvoteError, match="no layout 'scene51' of an image set. Did you mean 'scene15'"):
        read_dataset("scene51", Path())


@pytest.mark.data
def test_the_research_image_sets_are_whole(data):
    assert len(read_dataset("scene15", data / "scene15").photos) == 4485
    photos = read_dataset("office-caltech", data / "office_caltech").photos
    count = {
        domain: sum(photo.name.startswith(domain) for photo in photos)
        for domain in ("amazon", "caltech", "dslr", "webcam")
    }
    assert count == {"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}
