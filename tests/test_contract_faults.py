"""Voters of another package that break the contract: each is refused in a sentence that names it."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from PIL import Image

from helpers.command import network_in
from helpers.packages import install
from helpers.quick_network import QUICK, QuickNetwork
from patchvote import (
    SNBNL,
    Adapted,
    Bags,
    Dense,
    Extractor,
    ImageClassifier,
    Model,
    ModelError,
    MomentRidge,
    PatchvoteError,
    Recipe,
    Store,
    fill,
)
from patchvote.models.evidence import evidence_of
from patchvote.models.file import read_model
from patchvote.models.model import voter_of
from patchvote.voters import registry
from patchvote.voters.settings import from_plain, plain

SOURCE = '''
import numpy as np

from patchvote import Voter
from patchvote.voters.scorer import FLOATS, DescriptorScorer, Schema, Scorer

ANYTHING = lambda value: None


class MeanVotes(Scorer):
    """Votes by the product with the mean of each class."""

    schema = Schema(arrays={"means": (2, FLOATS)})

    @property
    def features(self):
        return self.arrays["means"].shape[1]

    def good(self, bags):
        means = self.arrays["means"].astype(np.float64)
        return bags.values.astype(np.float64) @ means.T - (means**2).sum(axis=1) / 2

    def votes(self, bags):
        return self.good(bags)


class Mean(Voter):
    def __init__(self):
        pass

    def fit(self, X, y=None):
        images, labels = self._read_labelled(X, y, reset=True)
        bags = images.load()[0] if hasattr(images, "load") else images
        numbers = self._set_classes(labels)
        means = bags.means().astype(np.float64)
        self.means_ = np.stack([means[numbers == number].mean(axis=0) for number in range(len(self.classes_))])
        return self


def made(kind, scorer=None, voter=None, base=Mean):
    votes = type(kind + "Votes", (MeanVotes,), {"kind": kind, "__module__": __name__, **(scorer or {})})
    return type(kind, (base,), {"scorer_class": votes, "__module__": __name__, **(voter or {})})


plain = made("plain")

# --- what a scorer returns
flat = made("flat", {"votes": lambda self, bags: self.good(bags)[:, 0]})
fewer = made("fewer", {"votes": lambda self, bags: self.good(bags)[:, :1]})
by_bag = made("by_bag", {"votes": lambda self, bags: bags.means(self.good(bags))})
sometimes = lambda self, bags: np.where(np.arange(len(bags.values))[:, None] % 2, self.good(bags), np.nan)
nan = made("nan", {"votes": sometimes})
a_list = made("a_list", {"votes": lambda self, bags: self.good(bags).tolist()})
imaginary = made("imaginary", {"votes": lambda self, bags: self.good(bags) * 1j})
whole_numbers = made("whole_numbers", {"votes": lambda self, bags: np.rint(100 * self.good(bags)).astype(np.int32)})
odd_scores = made("odd_scores", {"scores": lambda self, bags: bags.means(self.good(bags))[:1]})
large = made("large", {"probability": lambda self, scores, bags, temperature, threshold: scores * 0 + 2})
unequal = made("unequal", {"probability": lambda self, scores, bags, temperature, threshold: scores * 0 + 0.25})
raising = made("raising", {"votes": lambda self, bags: 1 / 0})


class ChunkVotes(DescriptorScorer):
    kind = "chunk"
    schema = MeanVotes.schema
    features = MeanVotes.features

    def vote(self, values):
        return self.arrays["means"] @ values.T


chunk = type("chunk", (Mean,), {"scorer_class": ChunkVotes, "__module__": __name__})


def without_temperature(self, scores, bags, temperature, threshold):
    power = np.exp(scores - scores.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


own_probability = made("own_probability", {"probability": without_temperature})


def zeroed(self, bags):
    bags.values[:] = 0
    return self.good(bags)


changing = made("changing", {"votes": zeroed})


def changing_fit(self, X, y=None):
    X.values[:] = 0
    return Mean.fit(self, X, y)


changing_in_fit = made("changing_in_fit", voter={"fit": changing_fit})

# --- what fit leaves behind


def failing_fit(self, X, y=None):
    raise RuntimeError("the solver did not converge\\nand more lines")


failing = made("failing", voter={"fit": failing_fit})
nothing = made("nothing", voter={"fit": lambda self, X, y=None: Mean.fit(self, X, y) and None})


def without(name):
    def fit(self, X, y=None):
        Mean.fit(self, X, y)
        delattr(self, name)
        return self

    return fit


without_classes = made("without_classes", voter={"fit": without("classes_")})
without_array = made("without_array", voter={"fit": without("means_")})


def reversed_fit(self, X, y=None):
    Mean.fit(self, X, y)
    self.classes_, self.means_ = self.classes_[::-1], self.means_[::-1]
    return self


unsorted = made("unsorted", voter={"fit": reversed_fit})


def object_fit(self, X, y=None):
    Mean.fit(self, X, y)
    self.means_ = self.means_.astype(object)
    return self


objects = made("objects", voter={"fit": object_fit})
seven = made("seven", {"features": property(lambda self: 99)})


class IgnoringVotes(MeanVotes):
    kind = "ignoring"
    schema = Schema(arrays={"means": (2, FLOATS), "bank": (2, FLOATS), "class": (1, ("int64",))})

    def votes(self, bags):
        apart = ((bags.means()[:, None] - self.arrays["bank"][None]) ** 2).sum(axis=-1)
        number = self.arrays["class"]
        scores = [-apart[:, number == one].min(axis=1) for one in range(self.classes)]
        return np.stack(scores, axis=1)[bags.owner]


class ignoring(Mean):
    """Takes weights, and ignores them."""

    scorer_class = IgnoringVotes

    def fit(self, X, y=None, sample_weight=None):
        Mean.fit(self, X, y)
        self.bank_, self.class_ = X.means(), np.searchsorted(self.classes_, y).astype(np.int64)
        return self


class remembering(Mean):
    class scorer_class(MeanVotes):
        kind = "remembering"
        remembers = True

        def matches(self, bags, number):
            count = len(bags.values)
            return np.full(count, 1), bags.boxes, np.zeros(count)


three_numbers = lambda self, bags, number: (np.array([1]),) * 3
wrong_matches = made("wrong_matches", {"remembers": True, "matches": three_numbers})


# --- settings


class hidden(Mean):
    class scorer_class(MeanVotes):
        kind = "hidden"

    def __init__(self, shrink=1.0):
        self.shrink = shrink


class setting(Mean):
    class scorer_class(MeanVotes):
        kind = "setting"
        schema = Schema(arrays={"means": (2, FLOATS)}, settings={"thing": ANYTHING}, unstored=("threads",))

    def __init__(self, thing=None, threads=1, callback=None):
        self.thing, self.threads, self.callback = thing, threads, callback


# --- classes that are wrong as such
class no_scorer(Mean):
    pass


class no_kind(Mean):
    class scorer_class(MeanVotes):
        pass


class strange_scorer(Mean):
    class scorer_class:
        kind = "strange_scorer"


class abstract(Mean):
    class scorer_class(Scorer):
        kind = "abstract"
        schema = Schema(arrays={})


class no_schema(Mean):
    class scorer_class(Scorer):
        kind = "no_schema"
        features = 3

        def votes(self, bags):
            return None


no_fit = made("no_fit", base=Voter)
bad_schema = made("bad_schema", {"schema": Schema(arrays={"means": "float64"})})
text_schema = made("text_schema", {"schema": Schema(arrays={"means": (2, ("<U1",))})})
bad_setting = made("bad_setting", {"schema": Schema(arrays={"means": (2, FLOATS)}, settings={"C": 3})})
needed = made("needed", {"schema": Schema(arrays={"means": (2, FLOATS)}, needed=("C",))})
rows = made("rows", {"row_by_row": ("means", "others")})
collides = made("nbnn")
named_auto = made("auto")
unregistered = made("unregistered")
plain_too = made("plain")
'''
NAMES = [
    "plain",
    "flat",
    "fewer",
    "by_bag",
    "nan",
    "a_list",
    "imaginary",
    "whole_numbers",
    "odd_scores",
    "large",
    "unequal",
    "raising",
    "chunk",
    "own_probability",
    "changing",
    "changing_in_fit",
    "failing",
    "nothing",
    "without_classes",
    "without_array",
    "unsorted",
    "objects",
    "seven",
    "ignoring",
    "remembering",
    "wrong_matches",
    "hidden",
    "setting",
    "no_scorer",
    "no_kind",
    "strange_scorer",
    "abstract",
    "no_schema",
    "no_fit",
    "bad_schema",
    "text_schema",
    "bad_setting",
    "needed",
    "rows",
]
ENTRY_POINTS = "[patchvote.voters]\n" + "\n".join(f"{name} = faulty_voters:{name}" for name in NAMES)
ENTRY_POINTS += """
nbnn = faulty_voters:collides
auto = faulty_voters:named_auto
exits = faulty_exit:Voter
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = install(tmp_path_factory.mktemp("site"), "faulty_voters", SOURCE, ENTRY_POINTS)
    (folder / "faulty_exit.py").write_text("raise SystemExit('good bye')\n")
    return folder


