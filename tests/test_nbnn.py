from __future__ import annotations

import numpy as np
import pytest

from patchvote import NBNN, Bags, LocalNBNN
from test_voters import make_bags


def double_loop(train: list[np.ndarray], labels: np.ndarray, test: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The paper's equation: argmin over classes of the sum of squared distances to the nearest of the class."""
    classes = np.unique(labels)
    sums = np.zeros((len(test), len(classes)))
    for row, image in enumerate(test):
        for column, label in enumerate(classes):
            support = np.concatenate([bag for bag, own in zip(train, labels, strict=True) if own == label])
            for x in image:
                sums[row, column] += min(float(((x - w) ** 2).sum()) for w in support)
    return classes[sums.argmin(axis=1)], sums


def centred_unit(bags: list[np.ndarray], train: list[np.ndarray]) -> list[np.ndarray]:
    mean = np.concatenate(train).mean(axis=0)
    return [(bag - mean) / np.linalg.norm(bag - mean, axis=1, keepdims=True) for bag in bags]


def test_votes_equal_the_double_loop_of_the_definition():
    (train, labels), (test, _) = make_bags(24, seed=1), make_bags(9, seed=2)
    for normalise in (False, True):
        prepared = [centred_unit(bags, train) for bags in (train, test)] if normalise else (train, test)
        expected, sums = double_loop(prepared[0], labels, prepared[1])
        voter = NBNN(normalise=normalise).fit(train, labels)
        assert voter.predict(test).tolist() == expected.tolist()
        sizes = np.array([len(bag) for bag in test])[:, None]
        np.testing.assert_allclose(-voter.decision_function(test) * sizes, sums, rtol=1e-4, atol=1e-5)


def test_more_neighbours_average_their_distances():
    (train, labels), (test, _) = make_bags(12, seed=1), make_bags(3, seed=2)
    votes = NBNN(3, normalise=False).fit(train, labels).votes(test)
    support = np.concatenate([bag for bag, label in zip(train, labels, strict=True) if label == "land"])
    x = test[0][0]
    expected = np.sort(((support - x) ** 2).sum(axis=1))[:3].mean()
    assert -votes[0, 0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("voter", [NBNN(), NBNN(3), NBNN(position_weight=0.5), LocalNBNN()])
def test_partial_fit_equals_a_refit_exactly(voter):
    (train, labels), (test, _) = make_bags(60, classes=4, seed=1), make_bags(9, classes=4, seed=2)
    rng = np.random.default_rng(0)
    boxes = [np.sort(rng.random((len(bag), 4), dtype=np.float32)) for bag in train]
    bags = Bags.join([Bags(bag, [0, len(bag)], box) for bag, box in zip(train, boxes, strict=True)])
    order = np.argsort(labels == "sea", kind="stable")  # a class that comes only at the end
    whole = type(voter)(**voter.get_params()).fit(bags[order], labels[order])
    parts = type(voter)(**voter.get_params()).fit(bags[order[:20]], labels[order[:20]])
    for start in (20, 40):
        parts.partial_fit(bags[order[start : start + 20]], labels[order[start : start + 20]])
    assert parts.classes_.tolist() == whole.classes_.tolist()
    np.testing.assert_array_equal(parts.values_, whole.values_)
    np.testing.assert_array_equal(parts.votes(test), whole.votes(test))


def test_a_match_names_the_training_image_and_box():
    train, labels = make_bags(12)
    rng = np.random.default_rng(0)
    boxes = [np.sort(rng.random((len(bag), 4), dtype=np.float32)) for bag in train]
    bags = Bags.join([Bags(bag, [0, len(bag)], box) for bag, box in zip(train, boxes, strict=True)])
    voter = NBNN(position_weight=0.1).fit(bags, labels)
    images, found, distances = voter.matches(bags[4], labels[4])
    assert (images == 4).all()
    np.testing.assert_array_equal(found, boxes[4])
    np.testing.assert_allclose(distances, 0, atol=1e-6)


def test_positions_of_whole_numbers_are_not_rounded():
    boxes = [[0, 0, 0.5, 1], [0.5, 0, 1, 1]]
    bags = Bags(np.ones((2, 3), int), np.arange(3), boxes)
    voter = NBNN(position_weight=1.0).fit(bags, ["left", "right"])
    assert voter.values_[:, -2:].tolist() == [[0.25, 0.5], [0.75, 0.5]]
    assert voter.predict(bags).tolist() == ["left", "right"]


def test_positions_count_by_their_weight():
    values = np.ones((2, 3))
    left, right = ([[0, 0, 0.2, 1]], [[0.8, 0, 1, 1]])
    bags = Bags(values, [0, 1, 2], boxes=np.array(left + right, np.float32))
    voter = NBNN(position_weight=2.0).fit(bags, ["left", "right"])
    query = Bags(values[:1], [0, 1], boxes=np.array([[0, 0, 0.4, 1]], np.float32))
    assert voter.predict(query) == ["left"]
    np.testing.assert_allclose(-voter.votes(query), [[0.04, 1.96]], rtol=1e-5)


@pytest.mark.parametrize("voter", [NBNN(), LocalNBNN()])
def test_the_order_of_classes_and_of_images_does_not_matter(voter):
    (train, labels), (test, _) = make_bags(24, seed=1), make_bags(9, seed=2)
    renamed = np.array([{"land": "z", "sea": "a", "sky": "m"}[label] for label in labels])
    order = np.random.default_rng(0).permutation(24)
    first = type(voter)().fit(train, labels).decision_function(test)
    second = type(voter)().fit([train[i] for i in order], renamed[order]).decision_function(test)
    np.testing.assert_allclose(second, first[:, [1, 2, 0]], rtol=1e-5, atol=1e-7)


def test_the_approximate_search_names_as_well_and_tells_its_recall():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 160))
    labels = np.arange(90) % 3
    bags = [
        (rng.normal(size=(40, 160)) * 0.98 ** np.arange(160) + centres[label]).astype(np.float32) for label in labels
    ]
    voter = NBNN(search="pca").fit(bags[:60], labels[:60])
    assert voter.score(bags[60:], labels[60:]) > 0.9
    assert 0.3 < voter.recall_ <= 1
    assert NBNN().fit(bags[:60], labels[:60]).recall_ == 1.0
    local = LocalNBNN(search="pca").fit(bags[:60], labels[:60])
    assert local.score(bags[60:], labels[60:]) > 0.9
    assert 0.3 < local.recall_ <= 1


