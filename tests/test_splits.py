"""Splits are drawn as a protocol says, the same for everybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.datasets import Dataset, read_dataset
from experiments.protocol import Protocol, Setting
from experiments.results import Draw, read_draws
from experiments.splits import Split, make_split, straddling
from patchvote.errors import PatchvoteError
from patchvote.photos.find import Photo


def dataset(*domains: str, count: int = 30) -> Dataset:
    names = [f"{domain}/{label}/{n}.jpg" for domain in domains for label in ("cat", "dog") for n in range(count)]
    return Dataset([Photo(name, Path(name), name.split("/")[1]) for name in names])


def test_a_random_split_takes_so_many_of_each_class_and_never_one_twice():
    setting = Setting("random", "random", 3, train=10, test=5)
    splits = [make_split(dataset("a"), setting, None, index) for index in range(3)]
    for split in splits:
        assert sum("cat" in name for name in split.train) == sum("dog" in name for name in split.train) == 10
        assert sum("cat" in name for name in split.test) == 5
        assert not set(split.train) & set(split.test)
    assert splits[0] == make_split(dataset("a"), setting, None, 0)
    assert splits[0].train != splits[1].train


def test_a_split_does_not_depend_on_the_order_in_which_photos_are_found():
    setting = Setting("random", "random", 1, train=10, test=5)
    photos = dataset("a").photos
    assert make_split(Dataset(photos[::-1]), setting, None, 0) == make_split(Dataset(photos), setting, None, 0)


def test_too_few_photos_are_named():
    setting = Setting("random", "random", 1, train=28, test=5)
    with pytest.raises(
        PatchvoteError, match="the class cat has 30 photos, and a split takes 28 to train and 5 to test"
    ):
        make_split(dataset("a"), setting, None, 0)


def test_a_target_is_tested_whole_and_gives_its_labelled_photos_to_training():
    plain = Setting("unsupervised", "domains", 2, train=20, fewer={"b": 15})
    split = make_split(dataset("a", "b"), plain, "a-b", 0)
    assert len(split.train) == 2 * 15
    assert len(split.test) == 2 * 30
    assert len(make_split(dataset("a", "b"), plain, "b-a", 0).train) == 2 * 20
    half = Setting("semi-supervised", "domains", 2, train=20, fewer={"b": 15}, labelled=3)
    more = make_split(dataset("a", "b"), half, "a-b", 0)
    assert more.train[:30] == split.train
    assert [name.split("/")[0] for name in more.train[30:]] == ["b"] * 6
    assert not set(more.train) & set(more.test)
    assert len(more.test) == 2 * 27


def test_pairs_share_the_photos_of_their_source():
    setting = Setting("unsupervised", "domains", 1, train=20)
    three = dataset("a", "b", "c")
    assert make_split(three, setting, "a-b", 0).train == make_split(three, setting, "a-c", 0).train


def test_within_a_domain_some_photos_of_every_class_are_left_to_test():
    split = make_split(dataset("a", count=8), Setting("x", "domains", 1, train=20), "a-a", 0)
    assert (len(split.train), len(split.test)) == (10, 6)


def test_a_class_that_leaves_nothing_to_train_or_to_test_on_is_named():
    within = Setting("x", "domains", 1, train=20)
    with pytest.raises(PatchvoteError, match="class cat has 3 photos in a, which leaves none to train on. Is the"):
        make_split(dataset("a", count=3), within, "a-a", 0)
    half = Setting("x", "domains", 1, train=20, labelled=3)
    with pytest.raises(PatchvoteError, match="class cat has 3 photos in b, which leaves none to test on"):
        make_split(dataset("a", "b", count=3), half, "a-b", 0)


def test_a_class_of_fewer_photos_than_are_set_aside_is_named_as_well():
    with pytest.raises(PatchvoteError, match="class cat has 2 photos in a, which leaves none to train on"):
        make_split(dataset("a", count=2), Setting("x", "domains", 1, train=20), "a-a", 0)
    with pytest.raises(PatchvoteError, match="class cat has 2 photos in b, which leaves none to test on"):
        make_split(dataset("a", "b", count=2), Setting("x", "domains", 1, train=20, labelled=3), "a-b", 0)


def test_unknown_domains_and_missing_lists_are_named():
    with pytest.raises(PatchvoteError, match="'a-z' is not a pair of domains. Domains: a, b"):
        make_split(dataset("a", "b"), Setting("x", "domains", 1, train=2), "a-z", 0)
    with pytest.raises(PatchvoteError, match="split 2 .* needs a published list, .* has 1. Use --splits 1"):
        make_split(Dataset([], [(["a"], ["b"])]), Setting("official", "lists", 10), None, 1)


def test_copies_on_both_sides_of_a_split_are_found():
    split = Split(["a", "b"], ["c", "d", "e"])
    assert straddling(split, {"a": "1", "b": "2", "c": "1", "d": "3", "e": "1"}) == [("c", "a"), ("e", "a")]


@pytest.mark.data
def test_the_kept_splits_of_scene_15_are_those_that_are_drawn(data):
    kept = read_draws(Path(__file__).parent.parent / "results" / "scene15")
    if not kept:
        pytest.skip("the results are not here")
    photos, setting = read_dataset("scene15", data / "scene15"), Protocol.load("scene15").settings[0]
    for index in range(5):
        assert make_split(photos, setting, None, index) == kept[Draw("random", None, index + 1)]