@pytest.fixture
def voters(site, monkeypatch):
    """The module of the other package, whose entry points are installed."""
    monkeypatch.syspath_prepend(site)
    registry._others.cache_clear()
    import faulty_voters

    yield faulty_voters
    sys.modules.pop("faulty_voters", None)
    registry._others.cache_clear()


def photos_and_labels(count: int = 8) -> tuple[list[np.ndarray], list[str]]:
    rng = np.random.default_rng(0)
    shades = [0, 150] * count
    photos = [(rng.integers(0, 90, (64, 64, 3)) + shade).astype(np.uint8) for shade in shades]
    return photos, ["dark" if shade == 0 else "bright" for shade in shades]


def fitted(voter, count: int = 8, **settings) -> ImageClassifier:
    classifier = ImageClassifier(QUICK, voter=voter, backbone=QuickNetwork(), cache=False)
    return classifier.fit(*photos_and_labels(count), **settings)


def bags_and_labels(seed: int = 0, count: int = 12) -> tuple[Bags, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.array(["land", "sea"] * (count // 2))
    return Bags.of([rng.random((5, 3)) + np.eye(3)[int(label == "sea")] for label in labels]), labels


# --- what a scorer returns -------------------------------------------------------------------------------------------

RETURNED = [
    ("flat", r"the voter 'flat' \(faulty_voters:flatVotes\) returned votes of shape \(\d+,\), expected an array of"),
    ("fewer", r"returned votes of shape \(\d+, 1\), expected an array of shape \(\d+, 2\): one row per descriptor"),
    ("by_bag", r"returned votes of shape \(\d+, 2\), expected an array of shape \(\d+, 2\)"),
    ("chunk", r"returned votes of shape \(2, \d+\), expected an array of shape \(\d+, 2\)"),
    ("nan", "returned votes with NaN or infinity, for descriptor 0"),
    ("a_list", "returned votes of the type list"),
    ("imaginary", "returned votes of the type complex128, expected real numbers"),
    ("odd_scores", r"returned scores of shape \(1, 2\).*one row per bag"),
    ("raising", r"the voter 'raising' \(faulty_voters:raisingVotes\) failed: ZeroDivisionError: division by zero"),
]
PROBABILITIES = [
    ("large", "returned probabilities from 2 to 2: they must be from 0 to 1"),
    ("unequal", "whose sum is 0.5: they must sum to 1"),
]


@pytest.mark.parametrize(("kind", "says"), RETURNED)
def test_wrong_votes_are_refused_when_a_voter_predicts_and_while_it_is_fitted(voters, kind, says):
    bags, labels = bags_and_labels()
    voter = getattr(voters, kind)().fit(bags, labels)
    for call in (voter.predict, voter.predict_proba, voter.decision_function):
        with pytest.raises(PatchvoteError, match=says):
            call(bags)
    with pytest.raises(PatchvoteError, match=says):
        fitted(kind)


@pytest.mark.parametrize(("kind", "says"), PROBABILITIES)
def test_wrong_probabilities_are_refused(voters, kind, says):
    bags, labels = bags_and_labels()
    with pytest.raises(PatchvoteError, match=says):
        getattr(voters, kind)().fit(bags, labels).predict_proba(bags)
    with pytest.raises(PatchvoteError, match=says):
        fitted(kind)


@pytest.mark.parametrize(("kind", "says"), [*(one for one in RETURNED if one[0] != "odd_scores"), *PROBABILITIES])
def test_a_model_refuses_them_too(voters, kind, says):
    bags, labels = bags_and_labels()
    voter = getattr(voters, kind)().fit(bags, labels)
    model = Model(voter.scorer(), ("land", "sea"), Recipe(), "abc", 1.0, 0.0)
    with pytest.raises(PatchvoteError, match=says):
        model.probability(Bags.join([bags[0], bags[1]])[:1])
    with pytest.raises(PatchvoteError, match=says):
        evidence_of(model, "a photo", bags[0])


def test_votes_of_whole_numbers_are_votes(voters):
    assert fitted("whole_numbers").scores.summary()["accuracy"] == 1.0


def test_settings_are_compared_by_the_probabilities_of_the_scorer(voters):
    classifier = fitted("own_probability")
    photos, _ = photos_and_labels()
    expected = [
        voters.without_temperature(None, classifier.model.scorer.scores(bag), bag, 9.0, 0.0).max()
        for bag in classifier.extractor(photos)
    ]
    assert classifier.scores.probability.max(axis=1).mean() == pytest.approx(np.mean(expected), abs=0.1)
    assert classifier.model.threshold == pytest.approx(np.quantile(classifier.scores.probability.max(axis=1), 0.05))
    assert list(classifier.predict_or_none(photos)).count("none of these") <= 3


def test_a_scorer_and_a_training_cannot_change_the_bags_of_their_caller(voters):
    bags, labels = bags_and_labels()
    before = bags.values.copy()
    with pytest.raises(PatchvoteError, match="'changing'.*failed: ValueError: .*read-only"):
        voters.changing().fit(bags, labels).predict(bags)
    with pytest.raises(PatchvoteError, match="'changing_in_fit'.*failed: ValueError: .*read-only"):
        fitted("changing_in_fit")
    np.testing.assert_array_equal(bags.values, before)
    assert bags.values.flags.writeable


# --- trainings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (
            "failing",
            r"the voter 'failing' \(faulty_voters:failing\) failed: RuntimeError: the solver did not converge$",
        ),
        ("nothing", "its fit returned None, expected the voter itself"),
        ("without_classes", "its fit set classes_ to None"),
        ("unsorted", "its fit set classes_ to .* expected the sorted classes"),
        ("without_array", "its fit did not set means_, the array 'means' of its schema"),
        ("objects", "the array 'means' has 2 axes of object, expected 2 of float16 or float32 or float64"),
        ("seven", "says that its descriptors have 99 features, but they have 7"),
    ],
)
def test_a_training_that_breaks_the_contract_is_reported_in_a_sentence(voters, kind, says):
    with pytest.raises(PatchvoteError, match=says):
        fitted(kind)


