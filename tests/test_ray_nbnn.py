"""NBNN on workers: every worker keeps the bank of some classes, and labels and distances are those of one process."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from sklearn.base import clone

from helpers.local_engine import LocalEngine, LocalTeam
from helpers.worker_banks import FaintingBankJob
from patchvote import NBNN, PatchvoteError
from patchvote.voters import on_workers
from patchvote.voters.on_workers import BankJob, fit_nbnn, shares_of
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
    one = clone(voter).fit(store)
    with fit_nbnn(voter, store, engine=engine) as many:
        np.testing.assert_allclose(many.mean_, one.mean_, rtol=1e-6)
        np.testing.assert_allclose(many.votes(queries), one.votes(queries), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(many.predict(queries), one.predict(queries))
        np.testing.assert_allclose(many.predict_proba(queries), one.predict_proba(queries), atol=1e-5)
        assert many.temperature_ == pytest.approx(one.temperature_, rel=1e-4)
        bags = queries.load([3])[0]
        for own, expected in zip(many.matches(bags, "b"), one.matches(bags, "b"), strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)


def test_every_photo_belongs_to_one_worker_and_loads_differ_little():
    rng = np.random.default_rng(0)
    numbers, sizes = rng.integers(0, 7, 100), rng.integers(1, 50, 100)
    images = np.flatnonzero(rng.random(100) < 0.8)
    for workers in (1, 2, 5, 90):
        shares = shares_of(numbers, images, sizes, workers)
        assert sorted(np.concatenate([share for share, _ in shares])) == images.tolist()
        classes = np.concatenate([classes for _, classes in shares])
        assert (np.diff(classes) >= 0).all()
        loads = [sizes[share].sum() for share, _ in shares]
        assert max(loads) <= sum(loads) / workers + 100


# --- in one process, by the same jobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
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
    original = on_workers._Held.answer

    def answer(self, asked, pieces):
        result = original(self, asked, pieces)
        if asked.what == "nearest":
            searched.append(self.voter.scorer().in_file)
        return result

    monkeypatch.setattr(on_workers._Held, "answer", answer)
    with fit_nbnn(NBNN().set_options(calibration=0), store, engine=ManyInOne(2)) as many:
        np.testing.assert_array_equal(many.votes(queries), one.votes(queries))
    assert searched
    assert all(searched)


def test_what_workers_cannot_do_is_refused_in_a_sentence(store, queries):
    with (
        pytest.raises(ValueError, match="class 'a' has 400 descriptors, fewer than 401 neighbours"),
        fit_nbnn(NBNN(401).set_options(calibration=0), store, engine=LocalEngine()),
    ):
        pass
    with fit_nbnn(NBNN(search="pca").set_options(calibration=0), store, engine=LocalEngine()) as voter:
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
    monkeypatch.setattr(on_workers, "BankJob", functools.partial(FaintingBankJob, folder=tmp_path))
    assert_same_answers(engine, NBNN(), store, queries)
    assert (tmp_path / "fainted").exists()


def test_a_worker_killed_between_two_questions_reads_its_photos_again(engine, store, queries):
    import ray

    one = NBNN().set_options(calibration=0).fit(store)
    with fit_nbnn(NBNN().set_options(calibration=0), store, engine=engine) as many:
        before = many.votes(queries)
        ray.kill(many._team._members[1])
        np.testing.assert_array_equal(many.votes(queries), before)
    np.testing.assert_allclose(before, one.votes(queries), rtol=1e-5, atol=1e-6)


def test_the_job_can_be_pickled_and_does_not_hold_the_store(store):
    from ray import cloudpickle

    job = BankJob(store.path, store.entries, NBNN().get_params(), 1500)
    assert len(cloudpickle.dumps(job)) < 20_000
