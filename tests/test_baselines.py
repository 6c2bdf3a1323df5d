"""What local votes are compared with: one vector per image, and MOP-CNN; their probabilities in protocols."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.baselines.adapted import _with_statistics
from experiments.baselines.mop import MopCnn
from experiments.baselines.pooled import MeanSvm, WholeImageSvm
from experiments.voters import make_voter
from patchvote import Bags
from patchvote.voters.votes import softmax


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


def test_covariance_pooling_tells_images_with_the_same_means_apart():
    rng = np.random.default_rng(0)
    together, apart = np.array([[1, 1], [0, 0]] * 8), np.array([[1, 0], [0, 1]] * 8)
    bags = Bags.of([parts + 0.1 * rng.random((16, 2)) for parts in (together, apart) for _ in range(10)])
    labels = np.repeat(["together", "apart"], 10)
    voter = make_voter("covariance-svm(features=2)").fit(bags, labels)
    assert (voter.predict(bags) == labels).all()
    vectors = voter._vectors(bags)
    roots = [np.sqrt(np.maximum(values, 0)) for values in (bags[0].values, bags[10].values)]
    covariance = [np.cov(((root - voter.mean_) @ voter.axes_).T, bias=True) for root in roots]
    values, turns = zip(*map(np.linalg.eigh, covariance), strict=True)
    square_roots = [(turn * np.sqrt(value)) @ turn.T for value, turn in zip(values, turns, strict=True)]
    means = [((root - voter.mean_) @ voter.axes_).mean(axis=0) for root in roots]
    expected = [np.concatenate([root.ravel(), mean]) for root, mean in zip(square_roots, means, strict=True)]
    lengths = [np.linalg.norm(one) for one in expected]
    product = expected[0] @ expected[1] / np.prod(lengths)  # that of the whole matrices
    assert vectors[0] @ vectors[10] == pytest.approx(product, abs=1e-5)


def test_the_literal_snbnl_is_the_pseudocode():
    rng = np.random.default_rng(0)
    bags = Bags.of([rng.normal(size=(5, 3)) + np.eye(3)[label] for label in (0, 1) for _ in range(6)])
    labels = np.repeat([0, 1], 6)
    voter = make_voter("snbnl-paper(n_prototypes=2,max_iter=1)")
    voter.min_steps = 1
    voter.fit(bags, labels)
    # One minibatch, one step from N(0, 1): W_1 = (W_0 - G_1) / (1 + lambda), with lambda = L = 1.
    seed = int(np.random.RandomState(0).randint(2**31, size=3)[1])
    x = (bags.values - voter.mean_) * voter.scale_
    start = np.random.default_rng(seed).standard_normal((2, 2, 3))
    products = np.maximum(start @ x.T, 0)  # (prototypes, classes, descriptors)
    scores = np.sqrt((products**2).sum(axis=0))
    residual = softmax(scores.T).T - (np.arange(2)[:, None] == np.repeat(labels, 5))
    gradient = (products / np.where(scores > 0, scores, 1) * residual / len(x)) @ x
    np.testing.assert_allclose(voter.weights_, (start - gradient) / 2, atol=1e-5)


def test_a_mixture_weighs_voters_by_their_left_out_answers():
    bags, labels = images(30)
    mixture = make_voter("mixture(voters=snbnl-paper+nbnn)").fit(bags, labels)
    assert (mixture.predict(bags) == labels).all()
    assert len(mixture.weights_) == 2
    assert mixture.weights_.max() > 0 <= mixture.weights_.min()


@pytest.mark.parametrize("voter", ["snbnl-paper", "nbnn"])
def test_an_adapted_voter_of_parts_follows_features_that_are_scaled_and_shifted(voter):
    bags, labels = images()
    other = Bags(3 * bags.values + 5, bags.offsets, None, bags.level)
    adapted = make_voter(f"adapted-snbnl(voter={voter})").fit(bags, labels, [other], [None] * 12)
    assert (adapted.predict(other) == labels).all()
    moved = _with_statistics(bags, other)
    np.testing.assert_allclose(moved.values, other.values, rtol=1e-4)