def test_the_command_line_prints_the_sentence_and_shows_the_traceback_on_request(
    voters, site, tmp_path, command, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(site))
    for label, shade in (("bright", 150), ("dark", 0)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for index in range(3):
            pixels = np.full((64, 64, 3), shade + index, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{index}.png")
    network_in(tmp_path)
    words = ("fit", "photos", "m.patchvote", "--network", "tiny.onnx", "--no-cache", "--voter", "failing")
    done = command(*words)
    assert done.code == 1
    assert done.err.strip().splitlines()[-1] == (
        "patchvote: the voter 'failing' (faulty_voters:failing) failed: RuntimeError: the solver did not converge"
    )
    with pytest.raises(PatchvoteError) as error:
        command(*words, "--debug")
    assert isinstance(error.value.__cause__, RuntimeError)


def test_weights_are_not_relied_on_to_hold_photos_out(voters):
    rng = np.random.default_rng(3)
    photos = [rng.integers(0, 255, (64, 64, 3)).astype(np.uint8) for _ in range(60)]
    labels = ["heads", "tails"] * 30  # nothing tells them apart
    classifier = ImageClassifier(QUICK, voter=voters.ignoring(), backbone=QuickNetwork(), cache=False)
    assert classifier.fit(photos, labels).scores.accuracy < 0.9


# --- settings --------------------------------------------------------------------------------------------------------


def test_a_parameter_that_a_model_would_forget_is_refused_by_name(voters):
    with pytest.raises(
        PatchvoteError, match="shrink of hidden is a parameter, but no setting of the schema of 'hidden'"
    ):
        ImageClassifier(QUICK, voter=voters.hidden(0.5), backbone=QuickNetwork())
    with pytest.raises(PatchvoteError, match="shrink of hidden"):
        fitted("hidden")


def test_a_parameter_that_is_declared_as_not_stored_is_accepted(voters):
    assert fitted(voters.setting(3, threads=2, callback=print)).model.scorer.settings == {"thing": 3}


@pytest.mark.parametrize(
    "thing",
    [np.arange(3), {1, 2}, (1, 2), {1: 2}, math.nan, -math.inf, object(), print, "inf", {"a": -math.inf}],
    ids=lambda thing: f"{thing!r:.20}",
)
def test_a_setting_that_would_not_come_back_is_refused_before_the_training(voters, thing):
    with pytest.raises((PatchvoteError, ValueError), match="thing"):
        ImageClassifier(QUICK, voter=voters.setting(thing), backbone=QuickNetwork())


@pytest.mark.parametrize(
    "thing", [math.inf, [1, "a"], {"a": 2.5}, {"a": math.inf}, None, True, "text", np.float64(0.5)]
)
def test_a_setting_that_is_stored_comes_back(voters, thing, tmp_path):
    fitted(voters.setting(thing)).save(tmp_path / "m")
    assert voter_of(read_model(tmp_path / "m")).thing == thing


def test_only_plus_infinity_becomes_text():
    assert (plain(math.inf), from_plain("inf")) == ("inf", math.inf)
    assert plain(-math.inf) == -math.inf
    assert plain({1: 2, "a": 3}) == {1: 2, "a": 3}
    with pytest.raises(ValueError, match="instead of the text 'inf'"):
        plain("inf")
    with pytest.raises(ValueError, match="q of SNBNL must be a number from 1 to 1e\\+30, got -inf"):
        SNBNL(q=-math.inf).fit(*bags_and_labels())


def test_weights_of_classes_that_are_no_text_work_without_a_model_and_are_refused_in_one():
    bags, labels = bags_and_labels()
    numbers = (labels == "sea").astype(int)
    assert set(MomentRidge(class_weight={0: 1.0, 1: 3.0}).fit(bags, numbers).predict(bags)) == {0, 1}
    with pytest.raises(PatchvoteError, match="class_weight must be"):
        ImageClassifier(QUICK, voter=MomentRidge(class_weight={0: 1.0}), backbone=QuickNetwork())


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_of_ours_stay_ours_and_are_not_listed_twice(voters):
    assert "auto" not in registry.kinds()
    assert registry.kinds().count("nbnn") == 1
    assert registry.voter_class("nbnn").__module__.startswith("patchvote.")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("collides", "is 'nbnn', but that is the kind of patchvote.voters.bank_votes:NeighbourVotes"),
        ("named_auto", "is 'auto', a name of patchvote itself"),
        ("unregistered", "'unregistered', is not registered, so that its models could not be read again"),
        ("plain_too", "is 'plain', but that is the kind of faulty_voters:plainVotes"),
    ],
)
def test_a_voter_whose_models_would_not_be_read_again_is_refused_before_the_training(voters, name, says):
    with pytest.raises(PatchvoteError, match=says):
        ImageClassifier(QUICK, voter=getattr(voters, name)(), backbone=QuickNetwork())
    bags, labels = bags_and_labels()
    scorer = getattr(voters, name)().fit(bags, labels).scorer()
    with pytest.raises(ModelError, match=says):
        Model(scorer, ("land", "sea"), Recipe(), "abc", 1.0, 0.0)


