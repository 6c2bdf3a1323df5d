"""Adaptation in protocols: any voter of the registry, at any resolution."""

from __future__ import annotations

import numpy as np
import pytest
from patchvote.protocols.voters import make_voter

from patchvote import Bags, PatchvoteError
from patchvote.voters import registry
from test_pooled import two_scales

GAINS = np.array([1.0, 5.0, 0.5, 1.0, 3.0, 1.0], np.float32)  # another camera


def photos(count: int, seed: int, gains: np.ndarray | float = 1.0) -> tuple[Bags, np.ndarray]:
    """Images of three classes: a whole image, 3 cells of a first scale and 8 of a second."""
    rng = np.random.default_rng(seed)
    numbers = np.arange(count) % 3
    level = np.tile([0, 1, 1, 1, *[2] * 8], count).astype(np.int16)
    values = rng.random((12 * count, 6)) + 0.6 * np.eye(6)[np.repeat(numbers, 12)]
    bags = Bags((values * gains).astype(np.float32), np.arange(count + 1) * 12, None, level)
    return bags, np.array(["land", "sea", "sky"])[numbers]


@pytest.mark.parametrize("kind", registry.OWN)
@pytest.mark.parametrize("calibrated", [False, True])
def test_every_voter_of_the_registry_can_be_adapted(kind, calibrated):
    source, labels = photos(60, 1)
    target, expected = photos(60, 2, GAINS)
    plain = make_voter(kind).fit(source, labels)
    voter = make_voter(f"adapted(voter={kind})", calibrated=calibrated)
    adapted = voter.fit(source, labels, [target], [None] * len(target))
    before, after = (float(np.mean(one.predict(target) == expected)) for one in (plain, adapted))
    if adapted.refusal_ is None:
        assert after > max(before, 0.8)
    calibrates = calibrated or kind == "jury"  # without calibration there are no safeguards, and so no refusal
    assert adapted.refusal_ is None or calibrates
    assert (adapted.rejection_threshold_ > 0) == calibrates
    trains = "bag-svm" if kind == "moment-svm" else kind  # which hands over to it
    assert type(adapted.adapted_.voter_) is registry.voter_class(trains)
    np.testing.assert_allclose(adapted.predict_proba(target).sum(axis=1), 1)


def test_an_adapted_neighbour_voter_has_the_settings_of_protocols():
    assert make_voter("adapted(voter=nbnn)")._voter().get_params() == make_voter("nbnn").get_params()


def test_each_scale_has_the_vector_of_the_pooled_image():
    bags, labels = two_scales()
    adapted = make_voter("adapted(scales=each)").fit(bags, labels, [bags], [None] * 12)
    assert adapted.predict(bags).tolist() == labels.tolist()
    roots = np.sqrt(adapted._seen(bags).means())
    pooled = make_voter("pooled-svm(scales=each)").fit(bags, labels)._vectors(bags)
    np.testing.assert_allclose(roots, pooled, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adapted(voter=snbnl,scales=each)", "concatenates the means of the scales, and snbnl votes with every desc"),
        ("adapted(voter=snbml)", "there is no voter 'snbml'. Did you mean 'snbnl'"),
        ("adapted(voter=BagSVM)", "voter of adapted is named 'bag-svm', got 'BagSVM'"),
        ("adapted(rounds=3)", "rounds must be 0, 1 or 2, got 3"),
        ("adapted(scales=second)", "scales must be one of bag, whole, first, last, each, got 'second'"),
    ],
)
def test_what_cannot_be_adapted_is_refused_in_words(name, words):
    with pytest.raises(PatchvoteError, match=words):
        make_voter(name)


def test_all_descriptors_of_patches_pooled_are_the_vector_of_the_bag():
    bags, labels = photos(30, 1)
    expected = []
    for bag in bags:
        root = np.sqrt(bag.values.mean(axis=0, dtype=np.float64))
        expected.append(root / np.linalg.norm(root))
    voter = make_voter("pooled-svm(scales=all)").fit(bags, labels)
    np.testing.assert_allclose(voter._vectors(bags), expected, rtol=1e-5)
    assert np.mean(voter.predict(bags) == labels) > 0.9
