"""NBNN on workers: every worker keeps the bank of some classes, and labels and distances are those of one process."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from patchvote.voters.neighbours import parted

from helpers.local_engine import LocalEngine, LocalTeam
from helpers.worker_banks import FaintingBankJob
from patchvote import NBNN, PatchvoteError
from patchvote.voters.on_workers import BankJob, fit_on_workers, shared_out
from test_scale import make_store

pytest.importorskip("patchvote.engines.ray")


class ManyInOne(LocalEngine):
    """Runs the members of a team in this process."""

    def __init__(self, size: int) -> None:
        self.size = size

    def team(self, job):
        return LocalTeam(job, self.size)


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store")


@pytest.fixture
def queries(tmp_path):
    return make_store(tmp_path / "queries", 12, seed=5)


def assert_same_answers(engine, voter, store, queries) -> None:
    one = NBNN(**voter.get_params()).fit(store)
    with fit_on_workers(voter, store, engine=engine) as many:
        np.testing.assert_allclose(many.mean_, one.mean_, rtol=1e-6)
        np.testing.assert_allclose(many.votes(queries), one.votes(queries), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(many.predict(queries), one.predict(queries))
        np.testing.assert_allclose(many.predict_proba(queries), one.predict_proba(queries), atol=1e-5)
        assert many.temperature_ == pytest.approx(one.temperature_, rel=1e-4)
        bags = queries.load([3])[0]
        for own, expected in zip(many.matches(bags, "b"), one.matches(bags, "b"), strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)


# --- sharing out ------------------------------------------------------------------------------------------------------


def test_every_photo_belongs_to_one_worker_and_classes_are_whole_where_there_are_enough():
    rng = np.random.default_rng(0)
    numbers, sizes = rng.integers(0, 7, 100), rng.integers(1, 50, 100)
    images = np.flatnonzero(rng.random(100) < 0.8)
    for workers in (1, 2, 5, 7):
        shares = shared_out(numbers, images, sizes, workers)
        assert len(shares) == workers
        given = np.concatenate([piece.images for pieces in shares for piece in pieces])
        np.testing.assert_array_equal(np.sort(given), images)
        classes = [piece.number for pieces in shares for piece in pieces]
        assert sorted(classes) == list(range(7))
        loads = [sum(int(sizes[piece.images].sum()) for piece in pieces) for pieces in shares]
        largest = max(int(sizes[images[numbers[images] == number]].sum()) for number in range(7))
        assert max(loads) <= sum(loads) / workers + largest


def test_classes_are_cut_where_there_are_more_workers_and_parts_know_their_places():
    numbers, sizes = np.arange(12) % 2, np.arange(12) + 1
    shares = shared_out(numbers, np.arange(12), sizes, 5)
    assert all(shares)
    for number in (0, 1):
        pieces = sorted((p for pieces in shares for p in pieces if p.number == number), key=lambda piece: piece.first)
        assert np.concatenate([piece.images for piece in pieces]).tolist() == list(range(number, 12, 2))
        ends = np.cumsum([sizes[piece.images].sum() for piece in pieces])
        assert [piece.first for piece in pieces] == [0, *ends[:-1].tolist()]
    few = shared_out(numbers[:2], np.arange(2), sizes, 5)
    assert sorted(len(pieces) for pieces in few) == [0, 0, 0, 1, 1]


# --- in one process, by the same jobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "voter",
    [NBNN(), NBNN(3, normalise=False), NBNN(power="auto", position_weight=0.5, confidence=0.5), NBNN(dtype="float16")],
    ids=str,
)
def test_members_of_a_team_give_the_answers_of_one_process(voter, workers, store, queries):
    assert_same_answers(ManyInOne(workers), voter, store, queries)


def test_members_keep_within_their_budget_by_banks_in_files(store, queries, monkeypatch):
    one = NBNN().set_options(calibration=0).fit(store)
    monkeypatch.setattr("patchvote.voters.nbnn.needed", lambda *_: 1e9)
    monkeypatch.setattr("patchvote.voters.bank_votes._MOST_ROWS", 70)
    searched = []
    original = parted._Held.answer

    def answer(self, asked, pieces):
        result = original(self, asked, pieces)
        if asked.what == "nearest":
            searched.append(self._voter.scorer().in_file)
        return result

    monkeypatch.setattr(parted._Held, "answer", answer)
    with fit_on_workers(NBNN().set_options(calibration=0), store, engine=ManyInOne(2)) as many:
        np.testing.assert_array_equal(many.votes(queries), one.votes(queries))
    assert searched
    assert all(searched)


def test_what_workers_cannot_do_is_refused_in_a_sentence(store, queries):
    with (
        pytest.raises(ValueError, match="condense of NBNN must be None on workers"),
        fit_on_workers(NBNN(condense=3), store, engine=LocalEngine()),
    ):
        pass
    with (
        pytest.raises(ValueError, match="class 'a' has 400 descriptors, fewer than 401 neighbours"),
        fit_on_workers(NBNN(401).set_options(calibration=0), store, engine=LocalEngine()),
    ):
        pass
    with fit_on_workers(NBNN(search="pca").set_options(calibration=0), store, engine=LocalEngine()) as voter:
        assert voter.score(store, store.labels) > 0.9
        with pytest.raises(PatchvoteError, match="the recall of a search is measured in one process"):
            voter.recall_  # noqa: B018
        with pytest.raises(PatchvoteError, match="a bank on workers cannot learn more images"):
            voter.partial_fit(store)
    with pytest.raises(PatchvoteError, match="the workers that held this bank have ended"):
        voter.predict(queries)


# --- on a cluster -----------------------------------------------------------------------------------------------------


def test_workers_give_the_answers_of_one_process(engine, store, queries):
    assert_same_answers(engine, NBNN(2, position_weight=0.3), store, queries)


def test_a_worker_killed_while_it_searches_is_replaced_and_nothing_changes(
    engine, store, queries, tmp_path, monkeypatch
):
    monkeypatch.setattr(parted, "BankJob", functools.partial(FaintingBankJob, folder=tmp_path))
    assert_same_answers(engine, NBNN(), store, queries)
    assert (tmp_path / "fainted").exists()


def test_a_worker_killed_between_two_questions_reads_its_photos_again(engine, store, queries):
    import ray

    one = NBNN().set_options(calibration=0).fit(store)
    with fit_on_workers(NBNN().set_options(calibration=0), store, engine=engine) as many:
        before = many.votes(queries)
        ray.kill(many._team._members[1])
        np.testing.assert_array_equal(many.votes(queries), before)
    np.testing.assert_allclose(before, one.votes(queries), rtol=1e-5, atol=1e-6)


def test_the_job_can_be_pickled_and_does_not_hold_the_store(store):
    from ray import cloudpickle

    job = BankJob(store.path, store.entries, NBNN().get_params())
    assert len(cloudpickle.dumps(job)) < 20_000
