"""Parts vote by what they show, where they stand and what else they show; the regression sees the bag as a whole."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from helpers.photo_bags import placed
from patchvote import Bags, ModelError, MomentRidge
from patchvote.bags.moments import (
    KeptMoments,
    MomentBags,
    moment_count,
    moments,
    parts_of,
    photo_vectors,
    unit,
)
from patchvote.networks.bases import Basis, random_basis
from patchvote.voters.moment_votes import MomentVotes
from patchvote.voters.ridge import Ridge, best_strengths

BASIS = random_basis(5)


def close(found, expected, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def same_voter(one: MomentRidge, other: MomentRidge, bags: Bags, tolerance: float = 1e-6) -> None:
    assert one.classes_.tolist() == other.classes_.tolist()
    assert np.array_equal(one.alphas_, other.alphas_)
    close(one._mean_votes(bags), other._mean_votes(bags), tolerance)


@pytest.fixture(scope="module")
def fitted() -> MomentRidge:
    return MomentRidge().fit(*placed())


@pytest.fixture(scope="module")
def test_bags() -> Bags:
    return placed(6, seed=9)[0]


# --- moments ----------------------------------------------------------------------------------------------------------


def test_moments_equal_the_loops_of_the_definition():
    bags, _ = placed(2)
    rng = np.random.default_rng(1)
    basis = Basis(rng.normal(size=5).astype(np.float16), rng.normal(size=(5, 3)).astype(np.float16))
    bags = dataclasses.replace(bags, values=bags.values - 1)  # of both signs
    fast = moments(bags, basis)
    for number, bag in enumerate(bags):
        expected = np.zeros(moment_count(basis))
        for values, (left, top, right, bottom) in zip(bag.values.astype(float), bag.boxes.astype(float), strict=True):
            r = np.sign(values) * np.sqrt(np.abs(values))
            a = (top + bottom) - 1  # -1 at the top, 1 at the bottom
            b = 4 * abs((left + right) / 2 - 0.5) - 1  # -1 in the middle, 1 at the edges
            y = (r - basis.offset) @ basis.directions.astype(float)
            products = [y[j] * y[k] * (1 if j == k else np.sqrt(2)) for j in range(3) for k in range(j, 3)]
            expected += np.concatenate([r, a * r, b * r, a * b * r, products])
        np.testing.assert_allclose(fast[number], expected / len(bag.values), rtol=2e-5, atol=1e-5)


def test_the_vector_of_a_photo_has_the_length_one_twice_and_knows_no_brightness():
    bags, _ = placed(2)
    brighter = dataclasses.replace(bags, values=bags.values * 3)
    vectors = unit(moments(bags, BASIS), 5)
    close(vectors, unit(moments(brighter, BASIS), 5), 1e-5)
    what, _, together = parts_of(5)
    close(np.linalg.norm(vectors[:, what], axis=1), 1, 1e-5)
    close(np.linalg.norm(vectors[:, together], axis=1), 1, 1e-5)
    close(photo_vectors(bags), vectors[:, what], 1e-5)


@examples(max_examples=30)
@given(seed=st.integers(0, 1000), size=st.sampled_from([1e-6, 1.0, 1e6]))
def test_moments_of_8_bits_are_within_rounding_and_unpack_to_what_was_packed(seed, size):
    rng = np.random.default_rng(seed)
    bags = Bags.of([(size * rng.standard_t(2, (4, 5))).astype(np.float32) for _ in range(3)])
    keep, exact = KeptMoments(BASIS), moments(bags, BASIS)
    kept = keep.of(bags)
    values = np.sign(kept.packed) * np.square(kept.packed / 127.0)
    for column, part in enumerate(parts_of(5)):
        largest = np.abs(exact[:, part]).max(axis=1, keepdims=True)
        close(kept.scale[:, column : column + 1], largest)
        # The root of a share is rounded to steps of 1/127, half of one is the largest error.
        error = np.abs(np.sqrt(np.abs(values[:, part])) - np.sqrt(np.abs(exact[:, part]) / largest))
        assert error.max() <= 0.5 / 127 + 1e-5
        assert (values[:, part] * exact[:, part] >= 0).all()
    close(kept.vectors(), unit((values * np.repeat(kept.scale, [5, 15, 15], axis=1)).astype(np.float32), 5), 1e-5)
    again = MomentBags.joined([keep.unpack(keep.pack(kept.rows([row]))) for row in range(3)])
    for name in ("packed", "scale", "values"):
        np.testing.assert_array_equal(getattr(again, name), getattr(kept, name))


@pytest.mark.parametrize(
    "change",
    [
        {"moments": None},
        {"moments": np.zeros((1, 3), np.int8)},
        {"scale": np.full((1, 3), np.nan, np.float32)},
    ],
)
def test_stored_moments_of_another_form_are_refused(change):
    keep = KeptMoments(BASIS)
    arrays = {**keep.pack(keep.of(placed(1)[0][:1])), **change}
    with pytest.raises(ValueError, match="moments"):
        keep.unpack({name: array for name, array in arrays.items() if array is not None})


def test_a_bag_without_any_feature_has_a_vector_of_zeros():
    empty = Bags.of([np.zeros((3, 2))])
    basis = random_basis(2)
    assert (unit(moments(empty, basis), 2) == 0).all()
    assert (KeptMoments(basis).of(empty).vectors() == 0).all()
    assert (photo_vectors(empty) == 0).all()


# --- votes ------------------------------------------------------------------------------------------------------------


@examples(max_examples=25)
@given(seed=st.integers(0, 1000))
def test_the_score_of_a_bag_is_the_mean_of_the_votes_of_its_parts_in_any_order(fitted, seed):
    bags, _ = placed(1, seed=seed)
    scores = fitted._mean_votes(bags)
    close(bags.means(fitted.votes(bags)), scores, 1e-4)
    order = np.concatenate(
        [np.random.default_rng(seed).permutation(np.arange(a, b)) for a, b in itertools.pairwise(bags.offsets)]
    )
    mixed = Bags(bags.values[order], bags.offsets, bags.boxes[order])
    close(fitted._mean_votes(mixed), scores, 1e-4)
    close(fitted.votes(mixed), fitted.votes(bags)[order], 1e-4)


def test_it_knows_where_a_part_stands():
    rng = np.random.default_rng(0)
    bags, labels = [], []
    for label in ("sky above", "sky below") * 12:
        y = rng.random(10).astype(np.float32) * 0.8
        above = y < 0.4
        sky = above if label == "sky above" else ~above
        values = np.stack([sky, ~sky], axis=1) + 0.1 * rng.random((10, 2))
        boxes = np.stack([np.full(10, 0.4), y, np.full(10, 0.6), y + 0.2], axis=1).astype(np.float32)
        bags.append(Bags(values, np.array([0, 10]), boxes))
        labels.append(label)
    train, test = Bags.join(bags[:16]), Bags.join(bags[16:])
    assert MomentRidge().fit(train, labels[:16]).score(test, labels[16:]) == 1
    assert MomentRidge(layout=0).fit(train, labels[:16]).score(test, labels[16:]) < 1


# --- learning ---------------------------------------------------------------------------------------------------------


@examples(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_photos_in_any_order_added_and_forgotten_give_the_voter_of_a_fit_from_scratch(seed, fitted, test_bags):
    bags, labels = placed()
    order = np.random.default_rng(seed).permutation(len(bags))
    same_voter(MomentRidge().fit(bags[order], labels[order]), fitted, test_bags)
    first, second = order[:15], order[15:]
    added = MomentRidge().fit(bags[first], labels[first]).partial_fit(bags[second], labels[second])
    same_voter(added, fitted, test_bags)
    weight = np.ones(len(bags))
    weight[first] = 0
    forgotten = MomentRidge().fit(bags, labels, weight)
    same_voter(forgotten, MomentRidge().fit(bags[np.sort(second)], labels[np.sort(second)]), test_bags)
    assert len(forgotten.moments_) == len(second)


def test_a_photo_of_weight_three_counts_as_three_photos(test_bags):
    bags, labels = placed()
    weight = np.random.default_rng(0).integers(0, 4, len(bags))
    rows = np.repeat(np.arange(len(bags)), weight)
    weighted, repeated = (
        MomentRidge(alpha=0.1).fit(bags, labels, weight),
        MomentRidge(alpha=0.1).fit(bags[rows], labels[rows]),
    )
    close(weighted._mean_votes(test_bags), repeated._mean_votes(test_bags))
    close(weighted.left_out_, repeated.left_out_[np.unique(rows, return_index=True)[1]], 1e-5)


def test_one_photo_per_class_is_enough_and_is_never_left_out():
    bags, labels = placed(8, shift=4)
    voter = MomentRidge(class_weight="balanced").fit(bags[:17], labels[:17])
    assert np.isnan(voter.left_out_[:, 0]).nonzero()[0].tolist() == [16]
    assert voter.rejection_threshold_ > 0
    voter = MomentRidge(class_weight="balanced").fit(bags[::8], labels[::8])
    assert voter.score(bags, labels) > 0.8
    assert np.isnan(voter.left_out_).all()
    assert voter.rejection_threshold_ == 0
    assert np.isfinite(voter.predict_proba(bags)).all()


def test_copies_are_left_out_together():
    rng = np.random.default_rng(0)
    bags = Bags.of([rng.random((6, 80)) for _ in range(40)])
    labels = rng.integers(0, 2, 40)  # which mean nothing
    once, twice = MomentRidge().fit(bags, labels), MomentRidge().fit(Bags.join([bags, bags]), np.tile(labels, 2))
    assert twice.folds_[:40].tolist() == twice.folds_[40:].tolist()
    close(twice.left_out_, np.tile(once.left_out_, (2, 1)), 1e-4)
    assert twice.temperature_ > 0.9 * once.temperature_


def test_very_many_photos_are_expressed_by_landmarks_with_nearly_the_same_answers():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 5, 3600)
    values = rng.gamma(0.5, 1.0, (5, 12))[numbers] + 1.3 * rng.random((3600, 12))
    bags = Bags.of(list(values[:, None].astype(np.float32)))
    train, test = bags[:3500], bags[3500:]
    voter = MomentRidge(class_weight="balanced").fit(train, numbers[:3500])
    assert voter.score(test, numbers[3500:]) > 0.8
    assert len(voter.solved_.landmarks) < 3500
    assert not voter.scorer().traces  # it has no coefficients of photos
    vectors = voter.learned().vectors().astype(np.float64)
    for factor, part in zip(voter.solved_.vectors.scale, parts_of(12), strict=True):
        vectors[:, part] *= factor
    exact = Ridge.solve_features(vectors, voter.solved_.ridge.targets, voter.solved_.ridge.weight)
    left_out = exact.left_out(voter.alphas_, voter.folds_).argmax(axis=1)
    assert np.mean(voter.left_out_.argmax(axis=1) == left_out) > 0.97
    np.testing.assert_array_equal(best_strengths(exact, np.arange(3500)), voter.alphas_)
    answers = vectors @ (vectors.T @ exact.coefficients(voter.alphas_))
    answers += exact.intercept - exact.weight @ answers / 3500
    assert np.mean(voter.predict(voter.learned()) == answers.argmax(axis=1)) > 0.97
    pair = voter.learned().rows([1, 5])
    groups = np.arange(3500)
    groups[5] = 1
    together = voter.solved_.ridge.left_out(voter.alphas_, groups)[[1, 5]]
    close(voter.without(np.array([1, 5]))._mean_votes(pair), together, 1e-3)


# --- odd features -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-30, 1e-8, 1.0, 1e8])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_size_of_features_does_not_matter(factor, sign):
    bags, labels = placed(20, shift=3)
    scaled = Bags((bags.values * sign * factor).astype(np.float32), bags.offsets, bags.boxes)
    assert MomentRidge().fit(scaled, labels).score(scaled, labels) > 0.95


def test_features_that_are_too_large_for_products_are_refused():
    bags, labels = placed(4)
    with pytest.raises(ValueError, match="too large for products"):
        MomentRidge().fit(Bags(bags.values * np.float32(3e37), bags.offsets, bags.boxes), labels)


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bias": np.zeros(2)}, "'bias'"),
        ({"class": None}, "'class' is missing"),
        ({"moments": None, "scale": None, "class": None}, "moments of its photos"),
        ({"class": np.zeros(24, int)}, "no training data"),
        ({"scale": np.full((24, 3), -1.0)}, "scales of its photos"),
        ({"dual": np.zeros((24, 2))}, "'dual'"),
        ({"linear": np.full((3, 35), np.inf)}, "not finite"),
    ],
)
def test_inconsistent_arrays_are_refused(change, words, fitted):
    scorer = fitted.scorer()
    scorer.check_all(24)
    arrays = {name: array for name, array in (scorer.arrays | change).items() if array is not None}
    with pytest.raises(ModelError, match=words):
        MomentVotes(arrays, scorer.settings, 3).check_all()
