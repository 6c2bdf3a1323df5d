"""NBNN and LocalNBNN over a bank that is larger than memory: the answers of a bank in memory, within the budget."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest
from patchvote.utils.row_file import RowFile
from sklearn.base import clone

from patchvote import NBNN, Bags, LocalNBNN, Model, ModelError, Recipe, Store
from patchvote.bags.shards import Entry, write_shard
from patchvote.models import file
from patchvote.models.file import read_model, write_model
from patchvote.models.model import voter_of
from patchvote.voters import bank_votes, nbnn
from test_nbnn import double_loop
from test_scale import make_store


@pytest.fixture
def in_file(monkeypatch):
    """Every store is too large for memory, and a part of its bank has 70 descriptors, for 90 queries at a time."""
    small_parts(monkeypatch)


def small_parts(monkeypatch) -> None:
    monkeypatch.setattr(nbnn, "needed", lambda *_: 1e9)
    monkeypatch.setattr(bank_votes, "_MOST_ROWS", 70)
    monkeypatch.setattr(bank_votes, "_MOST_QUERIES", 90)


def fitted_both(voter, store, monkeypatch, **more):
    """Return the voter fitted in memory, and in a file."""
    whole = clone(voter).fit(store, **more)
    small_parts(monkeypatch)
    parts = clone(voter).fit(store, **more)
    assert isinstance(whole.values_, np.ndarray)
    return whole, parts


@pytest.fixture
def queries(tmp_path):
    return make_store(tmp_path / "queries", 12, seed=5)


SETTINGS = [
    NBNN(),
    NBNN(3, normalise=False, power="auto", confidence=0.5),
    NBNN(position_weight=0.7, dtype="float16"),
    LocalNBNN(4, normalise=False, dtype="float16"),
    LocalNBNN(power=0.5, position_weight=0.7, confidence=1.0),
]


@pytest.mark.parametrize("voter", SETTINGS, ids=str)
def test_votes_are_those_of_the_bank_in_memory(voter, tmp_path, queries, monkeypatch):
    store = make_store(tmp_path / "store")
    whole, parts = fitted_both(voter, store, monkeypatch)
    assert isinstance(parts.values_, RowFile)
    assert parts.scorer().in_file
    np.testing.assert_array_equal(np.asarray(parts.values_), whole.values_)
    np.testing.assert_array_equal(parts.mean_, whole.mean_)
    np.testing.assert_array_equal(parts.votes(queries), whole.votes(queries))
    np.testing.assert_array_equal(parts.predict(queries), whole.predict(queries))
    assert (parts.temperature_, parts.rejection_threshold_) == (whole.temperature_, whole.rejection_threshold_)
    assert whole.temperature_ != 1.0  # images were held out, and the bank without them was searched, too


def test_votes_equal_the_double_loop_of_the_definition(tmp_path, queries, in_file):
    store = make_store(tmp_path / "store", 24)
    voter = NBNN(normalise=False).fit(store)
    train, test = ([bag.values for bag in one.load(dtype=np.float32)[0]] for one in (store, queries))
    expected, sums = double_loop(train, store.labels, test)
    assert voter.predict(queries).tolist() == expected.tolist()
    np.testing.assert_allclose(-voter.decision_function(queries) * 20, sums, rtol=1e-4)


def test_wide_descriptors_have_the_distances_of_the_search_by_bounds(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store", 300, dim=200)
    whole, parts = fitted_both(NBNN().set_options(calibration=0), store, monkeypatch)
    monkeypatch.setattr(bank_votes, "_MOST_ROWS", 700)
    some = store.only(store.names[:5])
    assert whole.scorer()._rotation is not None
    np.testing.assert_allclose(parts.votes(some), whole.votes(some), rtol=1e-5, atol=1e-6)


def test_images_of_weight_zero_are_in_no_file(tmp_path, queries, monkeypatch):
    store, weight = make_store(tmp_path / "store"), np.ones(60)
    weight[::4] = 0
    whole, parts = fitted_both(NBNN(), store, monkeypatch, sample_weight=weight)
    assert len(parts.values_) == 45 * 20
    np.testing.assert_array_equal(parts.image_, whole.image_)
    np.testing.assert_array_equal(parts.votes(queries), whole.votes(queries))


def test_a_store_without_positions_or_with_negative_features_is_recognised(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    bags = [Bags.of([(rng.random((20, 4)) + np.eye(4)[index % 2]).astype(np.float16)]) for index in range(20)]
    bags[-1].values[-1, -1] = -1  # the very last number
    entries = [Entry(f"{index:02d}", "ab"[index % 2], str(index)) for index in range(20)]
    write_shard(tmp_path, Recipe(), "f", entries, bags)
    store = Store.open(tmp_path)
    whole, parts = fitted_both(NBNN(position_weight=1.0, power="auto"), store, monkeypatch)
    assert (parts.positions_, parts.power_) == (whole.positions_, whole.power_) == (False, 1.0)
    np.testing.assert_array_equal(parts.votes(store), whole.votes(store))


# --- more than votes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("voter", [NBNN(), NBNN(3, position_weight=0.5, dtype="float16"), LocalNBNN()], ids=str)
@pytest.mark.parametrize("as_bags", [False, True])
def test_partial_fit_equals_a_refit_exactly(voter, as_bags, tmp_path, queries, monkeypatch):
    store = make_store(tmp_path / "store")
    names = sorted(store.names, key=lambda name: int(name) % 3 == 0)  # the first class comes only at the end
    whole, parts = fitted_both(voter, store.only(names), monkeypatch)
    parts = clone(voter).fit(store.only(names[:20]))
    for some in (names[20:35], names[35:]):
        more, labels = store.only(some).load()
        parts.partial_fit(*((more, labels) if as_bags else (store.only(some),)))
    assert isinstance(parts.values_, RowFile)
    assert parts.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(np.asarray(parts.values_), whole.values_)
    np.testing.assert_array_equal(parts.votes(queries), whole.votes(queries))


def test_a_bank_in_memory_that_grows_too_large_moves_to_a_file(tmp_path, queries, monkeypatch):
    store = make_store(tmp_path / "store")
    whole = NBNN().fit(store)
    grown = NBNN().fit(store.only(store.names[:30]))
    assert isinstance(grown.values_, np.ndarray)
    monkeypatch.setattr(nbnn, "needed", lambda rows, _: rows)
    grown.set_options(memory=1199).partial_fit(store.only(store.names[30:]))
    assert isinstance(grown.values_, RowFile)
    np.testing.assert_array_equal(grown.votes(queries), whole.votes(queries))


def test_a_match_names_the_training_image_and_box(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store")
    whole, parts = fitted_both(NBNN(), store, monkeypatch)
    bags, labels = store.load([4])
    images, boxes, distances = parts.matches(bags, labels[0])
    assert (images == 4).all()
    np.testing.assert_array_equal(boxes, bags.boxes)
    np.testing.assert_allclose(distances, 0, atol=1e-6)
    for one, other in zip(parts.matches(bags, "a"), whole.matches(bags, "a"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_search_pca_finds_most_neighbours_in_parts_and_tells_how_many(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store", 90, dim=160)
    for voter in (NBNN(search="pca").set_options(calibration=0), LocalNBNN(search="pca").set_options(calibration=0)):
        _, parts = fitted_both(voter, store, monkeypatch)
        assert parts.scorer().in_file
        assert parts.score(store, store.labels) > 0.95
        assert 0.3 < parts.recall_ <= 1
        monkeypatch.undo()


def test_a_pickled_voter_holds_its_bank_and_a_clone_none(tmp_path, queries, in_file):
    voter = NBNN().set_options(memory=900).fit(make_store(tmp_path / "store"))
    expected = voter.votes(queries)
    again = pickle.loads(pickle.dumps(voter))
    assert isinstance(again.values_, np.ndarray)
    np.testing.assert_array_equal(again.votes(queries), expected)
    assert clone(voter).get_params() == voter.get_params()
    assert not hasattr(clone(voter), "values_")


# --- the budget -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("voter", [NBNN, LocalNBNN])
def test_a_budget_that_cannot_be_kept_is_refused_with_the_least_that_can(voter, tmp_path):
    store = make_store(tmp_path, 60, dim=512)
    with pytest.raises(ValueError, match=r"memory must be at least \d\d megabytes for a bank of 1,200 descriptors"):
        voter().set_options(memory=2).fit(store)


def test_parts_and_queries_shrink_with_the_budget():
    size = {"rows": 2_000_000, "width": 1280, "classes": 15, "n_neighbors": 1, "search": "exact"}
    small, large = (bank_votes.limits(memory, **size) for memory in (300, 1500))
    assert 1024 <= small.rows < large.rows <= 65_536
    assert 256 <= small.queries < large.queries <= 16_384
    assert bank_votes.needed(2_000_000, 1280) > 50_000
    assert bank_votes.needed(50_000, 1280) < 1500
    assert bank_votes.limits(300, **size | {"search": "pca"}).rows < small.rows


MEASURED = """
import sys
from patchvote import NBNN, LocalNBNN, Store
from patchvote.utils.machine import forget_peak_memory, give_back_memory, peak_memory
store = Store.open(sys.argv[1])
voter = {"nbnn": NBNN, "local-nbnn": LocalNBNN}[sys.argv[2]]
settings = {"search": sys.argv[3], "dtype": sys.argv[4]}
small = store.only(store.names[:15])
voter(**settings).set_options(calibration=0.02).fit(small).predict(small.only(small.names[:1]))
give_back_memory()
forget_peak_memory()
before = peak_memory()
fitted = voter(**settings).set_options(calibration=0.02, memory=float(sys.argv[5])).fit(store.only(store.names[:-9]))
fitted.partial_fit(store.only(store.names[-9:]))
fitted.predict(store.only(store.names[:3]))
assert fitted.scorer().in_file
print((peak_memory() - before) / 1e6)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory can only be reset on Linux")
@pytest.mark.parametrize(
    ("kind", "search", "dtype"),
    [("nbnn", "exact", "float32"), ("local-nbnn", "exact", "float16"), ("nbnn", "pca", "float32")],
)
def test_the_measured_peak_stays_below_the_budget(kind, search, dtype, tmp_path):
    make_store(tmp_path, 75, dim=1024, size=250)  # 38 MB in the store, 390 in memory
    words = [sys.executable, "-c", MEASURED, tmp_path, kind, search, dtype, "170"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert float(done.stdout) < 170


# --- models -----------------------------------------------------------------------------------------------------------


def model_of(voter) -> Model:
    return Model(voter.scorer(), tuple(voter.classes_), Recipe(), "abc", voter.temperature_, voter.rejection_threshold_)


@pytest.fixture
def little_memory(monkeypatch):
    """A machine with so little memory that banks stay in the file of their model."""
    monkeypatch.setattr(file, "_SHARE_IN_MEMORY", 1 << 50)


@pytest.mark.parametrize("voter", [NBNN(position_weight=0.5), LocalNBNN(dtype="float16")], ids=str)
def test_a_model_of_a_bank_in_a_file_is_written_and_stays_in_its_file(voter, tmp_path, queries, in_file, little_memory):
    store = make_store(tmp_path / "store")
    fitted = clone(voter).fit(store)
    write_model(model_of(fitted), tmp_path / "m")
    model = read_model(tmp_path / "m")
    assert isinstance(model.scorer.arrays["values"], RowFile)
    bags = queries.load()[0]
    np.testing.assert_array_equal(model.scorer.votes(bags), fitted.votes(bags))
    again = voter_of(model)
    write_model(model_of(again), tmp_path / "m")  # over the file that it is read from
    np.testing.assert_array_equal(read_model(tmp_path / "m").scorer.votes(bags), fitted.votes(bags))
    np.testing.assert_array_equal(again.votes(bags), fitted.votes(bags))
    more = make_store(tmp_path / "more", 9, seed=7)
    np.testing.assert_array_equal(again.partial_fit(more).votes(bags), fitted.partial_fit(more).votes(bags))


def test_every_flipped_bit_of_a_bank_that_stays_in_its_file_is_noticed(tmp_path, in_file, little_memory):
    write_model(model_of(NBNN().fit(make_store(tmp_path / "store"))), tmp_path / "m")
    content = (tmp_path / "m").read_bytes()
    for place in np.linspace(len(content) // 3, len(content) - 1, 40).astype(int):
        (tmp_path / "m").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ModelError, match="damaged"):
            read_model(tmp_path / "m")


def test_a_bank_with_numbers_that_are_not_finite_is_refused_block_by_block(
    tmp_path, in_file, little_memory, monkeypatch
):
    monkeypatch.setattr("patchvote.utils.row_file._BLOCK", 100)
    model = model_of(NBNN().fit(make_store(tmp_path / "store")))
    values = np.asarray(model.scorer.arrays["values"])
    values[-1, -1] = np.inf
    model.scorer.arrays["values"] = values
    write_model(model, tmp_path / "m")
    with pytest.raises(ModelError, match="the array 'values' has numbers that are not finite"):
        read_model(tmp_path / "m")


def test_a_model_replaced_while_it_is_used_keeps_its_answers(tmp_path, queries, in_file, little_memory):
    write_model(model_of(NBNN().fit(make_store(tmp_path / "store"))), tmp_path / "m")
    model, bags = read_model(tmp_path / "m"), queries.load()[0]
    before = model.scorer.votes(bags)
    write_model(model_of(NBNN().fit(make_store(tmp_path / "other", seed=4))), tmp_path / "m")
    np.testing.assert_array_equal(model.scorer.votes(bags), before)
    assert dataclasses.replace(model, threshold=0.5).scorer.in_file
