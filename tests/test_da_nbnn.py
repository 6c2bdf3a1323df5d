from __future__ import annotations

import numpy as np
import pytest

from experiments.da.metrics import ImageToClass, learn_metrics, projected
from experiments.da.neighbours import ClassNeighbours
from experiments.da.voter import DANBNN, exchange
from patchvote import NBNN
from patchvote.voters.search import Rotation


def circle(turn: float = 0, count: int = 15, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Photos of four classes, a quarter of a circle apart; another camera turns them all by some degrees."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.array(["east", "north", "south", "west"]), count)
    middle = np.repeat([0, 90, 270, 180], count) + turn + rng.uniform(-20, 20, len(labels))
    angles = np.radians(middle[:, None] + rng.normal(0, 4, (len(labels), 10)))
    return list(np.stack([np.cos(angles), np.sin(angles)], axis=2)), labels


def differences(photos: int = 7, classes: int = 3, features: int = 4) -> tuple[list[list[np.ndarray]], np.ndarray]:
    """Differences of descriptors to their neighbours, by photo and class, and the class numbers of the photos."""
    rng = np.random.default_rng(0)
    apart = [[rng.normal(size=(5, features)) for _ in range(classes)] for _ in range(photos)]
    return apart, rng.permutation(np.arange(photos) % classes)


def problem(balance: float = 0.6, margin: float = 0.8) -> ImageToClass:
    apart, numbers = differences()
    euclidean = np.array([[np.square(x).sum(axis=1).mean() for x in photo] for photo in apart])
    scatter = np.array([[x.T @ x / len(x) for x in photo] for photo in apart]).swapaxes(0, 1)
    return ImageToClass(euclidean, scatter.astype(np.float32), numbers, balance, margin)


def some_metrics() -> np.ndarray:
    rng = np.random.default_rng(1)
    return projected(rng.normal(size=(3, 4, 4)) + 2 * np.eye(4))


def distance_of_definition(differences: np.ndarray, metric: np.ndarray) -> float:
    return sum(x @ metric @ x for x in differences) / len(differences)


def test_objective_and_gradient_equal_the_double_loop_of_the_definition():
    photos, metrics, (apart, numbers) = problem(), some_metrics(), differences()
    objective, gradient = 0.0, np.zeros_like(metrics)
    active = 0
    for i, own in enumerate(numbers):
        outer = [sum(np.outer(x, x) for x in apart[i][c]) / len(apart[i][c]) for c in range(3)]
        d_own = distance_of_definition(apart[i][own], metrics[own])
        objective += (1 - 0.6) * d_own
        gradient[own] += (1 - 0.6) * outer[own]
        for other in range(3):
            missing = 0.8 - (distance_of_definition(apart[i][other], metrics[other]) - d_own)
            if other != own and missing > 0:
                active += 1
                objective += 0.6 * missing
                gradient[own] += 0.6 * outer[own]
                gradient[other] -= 0.6 * outer[other]
    assert 0 < active < 2 * len(numbers)
    assert photos.objective(metrics) == pytest.approx(objective / len(numbers), rel=1e-5)
    np.testing.assert_allclose(photos.gradient(metrics), gradient / len(numbers), atol=1e-5)


def test_learned_metrics_are_positive_semidefinite_and_the_objective_never_rises():
    photos = problem()
    metrics, objectives = learn_metrics(photos, 50)
    assert objectives[-1] < 0.9 * objectives[0]
    assert (np.diff(objectives) <= 0).all()
    assert objectives[-1] == pytest.approx(photos.objective(metrics))
    np.testing.assert_allclose(metrics, metrics.swapaxes(1, 2), atol=1e-12)
    assert np.linalg.eigvalsh(metrics).min() > -1e-9
    np.testing.assert_allclose(np.trace(metrics, axis1=1, axis2=2), 4)
    np.testing.assert_allclose(projected(metrics), metrics, atol=1e-12)


def test_neighbours_equal_a_new_search_after_photos_enter_leave_and_change_their_class():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, 12)
    values, owner = rng.normal(size=(sizes.sum(), 3)).astype(np.float32), np.repeat(np.arange(12), sizes)
    neighbours = ClassNeighbours(values, owner, 2, Rotation(values, 3), "exact")
    for _ in range(8):
        members = rng.integers(-1, 2, 12)
        members[:4] = [0, 0, 1, 1]
        neighbours.update(rng.permuted(members))
        for number in range(2):
            for row, x in enumerate(values):
                among = np.flatnonzero((neighbours.members[owner] == number) & (owner != owner[row]))
                distances = np.square(values[among] - x).sum(axis=1)
                assert neighbours.nearest[number, row] == among[distances.argmin()]
                assert neighbours.distances[number, row] == pytest.approx(distances.min(), rel=1e-5)


