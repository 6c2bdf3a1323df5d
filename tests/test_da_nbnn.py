from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from experiments.da.metrics import ImageToClass, learn_metrics, projected
from experiments.da.neighbours import ClassNeighbours
from experiments.da.voter import DANBNN, exchange
from experiments.voters import make_voter, title, voter_kind
from patchvote import NBNN, Bags
from patchvote.voters.search import Rotation


def circle(turn: float = 0, count: int = 15, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Photos of four classes, a quarter of a circle apart; another camera turns them all by some degrees."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.array(["east", "north", "south", "west"]), count)
    middle = np.repeat([0, 90, 270, 180], count) + turn + rng.uniform(-20, 20, len(labels))
    angles = np.radians(middle[:, None] + rng.normal(0, 4, (len(labels), 10)))
    return list(np.stack([np.cos(angles), np.sin(angles)], axis=2)), labels


# --- metrics --------------------------------------------------------------------------------------------------------


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
    total = 0.0
    for x in differences:
        total += x @ metric @ x
    return total / len(differences)


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


def test_without_steps_metrics_are_euclidean():
    metrics, objectives = learn_metrics(problem(), 0)
    np.testing.assert_array_equal(metrics, np.tile(np.eye(4), (3, 1, 1)))
    assert len(objectives) == 1


def test_a_projection_is_nearer_than_any_other_metric():
    rng = np.random.default_rng(2)
    matrix = rng.normal(size=(1, 4, 4))
    matrix += matrix.swapaxes(1, 2)
    nearest = projected(matrix)
    np.testing.assert_allclose(projected(nearest), nearest, atol=1e-12)
    for _ in range(200):
        root = rng.normal(size=(4, 4))
        other = root @ root.T * 4 / np.trace(root @ root.T)
        towards = 0.9 * nearest[0] + 0.1 * other  # metrics are a convex set
        assert np.linalg.norm(matrix[0] - nearest[0]) <= np.linalg.norm(matrix[0] - towards)


# --- neighbours -----------------------------------------------------------------------------------------------------


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


def test_the_surest_photos_of_the_target_enter_and_the_farthest_of_the_source_leave():
    assert exchange(DISTANCES, MEMBERS, SOURCE, UNKNOWN, 1).tolist() == [0, 0, -1, 0, 0, -1, -1, 1, 1]
    assert exchange(DISTANCES, MEMBERS, SOURCE, UNKNOWN, 2).tolist() == [0, 0, -1, -1, 0, 0, -1, 1, 1]


def test_two_labelled_photos_of_every_class_stay():
    assert exchange(DISTANCES, MEMBERS, SOURCE, UNKNOWN, 3).tolist() == [0, 0, -1, -1, 0, 0, 0, 1, 1]


def test_a_photo_of_the_target_that_is_named_otherwise_leaves():
    members = np.array([0, 0, 0, 0, 1, 0, -1, -1, 1])
    assert exchange(DISTANCES, members, SOURCE, UNKNOWN, 1)[4:].tolist() == [-1, 0, 0, 1, 1]


def test_labelled_photos_of_the_target_never_leave():
    source, labels = circle(seed=1)
    target, expected = circle(40, 20, seed=2)
    known = [label if i % 20 < 2 else None for i, label in enumerate(expected)]
    voter = DANBNN(rounds=6, exchanged=3).fit(source, labels, target, known)
    has_label = np.array([label is not None for label in known])
    assert (voter.classes_[voter.target_members_[has_label]] == expected[has_label]).all()
    assert (voter.source_members_ == -1).sum() > 20
    assert voter.history_[0]["target"] == 0 < voter.history_[-1]["target"]
    kept = voter.history_[-1]["source"]
    assert kept == (voter.source_members_ >= 0).sum() < voter.history_[0]["source"] == len(source)


# --- the estimator --------------------------------------------------------------------------------------------------


def test_photos_of_another_camera_that_nbnn_confuses_are_named_after_some_rounds():
    source, labels = circle(seed=1)
    target, expected = circle(40, 30, seed=2)
    assert NBNN().set_options(calibration=0).fit(source, labels).score(target, expected) < 0.7
    assert DANBNN(rounds=8, exchanged=2).fit(source, labels, target).score(target, expected) > 0.9


def test_without_rounds_and_steps_distances_are_those_of_nbnn():
    source, labels = circle(seed=1)
    target, _ = circle(10, seed=2)
    plain = NBNN().set_options(calibration=0).fit(source, labels)
    voter = DANBNN(rounds=0, max_iter=0).fit(source, labels, target)
    np.testing.assert_allclose(-voter.distances(target), plain.decision_function(target), atol=1e-6)
    np.testing.assert_array_equal(
        DANBNN(rounds=0, max_iter=0).fit(source, labels).predict(target), voter.predict(target)
    )


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


def test_a_target_in_parts_is_the_target_as_a_whole():
    source, labels = circle(seed=1)
    target, expected = circle(30, seed=2)
    known = [*expected[:4], *[None] * 56]
    whole = DANBNN().fit(source, labels, target, known)
    parts = DANBNN().fit(Bags.of(source), labels, [Bags.of(target[:4]), Bags.of(target[4:])], known)
    np.testing.assert_array_equal(whole.target_members_, parts.target_members_)
    np.testing.assert_array_equal(whole.distances(target), parts.distances(target))


def test_rounds_learn_from_a_part_of_every_bag_and_photos_are_named_with_all_of_it():
    source, labels = circle(seed=1)
    target, expected = circle(30, seed=2)
    part = DANBNN(n_descriptors=3).fit(source, labels, target)
    assert part.score(target, expected) > 0.9
    whole = DANBNN(n_descriptors=None).fit(source, labels, target)
    many = DANBNN(n_descriptors=100).fit(source, labels, target)
    np.testing.assert_array_equal(whole.metrics_, many.metrics_)
    assert (part.metrics_ != whole.metrics_).any()
    assert [len(bank) for bank, _ in part._banks] == [
        10 * int(np.sum(np.concatenate([part.source_members_, part.target_members_]) == number)) for number in range(4)
    ]


def test_protocols_know_it_by_its_name():
    assert voter_kind("da-nbnn").adapts
    assert title("da-nbnn") == "DA-NBNN"
    assert clone(make_voter("da-nbnn(rounds=1,margin=0.2)")).get_params()["margin"] == 0.2
