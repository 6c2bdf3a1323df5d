"""Asking over HTTP: answers in order, evidence that equals `explain`, models, and batches under load."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("fastapi")

from helpers.quick_network import QUICK, QuickNetwork
from helpers.web import client, crops, files, settings
from patchvote import Extractor, ImageClassifier
from patchvote.photos.find import Photo
from patchvote.web.metrics import Metrics
from patchvote.web.models import Batcher
from patchvote.web.problems import Problem


@pytest.fixture(scope="module")
def asked(real_photos):
    """New crops, of classes in turns, and a file that is no photo."""
    new = [crops(real_photos, name, 1, seed)[0] for seed in (5, 6) for name in ("gravel", "brick", "grass")]
    return [*new[:3], ("notes.txt", b"no photo"), *new[3:]]


def test_answers_come_in_the_order_of_the_photos_and_equal_those_of_the_classifier(served, surface_models, asked):
    response = served.post("/v1/predict?model=surfaces", files=files(asked))
    assert response.status_code == 200
    answers = response.json()["answers"]
    assert [answer["file"] for answer in answers] == [name for name, _ in asked]
    classifier = ImageClassifier.load(surface_models / "surfaces.patchvote")
    for answer, own in zip(answers, classifier.answers([content for _, content in asked]), strict=True):
        if own.error is not None:
            assert answer["error"] == own.error.reason
            assert answer["probability"] is None
        else:
            assert answer["likeliest"] == own.likeliest
            assert answer["likeliest_probability"] == round(own.likeliest_probability, 4)
            assert answer["familiarity"] == round(own.familiarity, 4)
            assert answer["rejected"] == own.rejected


def test_photos_in_base64_get_the_same_answers(served, asked):
    body = {"photos": [{"name": name, "content": base64.b64encode(data).decode()} for name, data in asked[:2]]}
    by_json = served.post("/v1/predict?model=surfaces", json=body)
    by_form = served.post("/v1/predict?model=surfaces", files=files(asked[:2]))
    assert by_json.json() == by_form.json()


def test_a_threshold_rejects_more(served, asked):
    answers = [
        served.post(f"/v1/predict?model=surfaces&threshold={share}", files=files(asked[:3])).json()["answers"]
        for share in (0, 0.999)
    ]
    assert [answer["rejected"] for answer in answers[0]] == [False] * 3
    assert [answer["label"] for answer in answers[1]] == ["none of these"] * 3
    assert [answer["probability"] for answer in answers[1]] == [None] * 3
    assert all(0 < answer["likeliest_probability"] <= 1 for answer in answers[1])
    assert all(answer["probability"] == answer["likeliest_probability"] for answer in answers[0])


def test_a_model_has_to_be_named_where_there_are_several(served, asked):
    assert served.post("/v1/predict", files=files(asked[:1])).status_code == 422
    other = served.post("/v1/predict?model=surface", files=files(asked[:1]))
    assert other.status_code == 404
    assert other.json()["error"]["message"] == "there is no model 'surface'. Did you mean 'surfaces'?"


def test_evidence_equals_that_of_explain_number_by_number(served, surface_models, asked):
    name, content = asked[0]
    told = served.post(
        "/v1/explain?model=surfaces&width=24&height=16&labels=brick&labels=gravel", files=files([(name, content)])
    ).json()
    evidence = ImageClassifier.load(surface_models / "surfaces.patchvote").explain(content)
    assert told["classes"] == list(evidence.classes)
    assert told["answer"]["likeliest"] == evidence.ranking[0]
    assert [one["label"] for one in told["maps"]] == ["brick", "gravel"]
    for one in told["maps"]:
        np.testing.assert_array_equal(np.array(one["votes"]), evidence.map(one["label"], 24, 16))
        np.testing.assert_array_equal(np.array(one["contrast"]), evidence.contrast(one["label"], 24, 16))
    np.testing.assert_array_equal([part["votes"] for part in told["parts"]], evidence.votes)
    np.testing.assert_array_equal([part["box"] for part in told["parts"]], evidence.boxes)
    np.testing.assert_array_equal(told["probability"], evidence.probability)
    np.testing.assert_array_equal(told["decision"], evidence.decision)
    assert told["matches"] == []
    assert [(pull["photo"], pull["share"]) for pull in told["pulls"]] == [(p.name, p.share) for p in evidence.pulls]


def test_a_model_that_remembers_photos_shows_the_parts_that_match(served, surface_models, asked):
    told = served.post("/v1/explain?model=nearest&label=brick", files=files(asked[:1])).json()
    evidence = ImageClassifier.load(surface_models / "nearest.patchvote").explain(asked[0][1], "brick")
    assert told["matched"] == "brick"
    assert len(told["matches"]) == 20
    for told_match, match in zip(told["matches"], evidence.matches, strict=False):
        assert told_match["photo"] == match.name
        assert told_match["box"] == list(match.box)
        assert told_match["there"] == list(match.there)


def test_evidence_of_what_is_no_photo_or_no_class_is_refused_in_words(served, asked):
    bad = served.post("/v1/explain?model=surfaces", files=files([asked[3]]))
    assert bad.status_code == 422
    assert "image" in bad.json()["error"]["message"]
    assert served.post("/v1/explain?model=surfaces&labels=sea", files=files(asked[:1])).status_code == 422
    assert served.post("/v1/explain?model=surfaces", files=files(asked[:2])).status_code == 413


def test_models_are_listed_described_and_downloaded(served, surface_models):
    listed = served.get("/v1/models").json()["models"]
    assert [model["name"] for model in listed] == ["surfaces", "nearest"]
    assert served.get("/v1/models/nearest").json() == listed[1]
    assert [model["remembers"] for model in listed] == [False, True]
    assert listed[0]["classes"] == ["brick", "grass", "gravel"]
    file = served.get("/v1/models/surfaces/file")
    assert file.content == (surface_models / "surfaces.patchvote").read_bytes()
    assert served.get("/v1/models/other").status_code == 404


def test_requests_at_once_share_the_network_and_keep_their_answers(tmp_path, surface_models, asked):
    wanted = settings(tmp_path, models=(surface_models / "surfaces.patchvote",))
    photos = [photo for photo in asked if photo[0] != "notes.txt"]
    with client(wanted) as served, ThreadPoolExecutor(6) as pool:
        alone = [served.post("/v1/predict", files=files([photo])).json() for photo in photos]
        together = list(pool.map(lambda photo: served.post("/v1/predict", files=files([photo])).json(), photos))
        assert together == alone


class Slow(QuickNetwork):
    """A network that waits until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()

    def __call__(self, images):
        assert self.may_go_on.wait(30)
        return super().__call__(images)


