"""What local votes are compared with: one vector an image, and MOP-CNN."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.baselines.mop import MopCnn
from experiments.baselines.pooled import MeanSvm, WholeImageSvm, at_scale
from experiments.voters import make_voter
from patchvote import Bags, PatchvoteError


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


def test_pooled_voters_look_at_the_whole_image_or_at_the_mean():
    values = np.array([[1, 0], [0, 1], [0, 2], [0, 1], [1, 0], [3, 0]], np.float32)
    bags = Bags(values, np.array([0, 3, 6]), None, np.array([0, 1, 1, 0, 1, 1], np.int16))
    assert WholeImageSvm()._vectors(bags).tolist() == [[1, 0], [0, 1]]
    np.testing.assert_allclose(MeanSvm()._vectors(bags), [[1 / 3, 1], [4 / 3, 1 / 3]])
    with pytest.raises(ValueError, match="bag 0 has no descriptor of level 0"):
        WholeImageSvm().fit(Bags(values, np.array([0, 3, 6]), None, np.ones(6, np.int16)), [0, 1])


def test_simple_voters_of_the_whole_image_name_it():
    rng = np.random.default_rng(0)
    labels = np.repeat(["land", "sea"], 6)
    whole = rng.random((12, 4)) + 2 * np.eye(4)[np.repeat([0, 1], 6)]
    bags = Bags(whole.astype(np.float32), np.arange(13))
    for voter in ("whole-svm", "whole-logistic", "bag-svm", "default"):
        assert make_voter(voter).fit(bags, labels).predict(bags).tolist() == labels.tolist()
        assert make_voter(voter).fit(bags[[0, 6]], labels[[0, 6]]).predict(bags).tolist() == labels.tolist()


def two_scales() -> tuple[Bags, np.ndarray]:
    """Twelve images of two classes that only the last scale tells apart: whole image, 2 cells, then 4 cells."""
    rng = np.random.default_rng(0)
    labels = np.repeat(["land", "sea"], 6)
    level = np.tile([0, 1, 1, 2, 2, 2, 2], 12).astype(np.int16)
    values = rng.random((84, 3)).astype(np.float32)
    values[level == 2] += 3 * np.eye(3)[np.repeat([0, 1], 24)].astype(np.float32)
    return Bags(values, np.arange(13) * 7, None, level), labels


def test_a_pooled_image_has_the_resolution_of_the_named_scales_only():
    bags, labels = two_scales()
    for scales, numbers in (("whole", [0]), ("first", [1]), ("last", [2]), ("each", [1, 2])):
        voter = make_voter(f"pooled-svm(scales={scales})").fit(bags, labels)
        expected = []
        for image in range(12):
            rows = slice(7 * image, 7 * image + 7)
            vector = []
            for number in numbers:
                root = np.sqrt(bags.values[rows][bags.level[rows] == number].mean(axis=0, dtype=np.float64))
                vector.append(root / np.linalg.norm(root))
            expected.append(np.concatenate(vector))
        np.testing.assert_allclose(voter._vectors(bags), expected, rtol=1e-5)
    assert make_voter("pooled-svm").fit(bags, labels).predict(bags).tolist() == labels.tolist()
    with pytest.raises(PatchvoteError, match="scales must be one of whole, first, last, each, all, got 'second'"):
        make_voter("pooled-svm(scales=second)")
    with pytest.raises(ValueError, match="bag 0 has no descriptor of level 0"):
        at_scale(Bags(np.ones((2, 3), np.float32), np.array([0, 2]), None, np.ones(2, np.int16)), 0)


def test_an_adapted_pooled_image_sees_one_scale_only():
    bags, labels = two_scales()
    seen = make_voter("adapted(scales=last)").fit(bags, labels, [bags], [None] * 12)
    assert seen.predict(bags).tolist() == labels.tolist()
    changed = Bags(np.where(bags.level[:, None] == 2, bags.values, 0.5), bags.offsets, None, bags.level)
    blind = make_voter("adapted(scales=last)").fit(changed, labels, [changed], [None] * 12)
    np.testing.assert_allclose(seen.model_.coef_, blind.model_.coef_, atol=1e-6)  # other scales play no part
    with pytest.raises(PatchvoteError, match="scales must be one of whole, first, last, each, all"):
        make_voter("adapted(scales=second)")
