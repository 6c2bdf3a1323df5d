"""NBNN and LocalNBNN, with a bank in memory, or in a store that is larger than memory."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone

from patchvote import NBNN, Bags, LocalNBNN, Model, PatchvoteError, Recipe
from patchvote.models.file import read_model, write_model
from patchvote.voters import bank_votes, nbnn
from test_scale import make_store
from test_voters import make_bags


def double_loop(train: list, labels: np.ndarray, test: list, neighbours: int) -> tuple[np.ndarray, np.ndarray]:
    """The paper's equation: argmin over classes of the sum of mean squared distances to the nearest of the class."""
    classes = np.unique(labels)
    sums = np.zeros((len(test), len(classes)))
    for row, image in enumerate(test):
        for column, label in enumerate(classes):
            support = np.concatenate([bag for bag, own in zip(train, labels, strict=True) if own == label])
            for x in image:
                sums[row, column] += np.mean(sorted(float(((x - w) ** 2).sum()) for w in support)[:neighbours])
    return classes[sums.argmin(axis=1)], sums


def centred_unit(bags: list[np.ndarray], train: list[np.ndarray]) -> list[np.ndarray]:
    mean = np.concatenate(train).mean(axis=0)
    return [(bag - mean) / np.linalg.norm(bag - mean, axis=1, keepdims=True) for bag in bags]


# --- votes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("normalise", "neighbours"), [(False, 1), (True, 1), (False, 3)])
def test_votes_equal_the_double_loop_of_the_definition(normalise, neighbours):
    (train, labels), (test, _) = make_bags(24, seed=1), make_bags(9, seed=2)
    prepared = [centred_unit(bags, train) for bags in (train, test)] if normalise else (train, test)
    expected, sums = double_loop(prepared[0], labels, prepared[1], neighbours)
    voter = NBNN(neighbours, normalise=normalise).fit(train, labels)
    assert voter.predict(test).tolist() == expected.tolist()
    sizes = np.array([len(bag) for bag in test])[:, None]
    np.testing.assert_allclose(-voter.decision_function(test) * sizes, sums, rtol=1e-4, atol=1e-5)


def test_local_votes_are_the_lead_over_the_background():
    (train, labels), (test, _) = make_bags(12, seed=1), make_bags(3, seed=2)
    voter = LocalNBNN(n_neighbors=5, normalise=False).fit(train, labels)
    bank, owner = np.concatenate(train), np.repeat(labels, [len(bag) for bag in train])
    votes = voter.votes(test)
    for row, x in enumerate(np.concatenate(test)):
        distances = ((bank - x) ** 2).sum(axis=1)
        order = np.argsort(distances)[:6]
        for column, label in enumerate(voter.classes_):
            own = [distances[index] for index in order[:-1] if owner[index] == label]
            expected = distances[order[-1]] - min(own) if own else 0.0
            assert votes[row, column] == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("voter", [NBNN(), NBNN(3), LocalNBNN()], ids=str)
def test_partial_fit_equals_a_refit_exactly(voter):
    (train, labels), (test, _) = make_bags(60, classes=4, seed=1), make_bags(9, classes=4, seed=2)
    bags = Bags.of(train)
    order = np.argsort(labels == "sea", kind="stable")  # a class that comes only at the end
    whole, parts = clone(voter).fit(bags[order], labels[order]), clone(voter).fit(bags[order[:20]], labels[order[:20]])
    for start in (20, 40):
        parts.partial_fit(bags[order[start : start + 20]], labels[order[start : start + 20]])
    assert parts.classes_.tolist() == whole.classes_.tolist()
    np.testing.assert_array_equal(parts.values_, whole.values_)
    np.testing.assert_array_equal(parts.votes(test), whole.votes(test))


@pytest.mark.parametrize("kind", [NBNN, LocalNBNN])
def test_the_approximate_search_names_as_well_and_tells_its_recall(kind):
    rng = np.random.default_rng(0)
    centres, labels = rng.normal(size=(3, 160)), np.arange(90) % 3
    bags = [(rng.normal(size=(40, 160)) * 0.98 ** np.arange(160) + centres[one]).astype(np.float32) for one in labels]
    voter = kind(search="pca").fit(bags[:60], labels[:60])
    assert voter.score(bags[60:], labels[60:]) > 0.95
    assert 0.3 < voter.recall_ <= 1
    assert kind().fit(bags[:6], labels[:6]).recall_ == 1


# --- a bank that is larger than memory --------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store")


@pytest.fixture
def queries(tmp_path):
    return make_store(tmp_path / "queries", 12, seed=5)


