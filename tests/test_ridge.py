"""Every closed form of the regression equals trainings: normal equations with an intercept that is not regularised."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchvote import Bags, MomentRidge
from patchvote.bags.moments import parts_of
from patchvote.voters.ridge import STRENGTHS, Ridge, best_strengths
from patchvote.voters.votes import fit_temperature, log_losses, softmax

SEEDS = st.integers(0, 10_000)


@dataclasses.dataclass
class Photos:
    """Photos of unequal classes with weights, some of them in groups."""

    features: np.ndarray
    numbers: np.ndarray
    weight: np.ndarray
    groups: np.ndarray
    alpha: float

    @property
    def targets(self) -> np.ndarray:
        return np.eye(self.numbers.max() + 1)[self.numbers]

    @property
    def ridge(self) -> Ridge:
        return Ridge.solve(self.features @ self.features.T, self.targets, self.weight)


def some_photos(seed: int, count: int = 17, dim: int = 6, classes: int = 3) -> Photos:
    rng = np.random.default_rng(seed)
    numbers = np.concatenate(
        [np.repeat(np.arange(classes), 2), rng.choice(classes, count - 2 * classes, p=[0.7, 0.2, 0.1])]
    )
    groups = np.where(rng.random(count) < 0.5, rng.integers(0, 4, count), 100 + np.arange(count))
    features = rng.normal(size=(count, dim)) + 3 * rng.normal(size=dim)
    return Photos(features, numbers, rng.uniform(0.2, 3, count), groups, float(10 ** rng.uniform(-3, 0)))


def trained(features: np.ndarray, targets: np.ndarray, weight: np.ndarray, strength: float) -> tuple:
    """Minimise the weighted squared error + strength |f|^2 over linear functions and intercepts."""
    one = np.hstack([features, np.ones((len(features), 1))])
    penalty = strength * np.diag([1.0] * features.shape[1] + [0.0])
    solved = np.linalg.solve(one.T @ (weight[:, None] * one) + penalty, one.T @ (weight[:, None] * targets))
    return solved[:-1], solved[-1]


def left_out_by_training(photos: Photos, groups: np.ndarray) -> np.ndarray:
    """Answers of one training per group; its other photos keep their weights, and the regularisation stays."""
    weight, answers = photos.weight / photos.weight.mean(), np.full(photos.targets.shape, np.nan)
    for group in np.unique(groups):
        out = groups == group
        if set(photos.numbers[out]) <= set(photos.numbers[~out]):
            linear, intercept = trained(
                photos.features[~out], photos.targets[~out], weight[~out], len(weight) * photos.alpha
            )
            answers[out] = photos.features[out] @ linear + intercept
    return answers


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@settings(max_examples=20)
@given(SEEDS)
def test_coefficients_and_intercept_are_those_of_the_normal_equations(seed):
    photos = some_photos(seed)
    ridge, weight = photos.ridge, photos.weight / photos.weight.mean()
    linear, intercept = trained(photos.features, photos.targets, weight, len(weight) * photos.alpha)
    dual = ridge.coefficients(photos.alpha)
    mean = weight @ photos.features / len(weight)
    close(photos.features.T @ dual, linear)
    close(ridge.intercept - mean @ linear, intercept)
    close(dual.sum(axis=0), 0)
    other = np.random.default_rng(seed).normal(size=photos.targets.shape)
    linear, _ = trained(photos.features, other, weight, len(weight) * photos.alpha)
    close(photos.features.T @ dataclasses.replace(ridge, targets=other).coefficients(photos.alpha), linear)


@settings(max_examples=20)
@given(SEEDS)
def test_photos_that_are_left_out_get_the_answers_of_a_training_without_them(seed):
    photos = some_photos(seed, count=20)
    close(photos.ridge.left_out(photos.alpha), left_out_by_training(photos, np.arange(20)))
    close(photos.ridge.left_out(photos.alpha, photos.groups), left_out_by_training(photos, photos.groups))
    kept = np.arange(20) < 10
    groups = np.where(kept, np.arange(20), -1)
    expected = left_out_by_training(photos, groups)
    close(photos.ridge.left_out(photos.alpha, groups), expected)
    close(photos.ridge.learned_from(photos.alpha, np.flatnonzero(kept))[~kept], expected[~kept])


@settings(max_examples=20)
@given(SEEDS)
def test_features_give_what_their_gram_matrix_gives(seed):
    photos = some_photos(seed)
    fast, slow = Ridge.solve_features(photos.features, photos.targets, photos.weight), photos.ridge
    assert fast.vectors.shape[1] <= photos.features.shape[1]
    close(fast.intercept, slow.intercept)
    close(fast.left_out(photos.alpha, photos.groups), slow.left_out(photos.alpha, photos.groups))
    close(fast.unlike(photos.alpha, photos.groups), slow.unlike(photos.alpha, photos.groups))
    coefficients = (ridge.coefficients(photos.alpha) for ridge in (fast, slow))
    close(*(photos.features.T @ each for each in coefficients))


@settings(max_examples=20)
@given(SEEDS)
def test_how_unlike_the_others_a_photo_is_follows_from_their_products(seed):
    photos = some_photos(seed)
    weight, count = photos.weight / photos.weight.mean(), len(photos.numbers)
    x = np.sqrt(weight)[:, None] * (photos.features - weight @ photos.features / count)
    expected = np.empty(count)
    for row, group in enumerate(photos.groups):
        others = x[photos.groups != group]
        regularised = others.T @ others + count * photos.alpha * np.eye(x.shape[1])
        expected[row] = x[row] @ np.linalg.solve(regularised, x[row])
    close(photos.ridge.unlike(photos.alpha, photos.groups), expected)


# --- the strength -----------------------------------------------------------------------------------------------------


@settings(max_examples=4)
@given(SEEDS)
def test_the_strengths_go_from_the_best_log_loss_to_the_largest_one_that_is_not_clearly_worse(seed):
    photos = some_photos(seed, count=30)
    each = []
    for alpha in STRENGTHS:
        answers = left_out_by_training(dataclasses.replace(photos, alpha=float(alpha)), photos.groups)
        asked = ~np.isnan(answers[:, 0])
        expected = photos.numbers[asked]
        probability = softmax(answers[asked] / fit_temperature(answers[asked], expected))
        each.append(log_losses(probability, expected) * (photos.weight / photos.weight.mean())[asked])
    best = int(np.argmin([losses.mean() for losses in each]))
    groups = len(np.unique(photos.groups[asked]))  # copies are no further evidence
    differences = [losses - each[best] for losses in each]
    not_worse = [d.mean() <= 2.5 * d.std() / np.sqrt(groups) + 1e-12 for d in differences]
    largest = max(index for index, allowed in enumerate(not_worse) if allowed)
    np.testing.assert_array_equal(best_strengths(photos.ridge, photos.groups), STRENGTHS[best : largest + 1])


@settings(max_examples=5)
@given(SEEDS)
def test_several_strengths_are_the_mean_of_the_regressions_of_each(seed):
    photos = some_photos(seed)
    ridge, both, out = photos.ridge, np.array([0.01, 0.3]), np.array([0, 3, 4])
    close(ridge.coefficients(both), np.mean([ridge.coefficients(float(alpha)) for alpha in both], axis=0))
    expected = [left_out_by_training(dataclasses.replace(photos, alpha=float(a)), photos.groups) for a in both]
    close(ridge.left_out(both, photos.groups), np.mean(expected, axis=0))
    for found, parts in zip(
        ridge.without(both, out), zip(*(ridge.without(float(a), out) for a in both), strict=True), strict=True
    ):
        close(found, np.mean(parts, axis=0))


# --- what a voter does with it ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bags() -> tuple[Bags, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [20, 12, 8])
    values = [rng.gamma(1.0, 1.0, (7, 5)) + np.eye(5)[label] for label in labels]
    return Bags.of(values), labels


def vectors_of(voter: MomentRidge) -> np.ndarray:
    """Vectors of the training photos of a voter, at its scales, in float64."""
    vectors = voter.learned().vectors().astype(np.float64)
    for factor, part in zip(voter.solved_.vectors.scale, parts_of(voter.n_features_in_), strict=True):
        vectors[:, part] *= factor
    return vectors


def test_a_voter_without_some_photos_is_one_that_was_trained_with_weight_zero_for_them(bags):
    voter = MomentRidge(alpha=0.1, class_weight="balanced").fit(*bags)
    out = np.array([3, 4, 21, 22, 23, 39])
    without, vectors, weight = voter.without(out), vectors_of(voter), 1 / np.bincount(bags[1])[bags[1]]
    weight /= weight.mean()
    weight[out] = 0
    (alpha,) = voter.alphas_
    linear, intercept = trained(vectors, np.eye(3)[bags[1]], weight, len(weight) * alpha)
    close(without._mean_votes(voter.learned()), vectors @ linear + intercept, 2e-6)
    assert not np.allclose(without.linear_, voter.linear_, atol=1e-3)
    alone = voter.solved_.ridge.left_out(voter.alphas_)
    close(voter.without(out[:1])._mean_votes(voter.learned())[out[0]], alone[out[0]], 2e-6)
