"""Adapting to another camera gains accuracy, and must not make a voter confidently wrong."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.photo_bags import GAINS, OFFSETS, photos, scenes, strangers
from patchvote import Adapted, MomentRidge
from patchvote.voters.adapted import AdaptationWarning, _Domains
from patchvote.voters.votes import NONE


@pytest.fixture(scope="module")
def domains():
    source, labels = scenes(90, seed=1)
    target, expected = scenes(90, seed=2)
    return source, labels, [bag * GAINS + OFFSETS for bag in target], expected


@pytest.fixture(scope="module")
def source():
    return photos(120, seed=1)


# --- another camera ---------------------------------------------------------------------------------------------------


def test_photos_of_another_camera_are_named_better_once_it_is_adapted():
    plain, adapted, insisted = [], [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        gains, offsets = np.exp(0.4 * rng.standard_normal(24)), rng.random(24) / 2
        target, expected = scenes(90, seed=10 + seed)
        target = [bag * gains + offsets for bag in target]
        voter = Adapted().fit(*scenes(90, seed=20 + seed), target)
        plain.append(voter.unadapted_.score(target, expected))
        adapted.append(voter.score(target, expected))
        insisted.append(Adapted(insist=True).fit(voter.unadapted_, target=target).score(target, expected))
    assert np.mean(adapted) > np.mean(plain) + 0.05
    assert np.mean(insisted) > np.mean(plain) + 0.1  # all photos take part, where otherwise one target is refused
    assert (np.array(adapted) >= plain).all()


@pytest.mark.parametrize("shown", [["sea"], ["sea", "sky"]], ids=" and ".join)
@pytest.mark.parametrize("gain", [1.0, GAINS], ids=["same camera", "other camera"])
def test_a_target_that_shows_some_classes_only_is_not_taken_for_another_camera(shown, gain):
    target, expected = scenes(90, seed=3)
    chosen = np.isin(expected, shown)
    target = [bag * gain for bag, own in zip(target, chosen, strict=True) if own]
    adapted = Adapted().fit(*scenes(90, seed=1), target)
    assert adapted.score(target, expected[chosen]) >= adapted.unadapted_.score(target, expected[chosen])


def test_labels_of_some_photos_of_the_target_are_used_and_kept(domains):
    _, _, target, expected = domains
    # Where the target calls sea what the source calls land, only labels can tell.
    swapped = np.array([{"land": "sea", "sea": "land"}.get(label, label) for label in expected])
    few, names = scenes(30, seed=4)
    adapted = Adapted().fit(few, names, target, [str(label) for label in swapped[:60]] + [None] * 30)
    plain = Adapted().fit(few, names, target)
    assert not adapted.rejected_[:60].any()  # whose classes are known
    assert adapted.score(target[60:], swapped[60:]) > plain.score(target[60:], swapped[60:]) + 0.2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": [np.ones((2, 5))]}, "5 features"),
        ({"target_y": ["sea"]}, "1 labels"),
        ({"target_y": ["town"] + [None] * 89}, "'town'"),
        ({"target": [np.full((2, 24), np.nan)]}, "NaN"),
    ],
)
def test_photos_that_do_not_fit_are_refused(change, words, domains):
    source, labels, target, _ = domains
    with pytest.raises(ValueError, match=words):
        Adapted().fit(source, labels, **{"target": target, **change})


# --- strangers and what looks unsafe ----------------------------------------------------------------------------------


def test_strangers_stay_rejected_and_take_no_part_where_known_photos_are_adapted_to(source):
    known, expected = photos(60, seed=2)
    adapted = Adapted().fit(*source, known + strangers())
    plain = adapted.unadapted_
    assert adapted.refusal_ is None
    assert (plain.predict_or_none(strangers()) == NONE).all()
    assert (adapted.predict_or_none(strangers()) == NONE).all()
    assert adapted.rejected_[60:].all()
    assert adapted.score(known, expected) >= plain.score(known, expected)
    same = Adapted().fit(*source, known + strangers(seed=6))
    np.testing.assert_allclose(adapted.decision_function(known), same.decision_function(known), atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_without_insisting_no_stranger_is_newly_named(seed):
    source, labels = scenes(90, seed=seed)
    known, _ = scenes(60, seed=10 + seed)
    rng = np.random.default_rng(seed)
    strange = [np.abs(rng.standard_normal((8, 24)) + 2 * rng.gamma(0.4, 1.0, 24)) for _ in range(60)]
    target = [bag * GAINS + OFFSETS for bag in known + strange]
    adapted = Adapted().fit(source, labels, target)
    before, after = adapted.unadapted_.predict_or_none(target), adapted.predict_or_none(target)
    assert (before == NONE).any()
    np.testing.assert_array_equal(after == NONE, before == NONE)


def test_photos_unlike_anything_learned_are_not_adapted_to_unless_one_insists(source):
    with pytest.warns(AdaptationWarning, match=r"not adapted: .* confident about 0 of 25 photos.*--insist"):
        careful = Adapted().fit(*source, strangers())
    plain = MomentRidge.default(0).fit(*source)
    np.testing.assert_array_equal(careful.predict_proba(strangers()), plain.predict_proba(strangers()))
    assert (careful.taken_, careful.adapted_) == (0, False)
    assert "unadapted_linear" not in careful.scorer().arrays
    insisting = Adapted(insist=True).fit(*source, strangers())
    assert insisting.refusal_ is None
    assert insisting.taken_ > 0
    assert (insisting.predict_or_none(strangers()) != NONE).all()  # which the caller guarantees


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda linear, bias: (linear, bias + np.array([100.0, 0, 0])), r"would name \d+ .* 'land'"),
        (lambda linear, bias: (np.roll(linear, 1, axis=0), np.roll(bias, 1)), "is confident about"),
    ],
    ids=["collapsed", "overturned"],
)
def test_answers_that_collapse_or_overturn_confident_ones_are_refused(source, monkeypatch, change, says):
    target, original = photos(60, seed=2)[0], _Domains.linear

    def changed(self):
        linear, bias, temperature = original(self)
        return *change(linear, bias), temperature

    monkeypatch.setattr(_Domains, "linear", changed)
    with pytest.warns(AdaptationWarning, match=says):
        adapted = Adapted().fit(*source, target)
    np.testing.assert_array_equal(adapted.predict_proba(target), adapted.unadapted_.predict_proba(target))
    assert Adapted(insist=True).fit(*source, target).adapted_
