"""The cache of `fit` keeps what the voter learns from, and no more; what another voter needs is extracted."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.quick_network import QuickNetwork
from patchvote import Bags, BagSVM, Dense, Extractor, ImageClassifier, MomentSVM, Recipe, Store, StoreError, fill
from patchvote.bags import cached_stores
from patchvote.bags.cached_stores import CachedStores
from patchvote.bags.fill import _Filling
from patchvote.bags.keep import ALL, Mean
from patchvote.models.check.check import check_photos
from patchvote.models.needs import learned_from
from patchvote.photos.find import find_photos
from patchvote.utils.temporary import passing_folder
from patchvote.voters.adapted import Adapted
from patchvote.voters.base import Candidate
from patchvote.voters.moment_features import moments
from patchvote.voters.moment_keep import KeptMoments, MomentCondenser, kept_in
from patchvote.voters.registry import OWN, voter_class

RECIPE = Recipe("quick", Dense(sides=(128,)))
COLOURS = {"red": (200, 40, 40), "blue": (40, 40, 200), "grey": (120, 60, 120)}


def write_photos(folder: Path, count: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    for label, colour in COLOURS.items():
        (folder / label).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            pixels = rng.normal(colour, 70, (128, 128, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{seed}-{index}.png")
    for index in range(2):  # mistakes to be made
        one, other = (folder / label / f"{seed}-{index}.png" for label in ("red", "blue"))
        photo = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(photo)
    return folder


@pytest.fixture
def photos(tmp_path) -> Path:
    return write_photos(tmp_path / "photos", 8)


@pytest.fixture
def network() -> QuickNetwork:
    return QuickNetwork(times=8)


@pytest.fixture(autouse=True)
def _settled(monkeypatch):
    monkeypatch.setattr("patchvote.bags.storing._SETTLED", 0)  # the times of files that were just written count


def fitted(photos, cache, network=None, labels=None, **more) -> ImageClassifier:
    more = {"budget": 0, **more}
    classifier = ImageClassifier(RECIPE, cache=cache, backbone=network or QuickNetwork(times=8), **more)
    return classifier.fit(photos, labels)


def arrays(classifier: ImageClassifier) -> dict[str, np.ndarray]:
    return classifier.model.scorer.arrays


def same_arrays(one: ImageClassifier, other: ImageClassifier) -> None:
    assert arrays(one).keys() == arrays(other).keys()
    for name, array in arrays(one).items():
        np.testing.assert_array_equal(array, arrays(other)[name], err_msg=name)


def stores(cache: Path) -> dict[str, str]:
    """What each store of a cache keeps, in one word, by its folder."""
    return {path.name: Store.open(path).keep.partition(" ")[0] for path in sorted(cache.iterdir())}


def whole_store(photos: Path, folder: Path) -> Store:
    fill(folder, photos, Extractor(RECIPE, backbone=QuickNetwork(times=8)))
    return Store.open(folder)


# --- what is kept ---------------------------------------------------------------------------------------------------


def test_linear_votes_keep_means_and_are_those_of_whole_bags_bit_for_bit(photos, tmp_path):
    small = fitted(photos, tmp_path / "small", voter="bag-svm")
    assert list(stores(tmp_path / "small").values()) == ["mean"]
    whole = whole_store(photos, tmp_path / "whole")
    expected = BagSVM(arrays_c(small), class_weight="balanced", calibration=0).fit(whole)
    np.testing.assert_array_equal(arrays(small)["linear"], expected.linear_)
    np.testing.assert_array_equal(arrays(small)["vectors"], expected.vectors_)
    assert small.model.descriptors == dict.fromkeys(COLOURS, 8 * 17)


def arrays_c(classifier: ImageClassifier) -> float:
    return classifier.model.scorer.settings["C"]


def test_the_default_voter_keeps_moments_and_its_model_is_that_of_whole_bags(photos, tmp_path):
    small = fitted(photos, tmp_path / "small")
    assert list(stores(tmp_path / "small").values()) == ["moments"]
    whole = whole_store(photos, tmp_path / "whole")
    expected = MomentSVM(class_weight="balanced", calibration=0).fit(whole)
    for name in ("directions", "offset", "vectors", "means", "linear", "bias"):
        np.testing.assert_array_equal(arrays(small)[name], getattr(expected, f"{name}_"), err_msg=name)
    assert small.model.descriptors == dict.fromkeys(COLOURS, 8 * 17)


def test_voters_that_need_descriptors_keep_them_all(photos, tmp_path):
    fitted(photos, tmp_path / "cache", voter="nbnn")
    assert list(stores(tmp_path / "cache").values()) == ["all"]


def test_moments_in_a_store_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    bag = Bags(rng.gamma(1, 1, (30, 7)).astype(np.float16), np.array([0, 30]), np.sort(rng.random((30, 4), np.float32)))
    directions, offset = rng.normal(size=(7, 5)).astype(np.float32), rng.normal(size=7).astype(np.float32)
    keep = KeptMoments(0.5, directions, offset, 5)
    stats, means = keep.read(keep.of(bag, ""))
    np.testing.assert_array_equal(stats, moments(bag, 0.5, directions, offset))
    np.testing.assert_array_equal(means, bag.means())


def test_moments_along_other_directions_are_not_equal():
    directions, offset = np.eye(3, 2, dtype=np.float32), np.zeros(3, np.float32)
    keep = KeptMoments(0.5, directions, offset, 2)
    same, other = KeptMoments(0.5, directions.copy(), offset, 2), KeptMoments(0.5, directions[::-1], offset, 2)
    assert keep == same
    assert keep not in (other, KeptMoments(1.0, directions, offset, 2), Mean(), ALL)
    assert len({keep, same, other}) == 2


def test_a_store_of_default_bags_is_twenty_times_smaller_and_one_of_means_a_hundred_times():
    rng = np.random.default_rng(0)
    bag = Bags.of([rng.gamma(1, 1, (246, 1280)).astype(np.float16)])  # of a square photo
    keep = KeptMoments(0.5, rng.normal(size=(1280, 128)).astype(np.float32), np.zeros(1280, np.float32), 128)
    small = keep.of(bag, "").astype(np.float16)
    assert small.values.nbytes == 12 * 1280 * 2 < bag.values.nbytes / 20
    assert Mean().of(bag, "").values.nbytes == 5120 < bag.values.nbytes / 100


@pytest.mark.parametrize("kind", OWN)
def test_what_is_told_by_name_is_what_the_voters_say(kind):
    need = learned_from(kind, kind, 0)
    assert all(candidate.voter.needs() == need for candidate in voter_class(kind).candidates(0))


def test_candidates_that_need_different_things_get_whole_bags(monkeypatch):
    def both(cls, seed):
        return [Candidate("one", BagSVM()), Candidate("other", MomentSVM())]

    monkeypatch.setattr(BagSVM, "candidates", classmethod(both))
    monkeypatch.setattr("patchvote.models.needs._OF_OWN", {})
    monkeypatch.setattr("patchvote.models.needs.OWN", ())
    assert learned_from("bag-svm", "bag-svm", 0) == ALL
    assert learned_from(BagSVM(), "bag-svm", 0) == Mean()
    assert learned_from(MomentSVM(pairs=7), "moment-svm", 0) == MomentCondenser(7, "auto")
    assert learned_from(Adapted(MomentSVM()), "moment-svm", 0) == ALL
    assert learned_from(Adapted(), "bag-svm", 0) == Mean()


# --- the second fit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("voter", ["auto", "bag-svm", "snbnl"])
def test_a_second_fit_gives_the_same_model_and_asks_the_network_for_mistakes_only(photos, tmp_path, network, voter):
    first = fitted(photos, tmp_path / "cache", voter=voter, budget=600)  # nothing is cut short
    again = fitted(photos, tmp_path / "cache", network, voter=voter, budget=600)
    assert (again.filled.extracted, again.filled.kept) == (0, 24)
    same_arrays(again, first)
    assert (again.model.temperature, again.model.threshold) == (first.model.temperature, first.model.threshold)
    assert network.calls == (0 if voter == "snbnl" else len(again._mistakes))


def test_the_evidence_of_mistakes_is_that_of_whole_bags(photos, tmp_path):
    first, again = fitted(photos, tmp_path / "cache"), fitted(photos, tmp_path / "cache")
    assert len(first._mistakes) > 0
    for one, other in zip(first._mistakes, again._mistakes, strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.votes, other.votes)
        np.testing.assert_array_equal(one.boxes, other.boxes)
        assert len(one.votes) == 17
        assert one.decision.argmax() == one.probability.argmax()


def test_a_mistake_whose_photo_has_changed_since_is_left_out(photos, tmp_path, monkeypatch):
    expected = fitted(photos, tmp_path / "cache")
    gone, *others = [evidence.name for evidence in expected._mistakes]
    assert others
    whole = CachedStores._whole

    def change_first(self, entries):
        Image.new("RGB", (128, 128)).save(photos / gone)
        return whole(self, entries)

    monkeypatch.setattr(CachedStores, "_whole", change_first)
    again = fitted(photos, tmp_path / "cache")
    assert [evidence.name for evidence in again._mistakes] == others


def test_a_voter_that_needs_more_has_it_extracted_and_the_progress_says_why(photos, tmp_path, network):
    told: list[tuple[str, int, int]] = []

    def fit(voter: str) -> ImageClassifier:
        told.clear()
        classifier = ImageClassifier(RECIPE, cache=tmp_path / "cache", backbone=network, voter=voter, budget=0)
        return classifier.fit(photos, progress=lambda *what: told.append(what))

    assert fit("bag-svm").filled.extracted == 24
    assert {what for what, _, _ in told} == {"extract", "choose"}
    moments_after_means = fit("auto")
    assert (moments_after_means.filled.extracted, moments_after_means.filled.kept) == (24, 0)
    assert ("extract (the cache keeps the mean of each photo, and this takes more)", 24, 24) in told
    whole_after_both = fit("nbnn")
    assert (whole_after_both.filled.extracted, whole_after_both.filled.kept) == (24, 0)
    assert any(what.startswith("extract (the cache keeps ") for what, _, _ in told)
    assert sorted(stores(tmp_path / "cache").values()) == ["all", "mean", "moments"]
    for voter in ("bag-svm", "auto", "nbnn", "snbnl"):
        assert fit(voter).filled.extracted == 0, voter
        assert {what for what, _, _ in told} == {"extract", "choose"}


@pytest.mark.parametrize("voter", ["auto", "bag-svm"])
def test_a_voter_that_needs_less_gets_it_from_the_bags_that_are_there(photos, tmp_path, network, voter):
    fitted(photos, tmp_path / "cache", voter="nbnn")
    less = fitted(photos, tmp_path / "cache", network, voter=voter)
    assert (less.filled.extracted, less.filled.kept, network.calls) == (0, 24, 0)  # evidence, too, from whole bags
    same_arrays(less, fitted(photos, tmp_path / "fresh", voter=voter))


def test_means_are_taken_from_moments_up_to_their_rounding(photos, tmp_path):
    fitted(photos, tmp_path / "cache")
    means = fitted(photos, tmp_path / "cache", voter="bag-svm")
    assert (means.filled.extracted, means.filled.kept) == (0, 24)
    fresh = fitted(photos, tmp_path / "fresh", voter="bag-svm")
    np.testing.assert_allclose(arrays(means)["vectors"], arrays(fresh)["vectors"], rtol=1e-3)
    assert means.model.descriptors == fresh.model.descriptors


def test_images_in_memory_are_lent_by_their_content(tmp_path, network):
    rng = np.random.default_rng(0)
    images = [rng.normal(colour, 60, (128, 128, 3)).clip(0, 255).astype(np.uint8) for colour in COLOURS.values()] * 1
    images += [image[::-1].copy() for image in images]
    labels = [*COLOURS, *COLOURS]
    fitted(images, tmp_path / "cache", labels=labels, voter="nbnn")
    for voter in ("auto", "bag-svm"):
        assert fitted(images, tmp_path / "cache", network, labels, voter=voter).filled.extracted == 0
    assert network.calls == 0


def test_a_photo_that_changed_is_not_lent(photos, tmp_path):
    fitted(photos, tmp_path / "cache", voter="nbnn")
    pixels = np.random.default_rng(9).integers(0, 255, (128, 128, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(photos / "red" / "0-0.png")
    assert fitted(photos, tmp_path / "cache", voter="bag-svm").filled.extracted == 1
    assert fitted(photos, tmp_path / "cache", voter="auto").filled.extracted == 1


def test_a_damaged_bag_is_not_lent_but_extracted(photos, tmp_path):
    fitted(photos, tmp_path / "cache", voter="nbnn")
    (path,) = tmp_path.joinpath("cache").rglob("*.safetensors")
    data = bytearray(path.read_bytes())
    data[8 + int.from_bytes(data[:8], "little") + 21] ^= 1
    path.write_bytes(data)
    less = fitted(photos, tmp_path / "cache", voter="bag-svm")
    assert (less.filled.extracted, less.filled.kept) == (1, 23)
    same_arrays(less, fitted(photos, tmp_path / "fresh", voter="bag-svm"))


def test_a_bag_that_is_damaged_in_both_stores_is_extracted(photos, tmp_path, monkeypatch):
    for voter in ("nbnn", "bag-svm"):
        fitted(photos, tmp_path / "cache", voter=voter)
    first = photos / "blue" / "0-0.png"
    for folder in (tmp_path / "cache").iterdir():
        damage(folder, first.resolve().as_posix())
    shutil.copy(first, photos / "blue" / "copy.png")  # so that its bag is read
    lost, rounds = _Filling._lost, itertools.count()

    def counted(self):
        assert next(rounds) < 20, "it does not end"
        return lost(self)

    monkeypatch.setattr(_Filling, "_lost", counted)
    mended = fitted(photos, tmp_path / "cache", voter="bag-svm")
    assert (mended.filled.extracted + mended.filled.reused, mended.filled.kept) == (2, 23)
    same_arrays(mended, fitted(photos, tmp_path / "fresh", voter="bag-svm"))


def damage(folder: Path, name: str) -> None:
    """Flip a bit of the bag of a photo."""
    store = Store.open(folder)
    values = store.load([store.names.index(name)], store.dtype)[0].values.tobytes()
    (path,) = folder.glob("*.safetensors")
    data = bytearray(path.read_bytes())
    data[data.index(values)] ^= 1
    path.write_bytes(data)


# --- the directions of a collection ---------------------------------------------------------------------------------


def directions(cache: Path) -> list[np.ndarray]:
    found = [Store.open(path) for path in sorted(cache.iterdir())]
    return [kept_in(store).directions for store in found if store.keep.startswith("moments")]


def test_directions_stay_while_a_collection_grows_and_only_new_photos_are_extracted(photos, tmp_path):
    first = fitted(photos, tmp_path / "cache")
    write_photos(photos, 8, seed=1)
    grown = fitted(photos, tmp_path / "cache")
    assert (grown.filled.extracted, grown.filled.kept) == (24, 24)
    np.testing.assert_array_equal(arrays(grown)["directions"], arrays(first)["directions"])
    assert len(directions(tmp_path / "cache")) == 1


def test_a_collection_that_grew_to_more_than_twice_its_size_gets_directions_of_its_own(photos, tmp_path):
    fitted(photos, tmp_path / "cache")
    write_photos(photos, 9, seed=1)
    grown = fitted(photos, tmp_path / "cache")
    assert (grown.filled.extracted, grown.filled.kept) == (51, 0)
    same_arrays(grown, fitted(photos, tmp_path / "fresh"))
    assert len(directions(tmp_path / "cache")) == 2
    assert fitted(photos, tmp_path / "cache").filled.extracted == 0


def test_directions_of_many_photos_stay_however_much_a_collection_grows(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(cached_stores, "SAMPLE", 20)
    first = fitted(photos, tmp_path / "cache")
    assert first.filled.extracted == 24
    write_photos(photos, 20, seed=1)
    grown = fitted(photos, tmp_path / "cache")
    assert (grown.filled.extracted, grown.filled.kept) == (60, 24)
    np.testing.assert_array_equal(arrays(grown)["directions"], arrays(first)["directions"])


def test_a_sample_of_photos_gives_the_directions_of_all_and_is_removed(photos, tmp_path, network, monkeypatch):
    monkeypatch.setattr(cached_stores, "SAMPLE", 10)
    told = []
    classifier = ImageClassifier(RECIPE, cache=tmp_path / "cache", backbone=network, budget=0)
    classifier.fit(photos, progress=lambda *what: told.append(what))
    assert (classifier.filled.extracted, classifier.filled.kept) == (24, 0)
    extracted = [(done, total) for what, done, total in told if what == "extract"]
    assert extracted == sorted(extracted)  # one count over all photos, whatever part of them is the sample
    assert {total for _, total in extracted} == {24}
    assert list(stores(tmp_path / "cache").values()) == ["moments"]
    found = find_photos(photos)
    chosen = np.sort(np.random.default_rng(0).permutation(24)[:10])
    bags = Extractor(RECIPE, backbone=network)([found[number].source for number in chosen]).astype(np.float16)
    voter = MomentSVM(class_weight="balanced").fit(bags, [found[number].label for number in chosen])
    np.testing.assert_array_equal(arrays(classifier)["directions"], voter.directions_)


def test_whether_the_seed_of_a_fit_is_another_its_moments_are_those_of_the_cache(photos, tmp_path):
    fitted(photos, tmp_path / "cache")
    other = fitted(photos, tmp_path / "cache", seed=5)
    assert other.filled.extracted == 0
    same_arrays(other, fitted(photos, tmp_path / "fresh", seed=5))


def test_other_settings_of_products_have_moments_of_their_own(photos, tmp_path):
    fitted(photos, tmp_path / "cache")
    assert fitted(photos, tmp_path / "cache", voter=MomentSVM(3.0, layout=0.1)).filled.extracted == 0
    assert fitted(photos, tmp_path / "cache", voter=MomentSVM(pairs=2)).filled.extracted == 24
    assert fitted(photos, tmp_path / "cache", voter=MomentSVM(power=1.0)).filled.extracted == 24
    assert sorted(len(found.T) for found in directions(tmp_path / "cache")) == [2, 6, 6]
    assert fitted(photos, tmp_path / "cache").filled.extracted == 0


def test_moments_of_an_exponent_that_was_asked_for_are_not_those_of_the_default(photos, tmp_path):
    fitted(photos, tmp_path / "cache", voter=MomentSVM(power=1.0))
    default = fitted(photos, tmp_path / "cache")
    assert default.filled.extracted == 24
    same_arrays(default, fitted(photos, tmp_path / "fresh"))
    assert fitted(photos, tmp_path / "cache").filled.extracted == 0


def test_moments_of_signed_features_are_used_again(photos, tmp_path):
    class Signed(QuickNetwork):
        def __call__(self, images):
            return super().__call__(images) - 0.5

    first = fitted(photos, tmp_path / "cache", Signed(times=8))
    assert first.model.scorer.power == 1
    again = fitted(photos, tmp_path / "cache", Signed(times=8))
    assert again.filled.extracted == 0
    same_arrays(again, first)


def test_an_exponent_of_many_digits_is_that_of_the_moments_in_the_cache(photos, tmp_path):
    voter = MomentSVM(power=1 / 3, pairs=2)
    assert fitted(photos, tmp_path / "cache", voter=voter).model.scorer.power == 1 / 3
    assert fitted(photos, tmp_path / "cache", voter=voter).filled.extracted == 0


def test_an_unreadable_sample_is_no_reason_to_give_up(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(cached_stores, "SAMPLE", 2)
    found = find_photos(photos)
    for number in np.random.default_rng(0).permutation(24)[:2]:
        found[number].source.write_text("no photo")
    classifier = fitted(photos, tmp_path / "cache")
    assert (len(classifier.skipped), classifier.filled.extracted) == (2, 22)


def test_a_collection_none_of_which_can_be_read_says_so(photos, tmp_path):
    for path in photos.rglob("*.png"):
        path.write_text("no photo")
    with pytest.raises(StoreError, match="not one of the 24 photos can be read"):
        fitted(photos, tmp_path / "cache")


def test_an_interrupted_sample_is_continued(photos, tmp_path, network):
    class Interrupting(QuickNetwork):
        def __call__(self, images):
            if self.calls >= 10:
                raise KeyboardInterrupt
            return super().__call__(images)

    with pytest.raises(KeyboardInterrupt):
        fitted(photos, tmp_path / "cache", Interrupting(times=8))
    (folder,) = (tmp_path / "cache").iterdir()
    assert folder.name.endswith("-sample")
    kept = len(Store.open(folder))
    assert 0 < kept < 24
    again = fitted(photos, tmp_path / "cache", network)
    assert (again.filled.extracted, again.filled.kept) == (24 - kept, kept)
    same_arrays(again, fitted(photos, tmp_path / "fresh"))
    assert list(stores(tmp_path / "cache").values()) == ["moments"]


def test_moments_that_do_not_fit_into_float16_are_kept_in_float32(photos, tmp_path):
    class Bright(QuickNetwork):
        def __call__(self, images):
            return 3e4 * super().__call__(images)

    bright = fitted(photos, tmp_path / "cache", Bright(times=8))
    (folder,) = (tmp_path / "cache").iterdir()
    assert Store.open(folder).summary()["dtype"] == ["float32"]
    same_arrays(fitted(photos, tmp_path / "cache", Bright(times=8)), bright)
    fill(tmp_path / "whole", photos, Extractor(RECIPE, backbone=Bright(times=8)))
    expected = MomentSVM(class_weight="balanced", calibration=0).fit(Store.open(tmp_path / "whole"))
    np.testing.assert_array_equal(arrays(bright)["linear"], expected.linear_)


def test_a_store_whose_basis_is_not_that_of_its_name_is_refused(photos, tmp_path):
    fitted(photos, tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    store, labels = Store.open(folder), np.repeat(sorted(COLOURS), 8)
    store.basis = store.basis + 1
    with pytest.raises(StoreError, match="says that it keeps moments, but not along which directions"):
        MomentSVM().fit(store, labels)
    store = Store.open(folder)
    with pytest.raises(ValueError, match="keeps moments for other settings of power or pairs"):
        MomentSVM(pairs=3).fit(store, labels)
    with pytest.raises(ValueError, match="keeps moments along other directions"):
        MomentSVM().fit(whole_store(write_photos(tmp_path / "other", 4, 7), tmp_path / "w")).predict(store)
    with pytest.raises(StoreError, match="keeps a summary of each photo, but BagSVM needs descriptors of its parts"):
        BagSVM().fit(store, labels)


# --- add, adapt, measure --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("voter", ["auto", "bag-svm", "nbnn"])
def test_photos_are_added_from_a_small_cache_as_from_whole_bags(photos, tmp_path, voter):
    more = write_photos(tmp_path / "more", 3, seed=4)
    fitted(photos, tmp_path / "cache", voter=voter).save(tmp_path / "m.patchvote")

    def load(cache: Path) -> ImageClassifier:
        return ImageClassifier.load(tmp_path / "m.patchvote", cache=cache, backbone=QuickNetwork(times=8))

    added = load(tmp_path / "cache").add(more)
    assert added.filled.extracted == 9
    kept = {"auto": "moments", "bag-svm": "mean", "nbnn": "all"}[voter]
    assert list(stores(tmp_path / "cache").values()) == [kept]  # beside the photos of `fit`
    again = load(tmp_path / "cache").add(more)
    assert again.filled.extracted == 0
    same_arrays(again, added)
    if voter == "auto":  # beside the slow way: the voter reads whole bags
        slow = MomentSVM.from_scorer(load(False).model.scorer, load(False).classes)
        slow.partial_fit(whole_store(more, tmp_path / "whole"))
        np.testing.assert_array_equal(arrays(added)["vectors"], slow.vectors_)
        np.testing.assert_array_equal(arrays(added)["linear"], slow.linear_)


def test_adapting_keeps_the_means_of_the_target(photos, tmp_path):
    target = write_photos(tmp_path / "target", 6, seed=3)
    adapted = fitted(photos, tmp_path / "cache")
    adapted.adapt(target, insist=True)
    assert sorted(stores(tmp_path / "cache").values()) == ["mean", "moments"]
    assert adapted.model.kind == "bag-svm"
    whole = fitted(photos, tmp_path / "cache")
    with whole._bags_of(find_photos(target), None, {"network": 0.0}) as store:
        whole._adapt_to(store, True)
    same_arrays(adapted, whole)


def test_moments_of_a_target_are_not_taken_for_its_descriptors(photos, tmp_path):
    whole = whole_store(photos, tmp_path / "whole")
    fitted(photos, tmp_path / "cache")
    (folder,) = (path for path in (tmp_path / "cache").iterdir() if "moments" in path.name)
    with pytest.raises(StoreError, match="keeps a summary of each photo, but Adapted needs descriptors"):
        Adapted(MomentSVM(pairs=2)).fit(whole, whole.labels, Store.open(folder))


def test_a_model_is_adapted_and_measured_with_whole_bags(photos, tmp_path):
    target = write_photos(tmp_path / "target", 6, seed=3)
    classifier = fitted(photos, tmp_path / "cache")
    scores = classifier.evaluate(target, adapt=True, insist=True)
    assert len(scores) == 18
    assert all(len(evidence.votes) == 17 for evidence in classifier._mistakes)


def test_a_check_keeps_what_a_later_fit_learns_from(photos, tmp_path, network):
    check_photos(photos, Extractor(RECIPE, backbone=network), cache=tmp_path / "cache")
    assert list(stores(tmp_path / "cache").values()) == ["moments"]
    assert fitted(photos, tmp_path / "cache", network).filled.extracted == 0


# --- several processes ----------------------------------------------------------------------------------------------


def test_two_runs_on_one_folder_share_the_work_and_leave_one_small_store(photos, tmp_path):
    expected, found = fitted(photos, tmp_path / "fresh"), []
    threads = [
        threading.Thread(target=lambda: found.append(fitted(photos, tmp_path / "cache", QuickNetwork(0.005, 8))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == 2
    for one in found:
        same_arrays(one, expected)
    assert list(stores(tmp_path / "cache").values()) == ["moments"]


def test_a_passing_folder_is_removed_by_the_last_who_uses_it_and_only_if_it_has_served(tmp_path):
    folder = tmp_path / "sample"
    with passing_folder(folder):
        (folder / "a").write_text("begun")
    assert (folder / "a").exists()  # such as after Ctrl-C
    with passing_folder(folder) as first:
        with passing_folder(folder) as second:
            second.append("done")
        assert folder.exists()  # the first still needs it
        first.append("done")
    assert not folder.exists()
    with contextlib.suppress(KeyboardInterrupt), passing_folder(folder):
        raise KeyboardInterrupt
    assert folder.exists()


def test_labels_belong_to_collections_and_not_to_the_cache(photos, tmp_path):
    fitted(photos, tmp_path / "cache", voter="nbnn")
    fitted(photos, tmp_path / "cache")
    folder = next(path for path in (tmp_path / "cache").iterdir() if "moments" in path.name)
    store = Store.open(folder)
    assert set(store.names) == {photo.source.resolve().as_posix() for photo in find_photos(photos)}
    assert set(store.labels) == {None}
    assert store.summary()["superseded"] == 0
    (photos / "red").rename(photos / "crimson")
    again = fitted(photos, tmp_path / "cache")
    assert (again.filled.extracted, again.classes) == (0, ("blue", "crimson", "grey"))
