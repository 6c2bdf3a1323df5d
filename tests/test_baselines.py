"""What local votes are compared with: one vector per image, and MOP-CNN; their probabilities in protocols."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.baselines.mop import MopCnn
from experiments.baselines.pooled import MeanSvm, WholeImageSvm
from experiments.calibrated import fit_calibrated
from experiments.voters import make_voter
from patchvote import Bags
from patchvote.voters.labels import hold_out
from patchvote.voters.votes import fit_temperature, softmax, threshold_for


@pytest.mark.parametrize("soft", [1, 2, 3, 5])
def test_mop_pools_as_the_definition_says(soft):
    rng = np.random.default_rng(0)
    count, dim = 12, 6
    level = np.tile([0] + [1] * 20 + [2] * 10, count).astype(np.int16)
    offsets = np.arange(count + 1) * 31
    values = rng.normal(size=(31 * count, dim)).astype(np.float32)
    bags = Bags(values, offsets, None, level)
    mop = MopCnn(features=4, centres=3, soft=soft).fit(bags, np.arange(count) % 2)
    vectors = []
    for image in range(count):
        own, at = values[31 * image : 31 * image + 31], level[31 * image : 31 * image + 31]
        parts = [own[0] / np.linalg.norm(own[0])]
        for number in (1, 2):
            kept = mop._levels[number]
            vlad = np.zeros_like(kept.centres)
            for x in (own[at == number] - kept.mean) @ kept.axes:
                distances = ((kept.centres - x) ** 2).sum(axis=1)
                nearest = np.argsort(distances)[:soft]  # there are three centres
                weights = np.exp(-kept.beta * distances[nearest])
                for centre, weight in zip(nearest, weights / weights.sum(), strict=True):
                    vlad[centre] += weight * (x - kept.centres[centre])
            vlad = np.sign(vlad) * np.sqrt(np.abs(vlad))
            parts.append(vlad.ravel() / np.linalg.norm(vlad))
        vectors.append(np.concatenate(parts))
    expected = np.stack(vectors)
    got = mop._vectors(bags)
    np.testing.assert_allclose(got @ got.T, expected @ expected.T, atol=1e-4)  # equal but for a rotation


def test_the_weights_of_mops_centres_do_not_depend_on_the_scale_of_the_features():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 6)).astype(np.float32)
    bags = [Bags(values * scale, np.arange(11) * 40, None, np.ones(400, np.int16)) for scale in (1, 100)]
    shares = []
    for scaled in bags:
        level = MopCnn(features=4, centres=8).fit(scaled, np.arange(10) % 2)._levels[1]
        shares.append(np.sort(level._shares((scaled.values - level.mean) @ level.axes)[1], axis=1))
        nearest = ((((scaled.values - level.mean) @ level.axes)[:, None] - level.centres) ** 2).sum(axis=2).min(axis=1)
        assert level.beta == pytest.approx(1 / nearest.mean(), rel=1e-3)
    np.testing.assert_allclose(shares[0], shares[1], atol=1e-3)
    assert 0.3 < shares[0].max(axis=1).mean() < 0.9  # neither hard nor equal


def test_the_plain_name_of_mop_still_means_what_older_results_hold():
    assert (make_voter("mop").soft, make_voter("mop(soft=5)").soft, MopCnn().soft) == (1, 5, 5)


def images(count: int = 12, classes: int = 2) -> tuple[Bags, np.ndarray]:
    """Images of classes that overlap: the whole image, 2 cells of a first scale, and 4 of a clearer one."""
    rng, numbers = np.random.default_rng(0), np.arange(count) % classes
    level = np.tile([0, 1, 1, 2, 2, 2, 2], count).astype(np.int16)
    values = rng.random((7 * count, 6)) + (0.5 + (level == 2))[:, None] * np.eye(6)[np.repeat(numbers, 7)]
    return Bags(values.astype(np.float32), np.arange(count + 1) * 7, None, level), np.array(["a", "b", "c"])[numbers]


def test_pooled_voters_look_at_the_whole_image_or_at_the_mean():
    values = np.array([[1, 0], [0, 1], [0, 2], [0, 1], [1, 0], [3, 0]], np.float32)
    bags = Bags(values, np.array([0, 3, 6]), None, np.array([0, 1, 1, 0, 1, 1], np.int16))
    assert WholeImageSvm()._vectors(bags).tolist() == [[1, 0], [0, 1]]
    np.testing.assert_allclose(MeanSvm()._vectors(bags), [[1 / 3, 1], [4 / 3, 1 / 3]])
    with pytest.raises(ValueError, match="bag 0 has no descriptor of level 0"):
        WholeImageSvm().fit(Bags(values, np.array([0, 3, 6]), None, np.ones(6, np.int16)), [0, 1])


@pytest.mark.parametrize(("scales", "numbers"), [("whole", [0]), ("first", [1]), ("last", [2]), ("each", [1, 2])])
def test_a_pooled_image_has_the_resolution_of_the_named_scales_only(scales, numbers):
    bags, labels = images()
    voter = make_voter(f"pooled-svm(scales={scales})").fit(bags, labels)
    expected = []
    for image in range(12):
        values, level = bags.values[7 * image : 7 * image + 7], bags.level[7 * image : 7 * image + 7]
        roots = [np.sqrt(values[level == number].mean(axis=0, dtype=np.float64)) for number in numbers]
        expected.append(np.concatenate([root / np.linalg.norm(root) for root in roots]))
    np.testing.assert_allclose(voter._vectors(bags), expected, rtol=1e-5)


def test_an_adapted_pooled_image_sees_one_scale_only():
    bags, labels = images()
    seen = make_voter("adapted(scales=last)").fit(bags, labels, [bags], [None] * 12)
    assert seen.predict(bags).tolist() == labels.tolist()
    changed = Bags(np.where(bags.level[:, None] == 2, bags.values, 0.5), bags.offsets, None, bags.level)
    blind = make_voter("adapted(scales=last)").fit(changed, labels, [changed], [None] * 12)
    np.testing.assert_allclose(seen.model_.coef_, blind.model_.coef_, atol=1e-6)  # other scales play no part


# --- probabilities ----------------------------------------------------------------------------------------------------

BASELINES = ("whole-svm", "whole-logistic", "mean-svm", "pooled-svm", "mop(features=4,centres=3)", "bag-svm")


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_baseline_is_calibrated_as_the_definition_says_and_answers_as_without(name, classes):
    bags, labels = images(90, classes)
    voter, plain = (make_voter(name, calibrated=one).fit(bags, labels) for one in (True, False))
    _, numbers = np.unique(labels, return_inverse=True)
    keep, out = hold_out(np.arange(len(labels)), numbers, 0.2, 0)
    vectors = voter._vectors(bags)
    values = voter._learned(vectors[keep], labels[keep]).decision_function(vectors[out])
    if classes == 2:
        values = np.column_stack([-values / 2, values / 2]) if values.ndim == 1 else values
    temperature = fit_temperature(values, numbers[out])
    assert voter.temperature_ == pytest.approx(temperature)
    expected = threshold_for(softmax(values / temperature), numbers[out], 0.05)
    assert voter.rejection_threshold_ == pytest.approx(expected)
    probability = voter.predict_proba(bags)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    assert (voter.classes_[probability.argmax(axis=1)] == plain.predict(bags)).all()
    assert (plain.temperature_, plain.rejection_threshold_) == (1.0, 0.0)
    assert make_voter(name, calibrated=True).fit(bags[:12], labels[:12]).rejection_threshold_ == 0  # too few images


@pytest.mark.parametrize("name", ["snbnl", "nbnn(normalise=False)", "default"])
def test_voters_of_the_registry_are_calibrated_by_images_that_are_held_out(name):
    (bags, labels), (test, _) = images(90, 3), images(60, 3)
    plain, calibrated = make_voter(name).fit(bags, labels), fit_calibrated(make_voter(name), bags, labels)
    np.testing.assert_array_equal(plain.predict(test), calibrated.predict(test))
    assert 0 < calibrated.rejection_threshold_ < 1
    assert fit_calibrated(make_voter("snbnl"), bags[:12], labels[:12]).rejection_threshold_ == 0  # too few images