def test_two_packages_with_one_name_are_refused(voters, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(
        install(tmp_path / "other", "other_voters", "", "[patchvote.voters]\nplain = other:X\n")
    )
    registry._others.cache_clear()
    with pytest.raises(PatchvoteError, match=r"several packages have a voter 'plain' \(faulty_voters:plain, other:X\)"):
        registry.voter_class("plain")


def test_an_unknown_voter_gets_the_list_once(voters):
    with pytest.raises(PatchvoteError) as error:
        registry.kind_of("xyzzy")
    assert str(error.value).count("local-nbnn") == 1


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("no_scorer", "is no subclass of patchvote.Voter with a scorer"),
        ("no_kind", "whose `kind` is missing or no text: it must be 'no_kind'"),
        ("strange_scorer", "which is no subclass of patchvote.voters.scorer.Scorer"),
        ("abstract", "that does not define features, votes"),
        ("no_schema", "whose `schema` is missing or no Schema"),
        ("no_fit", "faulty_voters:no_fit.* does not define fit"),
        ("bad_schema", "the array 'means' must have a number of axes and a tuple of types among .*, got 'float64'"),
        ("text_schema", "the array 'means' must have a number of axes and a tuple of types among"),
        ("bad_setting", "the setting 'C' must have a function that checks it, got 3"),
        ("needed", "'C' is needed, but no setting"),
        ("rows", "whose row_by_row, .*, is no tuple of its matrices"),
        ("exits", "the voter 'exits' cannot be loaded from faulty_exit:Voter: good bye"),
    ],
)
def test_a_class_that_breaks_the_contract_is_refused_when_it_is_loaded(voters, kind, says):
    with pytest.raises(PatchvoteError, match=says):
        registry.voter_class(kind)


