"""Familiarity: monotone, calibrated on photos of known classes, blind to the order of photos, and safe to read."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.small_models import header_of, with_header
from patchvote import Model, MomentRidge, Recipe
from patchvote.errors import ModelError, PatchvoteError
from patchvote.models.file import read_model, write_model
from patchvote.voters.familiarity import Familiarity, doubt_of

CLASSES, DIM = 3, 8
# Of the classes, which have something in common, and of strangers, which do not.
PLACES = np.concatenate([[2.0, 2.0, 0, 0, 0, 0, 0, 0] + 2 * np.eye(DIM)[2 : 2 + CLASSES], 4 * np.eye(DIM)[[7]]])


def photos(count, rng, numbers=None):
    """Vectors of photos around the places of their classes, and probabilities that are right most of the time."""
    numbers = rng.integers(0, CLASSES, count) if numbers is None else numbers
    means = PLACES[numbers] + 0.5 * rng.random((count, DIM))
    odds = rng.normal(0, 1, (count, CLASSES)) + 3 * (np.arange(CLASSES) == numbers[:, None])
    probability = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    return unit(means), numbers, probability


def unit(vectors):
    vectors = np.sign(vectors) * np.sqrt(np.abs(vectors))
    size = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(size > 0, size, 1)


def learn(vectors, numbers, probability, groups=None, **settings):
    every = np.arange(len(numbers))
    return Familiarity.learned(vectors, numbers, every if groups is None else groups, every, probability, **settings)


def learned(count=200, seed=0, rejection=0.05):
    means, numbers, probability = photos(count, np.random.default_rng(seed))
    numbers[:CLASSES] = np.arange(CLASSES)
    return learn(means, numbers, probability, rejection=rejection)[0]


@pytest.fixture(scope="module")
def familiarity():
    return learned()


def test_strangeness_is_that_of_the_definition(familiarity):
    """Written out photo by photo and class by class."""
    means, _, probability = photos(20, np.random.default_rng(1))
    (doubt_centre, doubt_unit), (centre, unit) = familiarity.scales
    for mean, row, found in zip(means, probability, familiarity.strangeness(probability, means), strict=True):
        distances = [
            np.sqrt(np.sum((mean - class_mean) ** 2) / (1 + 1 / count))
            for class_mean, count in zip(familiarity.means.astype(float), familiarity.counts, strict=True)
        ]
        doubt = np.log((1 - row.max()) / row.max())
        signs = (doubt - doubt_centre) / doubt_unit, (min(distances) - centre) / unit
        assert found == pytest.approx(np.log(np.exp(signs[0]) + np.exp(signs[1])), abs=1e-5)


def test_what_is_learned_is_that_of_the_definition():
    vectors, numbers, probability = photos(60, np.random.default_rng(2))
    groups = np.arange(60) // 2  # of which no photo is compared with another
    familiarity, shares = learn(vectors, numbers, probability, groups)
    own, other = [], []
    for image in range(60):
        distances = []
        for number in range(CLASSES):
            rows = np.flatnonzero((numbers == number) & (groups != groups[image]))
            distance = np.sum((vectors[image] - vectors[rows].mean(axis=0)) ** 2) / (1 + 1 / len(rows))
            distances.append(np.sqrt(distance))
        own.append(min(distances))
        other.append(min(d for number, d in enumerate(distances) if number != numbers[image]))
    doubt = doubt_of(probability)
    doubt_unit = max(doubt.std(), 1)
    unit = max(0.5 * (np.mean(other) - np.mean(own)), np.std(own))
    np.testing.assert_allclose(familiarity.scales, [[doubt.mean(), doubt_unit], [np.mean(own), unit]], atol=1e-9)
    strangeness = np.logaddexp((doubt - doubt.mean()) / doubt_unit, (np.array(own) - np.mean(own)) / unit)
    np.testing.assert_allclose(familiarity.held_out, np.sort(strangeness), atol=1e-6)
    np.testing.assert_allclose(shares, [np.mean(strangeness >= one) for one in strangeness])
    for number in range(CLASSES):
        np.testing.assert_allclose(familiarity.means[number], vectors[numbers == number].mean(axis=0), atol=1e-6)
    assert familiarity.counts.tolist() == np.bincount(numbers).tolist()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=2, max_size=30), st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20))
def test_stranger_is_less_familiar(held_out, asked):
    held_out = np.sort(np.array(held_out))
    familiarity = Familiarity(np.zeros((2, 1)), np.ones(2, np.int64), np.ones((2, 2)), held_out, 1.0)
    shares = familiarity.share(np.sort(np.array(asked)))
    assert (np.diff(shares) <= 1e-15).all()  # which rounding may make
    assert ((shares >= 0) & (shares <= 1)).all()
    beyond = familiarity.share(held_out[-1] + np.array([0.5, 1.0, 2.0]))
    assert (np.diff(beyond) < 0).all()


@pytest.mark.parametrize("rejection", [0.02, 0.05, 0.2])
def test_the_share_of_known_photos_that_is_rejected_is_what_was_asked_for(rejection):
    """On exchangeable photos, over many draws."""
    shares = []
    for seed in range(40):
        means, numbers, probability = photos(450, np.random.default_rng(seed))
        # Class means that come from elsewhere, so that held-out and new photos are treated alike.
        kept, out, new = np.arange(150), np.arange(150, 300), np.arange(300, 450)
        single = np.arange(450)
        familiarity, _ = Familiarity.learned(means[:300], numbers[:300], single[:300], out, probability[out], rejection)
        elsewhere, _ = learn(means[kept], numbers[kept], probability[kept])
        familiarity = dataclasses.replace(familiarity, means=elsewhere.means, counts=elsewhere.counts)
        shares.append(np.mean(familiarity.of(probability[new], means[new]) < rejection))
    error = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) == pytest.approx(rejection, abs=3 * error)


def test_photos_learned_later_are_as_familiar_as_if_they_had_been_there():
    rng = np.random.default_rng(5)
    means, numbers, probability = photos(120, rng)
    numbers[:60] %= 2
    means[:60] = unit(PLACES[numbers[:60]] + 0.5 * rng.random((60, DIM)))
    before, _ = learn(means[:60], numbers[:60], probability[:60])
    names, more = np.array(["b", "c"]), np.array(["a", "b", "c"])  # the new class comes first
    as_more = np.array([1, 2, 0])[numbers]
    after = before.with_photos(means[60:], as_more[60:], np.searchsorted(more, names), 3)
    for number in range(3):
        np.testing.assert_allclose(after.means[number], means[as_more == number].mean(axis=0), atol=1e-6)
    assert after.counts.tolist() == np.bincount(as_more).tolist()
    new = means[60:][as_more[60:] == 0]
    sure = np.eye(3)[[0] * len(new)]
    assert np.median(before.of(sure[:, :2], new)) < np.median(after.of(sure, new)) / 2


def test_vectors_of_any_size_and_sign_are_measured():
    means, numbers, probability = photos(60, np.random.default_rng(6))
    for change in (lambda m: m * 1e-6, lambda m: m * 1e6, lambda m: m - 2, lambda m: np.ones_like(m), np.zeros_like):
        changed = change(means)
        familiarity, shares = learn(changed, numbers, probability)
        assert familiarity.fault(CLASSES, DIM) is None
        assert np.isfinite(familiarity.of(probability, changed)).all()
        assert np.mean(shares < 0.05) <= 0.05
    nothing = np.zeros(0, np.int64)  # no photo was left out
    assert Familiarity.learned(means, numbers, np.arange(60), nothing, probability[:0]) == (None, None)


def test_a_model_keeps_a_bounded_number_of_held_out_photos(monkeypatch):
    monkeypatch.setattr("patchvote.voters.familiarity._MOST_HELD_OUT", 50)
    few = learned(count=500)
    monkeypatch.undo()
    all_of_them = learned(count=500)
    assert len(few.held_out) == 50
    assert (few.held_out[0], few.held_out[-1]) == (all_of_them.held_out[0], all_of_them.held_out[-1])
    strange = np.linspace(-1, 5, 30)
    np.testing.assert_allclose(few.share(strange), all_of_them.share(strange), atol=0.05)


def model_of(familiarity):
    rng = np.random.default_rng(0)
    voter = MomentRidge().fit(rng.random((12, 6)), list("abc") * 4)
    fitting = dataclasses.replace(familiarity, means=np.asarray(familiarity.means[:, :6]))
    return Model(voter.scorer(), ("a", "b", "c"), Recipe(), "abc", 0.5, 0.1, familiarity=fitting)


HOSTILE = {
    "means": [np.zeros((2, 6)), np.zeros((3, 5)), np.zeros(3), np.full((3, 6), np.nan), np.full((3, 6), 1e30)],
    "counts": [np.zeros(3, np.int64), np.ones(2, np.int64), np.ones(3), np.array([1, 2, -(2**63)])],
    "scales": [np.ones((2, 3)), np.zeros((2, 2)), np.array([[0, 1], [0, -1.0]]), np.full((2, 2), np.inf)],
    "held_out": [np.zeros(0), np.array([2.0, 1.0]), np.array([np.nan]), np.ones((2, 2)), np.array([1, 2])],
    "rejection": [-0.1, 1.5, float("nan")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_training_produces_is_refused_also_in_a_file(name, familiarity, tmp_path):
    model = model_of(familiarity)
    for value in HOSTILE[name]:
        wrong = dataclasses.replace(model.familiarity, **{name: value})
        with pytest.raises(ModelError, match="familiarity"):
            dataclasses.replace(model, familiarity=wrong)
        if name != "rejection":
            hostile = dataclasses.replace(model)
            object.__setattr__(hostile, "familiarity", wrong)  # as nobody can make it
            write_model(hostile, tmp_path / "m")
            with pytest.raises(ModelError, match=f"familiarity|{name}"):
                read_model(tmp_path / "m")
    write_model(model, tmp_path / "m")
    for header in (None, 7, {}, {"power": 0.5}, {"rejection": "0.05"}):
        text = json.dumps(header_of(tmp_path / "m") | {"familiarity": header})
        with pytest.raises(ModelError, match="familiarity"):
            read_model(with_header(tmp_path / "m", tmp_path / "hostile", text))


def test_a_wrong_threshold_is_refused_in_a_sentence(familiarity):
    model = model_of(familiarity)
    assert model.limit() == 0.05
    assert model.limit(0) == 0.0
    for wrong in (-0.1, 1.0, 2, True, "0.1", float("nan")):
        with pytest.raises(PatchvoteError, match="threshold must be a share of photos"):
            model.limit(wrong)
    with pytest.raises(PatchvoteError, match="Fit it again"):
        dataclasses.replace(model, familiarity=None).limit(0.1)