# --- the exchange of photos -----------------------------------------------------------------------------------------

# Four photos of the source, four of the target without labels, one with a label; two classes.
SOURCE, UNKNOWN = np.arange(9) < 4, (np.arange(9) >= 4) & (np.arange(9) < 8)
DISTANCES = np.array([[1, 5], [2, 5], [4, 5], [3, 5], [1, 9], [1, 8], [1, 2], [9, 8], [50, 1]], float)
MEMBERS = np.array([0, 0, 0, 0, -1, -1, -1, -1, 1])


@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (1, MEMBERS, [0, 0, -1, 0, 0, -1, -1, 1, 1]),  # the surest enter, the farthest of the source leave
        (3, MEMBERS, [0, 0, -1, -1, 0, 0, 0, 1, 1]),  # two labelled photos of every class stay
        (1, np.array([0, 0, 0, 0, 1, 0, -1, -1, 1]), [0, 0, -1, 0, -1, 0, 0, 1, 1]),  # one that is named otherwise
    ],
)
def test_photos_of_the_target_take_the_place_of_those_of_the_source(count, members, expected):
    assert exchange(DISTANCES, members, SOURCE, UNKNOWN, count).tolist() == expected


def test_photos_of_another_camera_that_nbnn_confuses_are_named_after_some_rounds():
    source, labels = circle(seed=1)
    target, expected = circle(40, 30, seed=2)
    plain = NBNN().fit(source, labels)
    assert plain.score(target, expected) < 0.7
    assert DANBNN(rounds=8, exchanged=2).fit(source, labels, target).score(target, expected) > 0.9
    voter = DANBNN(rounds=0, max_iter=0).fit(source, labels, target)  # without rounds and steps, it is NBNN
    np.testing.assert_allclose(-voter.distances(target), plain.decision_function(target), atol=1e-6)


@pytest.mark.parametrize("features", [5, 160])
def test_distances_equal_the_definition_with_metrics_along_the_leading_components(features):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, features))
    labels = np.arange(24) % 3
    source = [centres[label] + rng.normal(size=(6, features)) for label in labels]
    target = [centres[label] + rng.normal(size=(6, features)) + 0.3 for label in labels]
    voter = DANBNN(n_descriptors=4, n_components=3, search="exact").fit(source, labels, target)
    photos = [centres[label] + rng.normal(size=(6, features)) for label in (0, 1)]
    assert np.abs(voter.metrics_ - np.eye(3)).max() > 0.01
    members = np.concatenate([voter.source_members_, voter.target_members_])
    bags = [comparable_of_definition(bag, voter.mean_) for bag in source + target]
    expected = np.zeros((2, 3))
    for number in range(3):
        axes = voter.components_.astype(np.float64)
        metric = np.eye(features) + axes @ (voter.metrics_[number] - np.eye(3)) @ axes.T
        bank = np.concatenate([bag for bag, member in zip(bags, members, strict=True) if member == number])
        for row, bag in enumerate(photos):
            for x in comparable_of_definition(bag, voter.mean_):
                apart = x - bank[np.square(bank - x).sum(axis=1).argmin()]
                expected[row, number] += apart @ metric @ apart / len(bag)
    np.testing.assert_allclose(voter.distances(photos), expected, rtol=1e-4)


def comparable_of_definition(bag: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return (bag - mean) / np.linalg.norm(bag - mean, axis=1, keepdims=True)