def _photo(shade: int) -> Photo:
    return Photo(f"{shade}", np.full((64, 64, 3), shade, np.uint8))


def test_a_full_queue_is_told_at_once_and_with_a_time_to_come_again():
    network = Slow()
    batcher = Batcher(Extractor(QUICK, backbone=network, jobs=1), 5, Metrics())
    try:
        first = batcher.submit([_photo(shade) for shade in range(12)])
        with pytest.raises(Problem) as refused:
            batcher.submit([_photo(shade) for shade in range(100, 106)])
        assert refused.value.status_code == 429
        assert 1 <= refused.value.retry_after <= 60
        network.may_go_on.set()
        means = [future.result(30).bag.values[0, 0] * 255 for future in first]
        np.testing.assert_allclose(means, range(12), atol=0.01)
        # With nobody waiting, more photos than may wait are taken at once.
        assert all(future.result(30).bag for future in batcher.submit([_photo(shade) for shade in range(8)]))
    finally:
        network.may_go_on.set()
        batcher.close()


def test_photos_that_nobody_waits_for_any_more_do_not_reach_the_network():
    network = Slow()
    batcher = Batcher(Extractor(QUICK, backbone=network, jobs=1), 50, Metrics())
    try:
        futures = batcher.submit([_photo(shade) for shade in range(40)])
        for future in futures[20:]:
            future.cancel()
        network.may_go_on.set()
        futures[19].result(30)
        assert batcher.submit([_photo(1)])[0].result(30).bag is not None
        assert network.calls == 21
    finally:
        network.may_go_on.set()
        batcher.close()


def test_a_network_that_fails_costs_the_photos_of_the_moment_only():
    class Failing(QuickNetwork):
        fails = True

        def __call__(self, images):
            if self.fails:
                raise RuntimeError("no memory")
            return super().__call__(images)

    network = Failing()
    batcher = Batcher(Extractor(QUICK, backbone=network, jobs=1), 50, Metrics())
    try:
        (future,) = batcher.submit([_photo(1)])
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the network raised
            future.result(30)
        network.fails = False
        assert batcher.submit([_photo(1)])[0].result(30).bag is not None
    finally:
        batcher.close()


def test_an_answer_that_takes_too_long_is_given_up_with_a_time_to_come_again(tmp_path, surface_models, asked):
    wanted = settings(tmp_path, {"answer_seconds": 0.001}, models=(surface_models / "surfaces.patchvote",))
    with client(wanted) as served:
        response = served.post("/v1/predict", files=files(asked[:1]))
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) > 0
