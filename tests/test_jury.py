"""A jury hears parts and bag together, in a mixture that held-out images choose."""

from __future__ import annotations

import numpy as np
import pytest

from patchvote import SNBNL, Bags, BagSVM, Dense, ImageClassifier, Jury, ModelError, Recipe, export_model, find_photos
from patchvote.models.file import read_model, write_model
from patchvote.models.model import Model, voter_of
from patchvote.photos.decode import load_image
from patchvote.voters.jury_votes import JuryVotes

FEW = SNBNL(2, min_steps=20, power="auto", confidence=0.5)


def make_bags(images: int = 20, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(["a", "b", "c"], images)
    numbers = np.repeat([0, 1, 2], images)
    return [rng.gamma(1.0, 1.0, (12, 5)) + 1.5 * np.eye(5)[n] * (rng.random((12, 1)) < 0.4) for n in numbers], labels


@pytest.fixture(scope="module")
def jury():
    return Jury(parts=FEW).fit(*make_bags())


def test_the_score_is_the_weighted_sum_of_the_members_scores(jury):
    bags, _ = make_bags(5, seed=1)
    expected = jury.balance_[0] * jury.bag_.decision_function(bags) + jury.balance_[1] * jury.parts_.decision_function(
        bags
    )
    np.testing.assert_allclose(jury.decision_function(bags), expected, rtol=1e-6)
    for bag, score in zip(bags, expected, strict=True):
        np.testing.assert_allclose(jury.votes([bag]).mean(axis=0), score, atol=1e-5)


def test_held_out_images_choose_whom_to_believe():
    rng = np.random.default_rng(0)
    numbers = np.tile([0, 1], 40)
    labels = np.array(["a", "b"])[numbers]
    # Means tell nothing of the class: only parts do, whose first two features are both large or small, or one of each.
    parts = []
    for number in numbers:
        sign = np.where(rng.permutation(20) < 10, 1.0, -1.0)
        parts.append(np.stack([3 + sign, 3 + (sign if number == 0 else -sign), 3 + rng.normal(0, 1, 20)], axis=1))
    assert Jury(parts=SNBNL(8, min_steps=300)).fit(parts, labels).share_ > 0.5
    # No part tells the classes apart by itself, but many of them together do.
    noise = [rng.random((40, 4)) + 0.12 * np.eye(4)[n] for n in numbers]
    assert Jury(parts=SNBNL(1, min_steps=1, alpha=100.0)).fit(noise, labels).share_ < 0.5


def test_without_held_out_images_both_count_the_same():
    bags, labels = make_bags(5)
    jury = Jury(parts=FEW, validation_fraction=0).fit(bags, labels)
    assert (jury.share_, jury.temperature_, jury.rejection_threshold_) == (0.5, 1.0, 0.0)
    one_each = Jury(parts=FEW).fit(bags[::5], labels[::5])
    assert one_each.share_ == 0.5


def test_images_of_weight_0_are_left_out():
    bags, labels = make_bags(20)
    weight = np.ones(60)
    weight[::4] = 0
    some = Jury(parts=FEW).fit(bags, labels, weight)
    rest = Jury(parts=FEW).fit([bag for bag, kept in zip(bags, weight, strict=True) if kept], labels[weight > 0])
    np.testing.assert_allclose(some.bag_.linear_, rest.bag_.linear_, atol=1e-6)


def test_a_jury_comes_back_from_a_file_and_learns_more(jury, tmp_path):
    bags, _ = make_bags()
    joined = Bags.of(bags)
    jury.remember(joined, np.repeat([0, 1, 2], 20), np.random.default_rng(0))
    model = Model(
        jury.scorer(), ("a", "b", "c"), ImageClassifier().recipe, "x", jury.temperature_, 0.1, steps=jury.steps_
    )
    write_model(model, tmp_path / "m")
    back = read_model(tmp_path / "m")
    np.testing.assert_allclose(back.scorer.scores(joined), model.scorer.scores(joined), rtol=1e-6)
    again = voter_of(back)
    assert again.steps_ == jury.steps_
    new = [np.random.default_rng(1).gamma(1.0, 1.0, (12, 5)) + 3 * np.eye(5)[4] for _ in range(6)]
    again.learn_more(Bags.of(new), np.array(["d"] * 6), {"a": 240, "b": 240, "c": 240}, np.random.default_rng(0))
    assert again.classes_.tolist() == ["a", "b", "c", "d"]
    assert again.predict(new[:3]).tolist() == ["d"] * 3


def test_members_that_do_not_fit_together_are_refused(jury):
    scorer = jury.scorer()
    for name, array, says in (
        ("balance", np.array([1.0, -1.0]), "'balance' must have 2 numbers, none negative"),
        ("balance", np.zeros(2), "and one above 0"),
        ("parts_mean", np.zeros(3), "its member 'parts': prototypes of the shape"),
        ("bag_bias", np.zeros(2), "its member 'bag': weights of the shape"),
    ):
        wrong = JuryVotes({**scorer.arrays, name: array}, scorer.settings, 3)
        with pytest.raises(ModelError, match=says):
            wrong.check_all()
    with pytest.raises(ValueError, match="a Jury joins a BagSVM and an SNBNL"):
        Jury(bag=SNBNL()).fit(*make_bags(5))
    with pytest.raises(ValueError, match="validation_fraction of Jury must be a number from 0 to 0.9, got 2"):
        Jury(BagSVM(), validation_fraction=2).fit(*make_bags(5))


def test_the_command_line_and_the_graph_know_it(photo_folder, tmp_path):
    import onnxruntime

    small = Recipe(sampling=Dense(sides=(64, 96)))
    classifier = ImageClassifier(small, voter="jury", cache=tmp_path / "cache").fit(photo_folder)
    assert classifier.model.kind == "jury"
    export_model(classifier.model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    photo = find_photos(photo_folder)[3]
    names = [value.name for value in session.get_outputs()]
    told = dict(zip(names, session.run(None, {"photo": np.asarray(load_image(photo))}), strict=True))
    evidence = classifier.explain([photo])
    np.testing.assert_allclose(told["probability"], evidence.probability, atol=1e-4)
    np.testing.assert_allclose(told["scores"], evidence.votes.mean(axis=0), atol=1e-4)
    photos = [np.full((90, 120, 3), (0, 200, grey), np.uint8) for grey in range(0, 60, 10)]
    classifier.add(photos, ["green"] * len(photos))
    assert classifier.predict(photos[:1]).tolist() == ["green"]


def test_a_jury_that_remembers_nothing_cannot_learn_more(jury):
    forgetful = {name: array for name, array in jury.scorer().arrays.items() if "memory" not in name}
    again = Jury.from_scorer(JuryVotes(forgetful, jury.scorer().settings, 3), ["a", "b", "c"])
    assert not again.can_learn_more