def no_memory(monkeypatch) -> None:
    """Every store is too large for memory, and is searched 70 descriptors at a time, for as many queries."""
    monkeypatch.setattr(nbnn, "needed", lambda *_: 1e9)
    monkeypatch.setattr(bank_votes, "_MOST", 70)


def fitted_both(voter, store, monkeypatch, **more):
    """Return the voter with its bank in memory, and in the store."""
    whole = clone(voter).fit(store, **more)
    no_memory(monkeypatch)
    parts = clone(voter).fit(store, **more)
    assert parts.scorer().on_disk
    assert not whole.scorer().on_disk
    return whole, parts


@pytest.mark.parametrize(
    "voter",
    [
        NBNN(),
        NBNN(3, normalise=False, confidence=0.5),
        NBNN(search="pca"),
        LocalNBNN(4, normalise=False, confidence=1.0),
    ],
    ids=str,
)
def test_votes_are_those_of_the_bank_in_memory(voter, store, queries, monkeypatch):
    weight = np.ones(60)
    weight[::4] = 0
    whole, parts = fitted_both(voter, store, monkeypatch, sample_weight=weight)
    assert len(parts.values_) == 45 * 20
    np.testing.assert_array_equal(np.asarray(parts.values_), whole.values_)
    np.testing.assert_array_equal(parts.image_, whole.image_)
    np.testing.assert_array_equal(parts.mean_, whole.mean_)
    np.testing.assert_array_equal(parts.votes(queries), whole.votes(queries))
    assert parts.recall_ == 1
    again = pickle.loads(pickle.dumps(parts))
    np.testing.assert_array_equal(again.predict(queries), whole.predict(queries))


def test_wide_descriptors_have_the_distances_of_the_search_by_bounds(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store", 300, dim=200)
    whole, parts = fitted_both(NBNN(), store, monkeypatch)
    monkeypatch.setattr(bank_votes, "_MOST", 700)
    some = store.only(store.names[:5])
    assert whole.scorer()._rotation is not None
    np.testing.assert_allclose(parts.votes(some), whole.votes(some), rtol=1e-5, atol=1e-6)


def test_a_match_names_the_training_image_and_box(store, monkeypatch):
    bags, labels = store.load([4])
    for voter in fitted_both(NBNN(), store, monkeypatch):
        images, boxes, distances = voter.matches(bags, labels[0])
        assert (images == 4).all()
        np.testing.assert_array_equal(boxes, bags.boxes)
        np.testing.assert_allclose(distances, 0, atol=1e-6)


def test_more_images_are_added_to_a_bank_in_memory_only(store, queries, monkeypatch):
    first, rest = store.only(store.names[:30]), store.only(store.names[30:])
    whole = NBNN().fit(store)
    grown = NBNN().fit(first).partial_fit(rest)
    np.testing.assert_array_equal(grown.votes(queries), whole.votes(queries))
    no_memory(monkeypatch)
    for voter in (NBNN().fit(first), grown):
        with pytest.raises(PatchvoteError, match="larger than memory"):
            voter.partial_fit(rest)


def test_a_model_of_a_bank_on_disk_holds_it(store, queries, tmp_path, monkeypatch):
    _, voter = fitted_both(NBNN(), store, monkeypatch)
    write_model(Model(voter.scorer(), tuple(voter.classes_), Recipe(), "abc", 1.0, 0.0), tmp_path / "m")
    bags = queries.load()[0]
    np.testing.assert_array_equal(read_model(tmp_path / "m").scorer.votes(bags), voter.votes(bags))


MEASURED = """
import sys
from patchvote import NBNN, LocalNBNN, Store
from patchvote.utils.machine import forget_peak_memory, give_back_memory, peak_memory
store = Store.open(sys.argv[1])
voter = {"nbnn": NBNN, "local-nbnn": LocalNBNN}[sys.argv[2]]()
small = store.only(store.names[:15])
voter.fit(small).predict(small.only(small.names[:1]))
give_back_memory()
forget_peak_memory()
before = peak_memory()
fitted = voter.set_options(memory=float(sys.argv[3])).fit(store)
fitted.predict(store.only(store.names[:3]))
assert fitted.scorer().on_disk
print((peak_memory() - before) / 1e6)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory can only be reset on Linux")
@pytest.mark.parametrize("kind", ["nbnn", "local-nbnn"])
def test_the_measured_peak_stays_below_the_budget(kind, tmp_path):
    make_store(tmp_path, 75, dim=1024, size=250)  # 38 MB in the store, 390 in memory
    words = [sys.executable, "-c", MEASURED, tmp_path, kind, "170"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert float(done.stdout) < 170