class Fake:
    kind = "moment-ridge"

    def scorer(self):
        return None


def test_what_only_looks_like_a_voter_is_refused_at_once():
    with pytest.raises(PatchvoteError, match="voter must be the name of a voter or an estimator that is one"):
        ImageClassifier(QUICK, voter=Fake(), backbone=QuickNetwork())


# --- matches ---------------------------------------------------------------------------------------------------------


def test_matches_of_a_scorer_that_remembers_name_the_training_photos(voters):
    classifier = fitted("remembering")
    assert len(classifier.model.names) == 16
    evidence = classifier.explain(photos_and_labels()[0][0])
    assert {match.name for match in evidence.matches} == {classifier.model.names[1]}


def test_matches_of_a_voter_that_was_trained_on_a_part_name_the_photos_of_that_part(voters):
    photos, labels = photos_and_labels()
    labels[1] = labels[0]  # a mistake when it is held out; the scorer always matches the second photo it was given
    classifier = ImageClassifier(QUICK, voter="remembering", backbone=QuickNetwork(), cache=False)
    classifier.fit(photos, labels, held_out={"image 1"})
    (mistake,) = [one for one in classifier._mistakes() if one.name == "image 1"]
    assert [pull.name for pull in mistake.pulls] == ["image 2"]  # the second of those that it was given


