"""Measures of evidence maps: each against its slow definition, or a case with a known answer."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import evidence_classifiers
import evidence_measures as measures
from common import synthetic_bags
from evidence import Measured, draw_collages, figures, pixels_of, split
from evidence_classifiers import Looked, Pooled, Voted, thinned
from evidence_measures import GRID
from patchvote import Bags, Evidence, Extractor, Photo


def perfect(quarter: int) -> np.ndarray:
    """A map that is positive in a quarter and negative elsewhere."""
    return np.where(measures.quarter_mask(quarter), 1.0, -1.0)


# --- collages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quarter", range(4))
def test_a_perfect_map_has_all_of_its_evidence_in_its_quarter_and_points_there(quarter):
    assert measures.own_share(perfect(quarter), quarter) == 1
    assert measures.points_at(perfect(quarter), quarter) == 1
    assert measures.points_at(measures.smoothed(perfect(quarter)), quarter) == 1
    other = (quarter + 1) % 4
    assert measures.own_share(perfect(quarter), other) == measures.points_at(perfect(quarter), other) == 0


def test_random_maps_have_a_quarter_of_their_evidence_in_a_quarter_and_point_there_once_in_four():
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(800, GRID, GRID))
    assert np.mean([measures.own_share(one, 2) for one in maps]) == pytest.approx(0.25, abs=0.01)
    assert np.mean([measures.points_at(one, 2) for one in maps]) == pytest.approx(0.25, abs=0.05)
    assert np.mean([measures.points_at(measures.smoothed(one), 2) for one in maps]) == pytest.approx(0.25, abs=0.05)


def test_the_share_is_what_the_definition_says():
    values = np.random.default_rng(1).normal(size=(GRID, GRID))
    for quarter in range(4):
        inside = total = 0.0
        for y in range(GRID):
            for x in range(GRID):
                total += max(values[y, x], 0)
                inside += max(values[y, x], 0) if (y >= GRID / 2) * 2 + (x >= GRID / 2) == quarter else 0
        assert measures.own_share(values, quarter) == pytest.approx(inside / total)


def test_a_map_that_says_nothing_counts_as_chance():
    assert measures.own_share(-np.ones((GRID, GRID)), 0) == 0.25
    assert measures.points_at(np.zeros((GRID, GRID)), 3) == 0.25


def test_smoothing_prefers_an_area_to_a_single_cell_and_treats_edges_as_the_rest():
    values = np.zeros((GRID, GRID))
    values[1:5, 1:5], values[10, 10] = 0.8, 1.0
    assert measures.points_at(values, 3) == 1
    assert measures.points_at(measures.smoothed(values), 0) == 1
    np.testing.assert_allclose(measures.smoothed(np.ones((GRID, GRID))), 1)


# --- deletion and insertion -------------------------------------------------------------------------------------------


def test_removed_cells_are_those_of_the_blurred_copy_pixel_by_pixel():
    rng = np.random.default_rng(0)
    image, copy = (rng.integers(0, 255, (45, 30, 3)).astype(np.uint8) for _ in range(2))
    mask = rng.random((GRID, GRID)) < 0.4
    found = measures.blended(image, copy, mask)
    for y in range(45):
        for x in range(30):
            expected = copy if mask[int(y / 45 * GRID), int(x / 30 * GRID)] else image
            np.testing.assert_array_equal(found[y, x], expected[y, x])


def test_cells_come_in_the_order_of_the_map_and_equal_ones_in_random_order():
    values = np.round(np.random.default_rng(0).random((GRID, GRID)), 1)
    orders = [measures.cell_order(values, np.random.default_rng(seed)) for seed in (0, 1)]
    for order in orders:
        assert sorted(order) == list(range(GRID * GRID))
        assert (np.diff(values.ravel()[order]) <= 0).all()
    assert (orders[0] != orders[1]).any()
    mask = measures.first_cells(orders[0], 1 / 4)
    assert mask.sum() == GRID * GRID / 4
    assert values[mask].min() >= values[~mask].max()


def test_the_area_under_a_line_is_that_of_the_trapezium_however_the_points_lie():
    shares = [0, 1 / 8, 1 / 4, 1 / 2, 1]
    assert measures.area(shares, [1 - share for share in shares]) == pytest.approx(0.5)
    assert measures.areas(shares[1:-1], 1.0, 0.0, [0, 0, 0, 1, 1, 1]) == pytest.approx((1 / 16, 15 / 16))


def test_deletion_of_a_perfect_map_is_lower_and_insertion_higher_than_of_a_random_one():
    """The classifier sees how much of the white quarter is left."""
    image, black = np.zeros((56, 56, 3), np.uint8), np.zeros((56, 56, 3), np.uint8)
    image[:28, 28:] = 255
    shares = (1 / 8, 1 / 4, 1 / 2)

    def areas_of(values):
        images = measures.steps(image, black, values, shares, np.random.default_rng(0))
        return measures.areas(shares, 1.0, 0.0, [one[:28, 28:].mean() / 255 for one in images])

    random = areas_of(np.random.default_rng(3).random((GRID, GRID)))
    for best, worst in ((areas_of(perfect(1)), random), (random, areas_of(-perfect(1)))):
        assert best[0] < worst[0] - 0.1
        assert best[1] > worst[1] + 0.1
    assert areas_of(perfect(1)) == pytest.approx((1 / 8, 7 / 8), abs=0.002)  # an eighth is 24.5 cells


# --- occlusion and maps of votes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "stride"), [(4, 2), (6, 4), (3, 3)])
def test_the_map_of_occlusion_is_the_mean_drop_over_the_squares_that_cover_a_cell(side, stride):
    masks = measures.windows(side, stride)
    assert all(mask.sum() == side * side for mask in masks)
    drops = np.random.default_rng(0).normal(size=len(masks))
    found = measures.occlusion_map(drops, masks)
    for y in range(GRID):
        for x in range(GRID):
            covering = [drop for drop, mask in zip(drops, masks, strict=True) if mask[y, x]]
            assert found[y, x] == pytest.approx(np.mean(covering))


def test_maps_of_votes_are_those_of_the_evidence():
    rng = np.random.default_rng(0)
    boxes = np.sort(rng.random((20, 2, 2)), axis=1).reshape(20, 4)
    level = np.repeat([0, 1, 2], [1, 4, 15])
    evidence = Evidence("", ("a", "b", "c"), rng.normal(size=(20, 3)), boxes, np.full(3, 1 / 3))
    maps = measures.vote_maps(evidence, level, 1, 0.5)
    np.testing.assert_allclose(maps["votes"], evidence.map("b", GRID, GRID))
    np.testing.assert_allclose(maps["less the strongest other"], evidence.contrast("b", GRID, GRID))
    finest = Evidence("", evidence.classes, evidence.votes[5:], boxes[5:], evidence.probability)
    np.testing.assert_allclose(maps["finest scale"], finest.contrast("b", GRID, GRID))
    powers = np.exp(evidence.votes / 0.5)
    assert maps["softmax"].sum() == pytest.approx((powers[:, 1] / powers.sum(axis=1)).mean())
    others = evidence.votes[:, [0, 2]].mean(axis=1)
    assert maps["less the mean of the others"].sum() == pytest.approx((evidence.votes[:, 1] - others).mean())


@pytest.fixture(scope="module")
def voted():
    """The default voter, trained on synthetic bags; and bags like those."""
    bags, labels = synthetic_bags(4, 14, 20, 32)
    return Voted("moment-ridge", bags, labels), synthetic_bags(4, 2, 20, 32, seed=5)[0]


def test_the_classifier_that_is_asked_gives_the_probabilities_and_votes_of_its_voter(voted):
    classifier, bags = voted
    scores = np.exp(classifier.scores(bags))
    expected = classifier.voter.predict_proba(bags)
    np.testing.assert_allclose(scores / scores.sum(axis=1, keepdims=True), expected, rtol=1e-6)
    evidence = classifier.evidence(Looked(np.zeros((448, 448, 3), np.uint8), bags[1]))
    decision = classifier.scores(bags[1])[0] * classifier.voter.temperature_
    np.testing.assert_allclose(evidence.decision, decision, rtol=1e-4)


def test_training_takes_a_part_of_every_large_bag_with_the_whole_photo():
    bags, _ = synthetic_bags(2, 50, 40, 4)
    assert thinned(bags, 5_000).sizes.tolist() == [40] * 100
    assert thinned(bags, 3_000).sizes.tolist() == [30] * 100
    thin = thinned(bags, 1_000)
    assert thin.sizes.tolist() == [24] * 100  # no fewer, even if that is more in all
    np.testing.assert_array_equal(thin.values[thin.offsets[:-1]], bags.values[bags.offsets[:-1]])


def test_grad_cam_of_a_linear_head_is_its_closed_form():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    features, weights = rng.random((8, 5, 6)), rng.normal(size=(3, 8))
    tensor, matrix = torch.from_numpy(features), torch.from_numpy(weights)
    for number in range(3):
        found = measures.grad_cam(tensor, lambda one: matrix @ one.mean(dim=(1, 2)) + 1.0, number)
        np.testing.assert_allclose(found, measures.grad_cam_of_linear_head(features, weights[number]), atol=1e-12)
        slow = [[max(0, weights[number] @ features[:, y, x] / 30) for x in range(6)] for y in range(5)]
        np.testing.assert_allclose(found, slow, atol=1e-12)
    assert found.max() > 0


def test_grad_cam_of_the_network_in_torch_is_that_of_the_cells_of_the_bag(real_photos):
    pytest.importorskip("torch")
    names = ("brick.png", "coffee.png", "grass.png", "gravel.png")
    photos = [Photo(name, real_photos / name, name) for name in names]
    pixels, extractor = [pixels_of(photo) for photo in photos], Extractor()
    bags = Bags.join([extractor(one) for one in pixels for _ in range(2)])
    classifier = Pooled("efficientnet-lite0", bags, np.repeat(names, 2))
    bag, image = bags[2], pixels[1]
    cells = bag.values[bag.level == 2]
    (maps,) = classifier.maps(Looked(image, bag), [3])
    rows, columns = image.shape[0] // 32, image.shape[1] // 32
    features = cells.T.reshape(-1, rows, columns)
    closed = measures.grad_cam_of_linear_head(features, classifier.weights[3])
    expected = measures.spread(closed.ravel(), bag.boxes[bag.level == 2])
    assert expected.max() > 0
    np.testing.assert_allclose(maps["Grad-CAM"], expected, atol=1e-3 * expected.max())
    np.testing.assert_allclose(classifier.scores(bag)[0], cells.mean(axis=0) @ classifier.weights.T + classifier.bias)


def test_without_torch_grad_cam_is_left_out_in_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(evidence_classifiers, "HAS_TORCH", False)
    bags, labels = synthetic_bags(4, 14, 20, 32)
    (only,) = evidence_classifiers.trained(bags, labels, "efficientnet-lite0", 1_000, ["moment-ridge"])
    assert only.name == "moment-ridge"
    assert "torch is not installed: Grad-CAM is left out." in capsys.readouterr().out
    measured = Measured()
    for name in ("less the strongest other", "random"):
        measured.keep(("collages", "moment-ridge", name), 0, share=0.9, pointing=1.0, smoothed=1.0)
    records = figures(measured.lines("here", {"moment-ridge": only.default}))
    assert [record["peer"] for record in records] == ["random"] * 3


# --- trials -----------------------------------------------------------------------------------------------------------


def test_test_photos_are_no_training_photos_and_collages_have_four_classes():
    photos = [Photo(f"{label}/{index}", Path(f"{index}"), label) for label in "abcdef" for index in range(9)]
    training, test = split(photos, 5)
    assert len(training) == 30
    assert not {photo.name for photo in training} & {photo.name for same in test.values() for photo in same}
    for labels, chosen in draw_collages(test, 20):
        assert len(set(labels)) == 4
        assert [photo.label for photo in chosen] == labels


def test_leads_are_taken_in_pairs_over_the_photos_that_both_maps_have():
    measured = Measured()
    for number, value in enumerate((0.2, 0.4, 0.9)):
        measured.keep(("collages", "snbnl", "own"), number, share=value)
    for number, value in enumerate((0.1, 0.5)):
        measured.keep(("collages", "snbnl", "other"), number, share=value)
    own, other = measured.lines("here", {"snbnl": "own"})
    assert own == {"set": "here", "part": "collages", "classifier": "snbnl", "map": "own", "count": 3} | {
        "share": 0.5,
        "share_error": pytest.approx(np.std([0.2, 0.4, 0.9], ddof=1) / 3**0.5, abs=1e-5),
        "share_lead": 0.0,
        "share_lead_error": 0.0,
    }
    assert (other["count"], other["share"], other["share_lead"]) == (2, 0.3, 0.0)
    assert other["share_lead_error"] == pytest.approx(0.1)