def test_local_votes_equal_the_algorithm_as_printed():
    (train, labels), (test, _) = make_bags(24, seed=1), make_bags(4, seed=2)
    voter = LocalNBNN(5, normalise=False).fit(train, labels)
    bank = np.concatenate(train)
    owner = np.repeat(labels, [len(bag) for bag in train])
    votes = voter.votes(test)
    for row, x in enumerate(np.concatenate(test)):
        distances = ((bank - x) ** 2).sum(axis=1)
        order = np.argsort(distances)[:6]
        background = distances[order[-1]]
        for column, label in enumerate(voter.classes_):
            own = [distances[index] for index in order[:-1] if owner[index] == label]
            expected = background - min(own) if own else 0.0
            assert votes[row, column] == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n_neighbors": 0}, "n_neighbors of NBNN must be a whole number of at least 1, got 0"),
        ({"n_neighbors": 10**6}, "fewer than 1000000 neighbours"),
        ({"search": "fast"}, "search of NBNN must be one of 'exact', 'pca', got 'fast'"),
        ({"dtype": "int8"}, "dtype of NBNN must be one of 'float32', 'float16', got 'int8'"),
        ({"position_weight": -1}, "position_weight of NBNN"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, says):
    bags, labels = make_bags(12)
    with pytest.raises(ValueError, match=says):
        NBNN(**settings).fit(bags, labels)


def test_a_bank_in_half_precision_names_as_well():
    (train, labels), (test, expected) = make_bags(60, seed=1), make_bags(60, seed=2)
    half = NBNN(dtype="float16").fit(train, labels)
    assert half.values_.dtype == np.float16
    assert half.score(test, expected) > 0.9