def test_wrong_matches_are_refused(voters):
    with pytest.raises(PatchvoteError, match="returned matches of the shapes"):
        fitted("wrong_matches").explain(photos_and_labels()[0][0])


# --- adapted ---------------------------------------------------------------------------------------------------------


def test_an_adapted_voter_is_refused_in_a_classifier_which_adapts_its_voter_itself():
    with pytest.raises((PatchvoteError, ValueError), match=r"pass photos of the target to fit\(target=...\)"):
        ImageClassifier(QUICK, voter=Adapted(), backbone=QuickNetwork())


def test_a_target_is_refused_before_any_photo_is_read_where_the_voter_cannot_be_adapted(voters):
    network = QuickNetwork()
    photos, labels = photos_and_labels()
    classifier = ImageClassifier(QUICK, voter=voters.plain(), backbone=network, cache=False)
    with pytest.raises(PatchvoteError, match="a model of plain cannot be adapted to a target"):
        classifier.fit(photos, labels, target=photos)
    assert network.calls == 0
    classifier.fit(photos, labels)
    calls = network.calls
    for call in (classifier.adapt, lambda photos: list(classifier.answers(photos, adapt=True))):
        with pytest.raises(PatchvoteError, match="does not keep what adapting needs"):
            call(photos)
    with pytest.raises(PatchvoteError, match="does not keep what adapting needs"):
        classifier.evaluate(photos, labels, adapt=True)
    assert network.calls == calls


# --- stores ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path) -> Store:
    for label, shade in (("bright", 150), ("dark", 0)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for index in range(4):
            pixels = (np.random.default_rng(index).integers(0, 90, (64, 64, 3)) + shade).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{index}.png")
    extractor = Extractor(Recipe("quick", Dense((64,))), backbone=QuickNetwork())
    fill(tmp_path / "store", tmp_path / "photos", extractor)
    return Store.open(tmp_path / "store")


@pytest.mark.parametrize(
    "make", [MomentRidge, lambda: SNBNL(2, min_steps=5), Adapted, lambda: sys.modules["faulty_voters"].plain()]
)
def test_a_store_is_predicted_block_by_block(voters, store, make, monkeypatch):
    monkeypatch.setattr("patchvote.voters.base._AT_ONCE", 10)
    voter = make().fit(store)
    bags, _ = store.load()
    np.testing.assert_array_equal(voter.predict(store), voter.predict(bags))
    np.testing.assert_allclose(voter.predict_proba(store), voter.predict_proba(bags), rtol=1e-5)
    np.testing.assert_allclose(voter.votes(store), voter.votes(bags), rtol=1e-4, atol=1e-6)
    assert voter.predict_or_none(store).shape == (8,)


def test_temperature_and_threshold_have_defaults_that_do_not_make_a_voter_fitted(voters):
    from sklearn.exceptions import NotFittedError

    voter = voters.plain()
    assert (voter.temperature_, voter.rejection_threshold_) == (1.0, 0.0)
    with pytest.raises(NotFittedError):
        voter.predict(bags_and_labels()[0])
    assert voter.fit(*bags_and_labels()).predict_proba(bags_and_labels()[0]).shape == (12, 2)
