from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from patchvote import Evidence, PatchvoteError, Photo
from patchvote.models.evidence import Match
from patchvote.models.report.picture import draw, draw_matches, encoded, glow


def some_evidence(count: int = 20, seed: int = 0, boxes: np.ndarray | None = None) -> Evidence:
    rng = np.random.default_rng(seed)
    if boxes is None:
        corners = np.sort(rng.uniform(0, 1, (count, 2, 2)), axis=1)
        boxes = corners.reshape(count, 4)
    votes = rng.normal(size=(count, 3))
    return Evidence("photo.jpg", ("cat", "dog", "fox"), votes, boxes, np.array([0.2, 0.5, 0.3]))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 1000))
def test_a_map_adds_up_to_the_decision_value(width, height, seed):
    evidence = some_evidence(seed=seed)
    for number, label in enumerate(evidence.classes):
        assert evidence.map(label, width, height).sum() == pytest.approx(evidence.decision[number], abs=1e-9)


def test_a_map_is_what_the_definition_says():
    evidence = some_evidence(5)
    found = evidence.map("dog", 16, 12)
    expected = np.zeros((12, 16))
    for vote, (left, top, right, bottom) in zip(evidence.votes[:, 1], evidence.boxes, strict=True):
        for y in range(12):
            for x in range(16):
                wide = max(0, min(right, (x + 1) / 16) - max(left, x / 16)) / (right - left)
                high = max(0, min(bottom, (y + 1) / 12) - max(top, y / 12)) / (bottom - top)
                expected[y, x] += vote / 5 * wide * high
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_box_smaller_than_a_pixel_keeps_its_vote():
    evidence = some_evidence(1, boxes=np.array([[0.51, 0.51, 0.52, 0.52]]))
    found = evidence.map("cat", 2, 2)
    assert found[1, 1] == pytest.approx(evidence.votes[0, 0])
    assert np.count_nonzero(found) == 1


def test_contrast_is_the_vote_less_the_strongest_for_another():
    evidence = some_evidence()
    others = evidence.votes[:, [0, 2]].max(axis=1)
    np.testing.assert_allclose(evidence.advantage("dog"), evidence.votes[:, 1] - others)
    assert evidence.contrast("dog", 8, 8).sum() == pytest.approx(evidence.advantage("dog").mean())


def test_a_mistyped_class_gets_the_nearest_right_one():
    with pytest.raises(PatchvoteError, match="no class 'dgo'. Did you mean 'dog'"):
        some_evidence().map("dgo", 2, 2)


def test_the_photo_is_lit_where_it_speaks_for_the_class_and_dim_elsewhere():
    boxes = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    votes = np.array([[5.0, 0, 0], [0, 5.0, 0]])
    evidence = Evidence("photo.jpg", ("cat", "dog", "fox"), votes, boxes, np.array([0.4, 0.4, 0.2]))
    image = Image.new("RGB", (160, 80), (200, 60, 60))
    lit = np.asarray(glow(evidence, image, "cat"), np.int64)
    assert lit[40, 20, 0] - lit[40, 20, 2] > 80  # red, as the photo is
    assert np.ptp(lit[40, 140]) < 5  # grey
    dog = np.asarray(glow(evidence, image, "dog"), np.int64)
    assert np.ptp(dog[40, 20]) < 5


@pytest.mark.parametrize("size", [(1, 1), (3, 400), (400, 3), (640, 480)])
def test_pictures_are_drawn_of_photos_of_any_size_and_mode(size):
    for mode in ("L", "RGB"):
        picture = draw(some_evidence(), Image.new(mode, size, 90), side=120)
        assert picture.mode == "RGB"
        assert encoded(picture)[:4] == b"\x89PNG"


def test_matches_are_drawn_beside_the_parts_that_they_match():
    match = Match((0, 0, 0.5, 0.5), "red.jpg", (0.5, 0.5, 1, 1), 0.1)
    gone = Match((0, 0, 0.5, 0.5), "gone.jpg", (0.5, 0.5, 1, 1), 0.1)
    evidence = Evidence(
        "p.jpg", ("a", "b"), np.zeros((1, 2)), np.array([[0, 0, 1, 1]]), np.array([0.5, 0.5]), (match, gone)
    )
    other = Image.new("RGB", (100, 100), (255, 0, 0))
    picture = np.asarray(draw_matches(evidence, Image.new("RGB", (100, 100), (0, 0, 255)), {"red.jpg": other}, side=60))
    assert tuple(picture[30, 40]) == (0, 0, 255)
    assert tuple(picture[100, 40]) == (255, 0, 0)
    assert picture.shape[1] < 120  # one column: the photo that is gone is left out


def test_evidence_is_drawn_beside_its_photo_or_without_it_if_that_is_gone(tmp_path):
    path = tmp_path / "p.png"
    Image.effect_noise((90, 60), 80).convert("RGB").save(path)
    evidence = dataclasses.replace(some_evidence(), photo=Photo("p.png", path))
    shown = np.asarray(evidence.plot(["cat"], side=90), float)[12:72, 12:102]
    assert np.abs(shown - np.asarray(Image.open(path))).mean() < 3
    assert evidence._repr_png_()[:4] == b"\x89PNG"
    path.unlink()
    assert evidence.plot(side=80).width > 240
