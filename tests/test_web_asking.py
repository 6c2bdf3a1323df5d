"""Asking over HTTP: answers in order, evidence that equals `explain`, models, and batches under load."""

from __future__ import annotations

import base64
import threading

import numpy as np
import pytest

pytest.importorskip("fastapi")

from prometheus_client import Counter

from helpers.quick_network import QUICK, QuickNetwork
from helpers.web import client, crops, files, refusal, settings
from patchvote import Extractor, ImageClassifier, PatchvoteError
from patchvote.photos.find import Photo
from patchvote.web.models import Batcher
from patchvote.web.problems import Problem


@pytest.fixture(scope="module")
def asked(real_photos):
    """New crops, of classes in turns, and a file that is no photo."""
    new = [crops(real_photos, name, 1, seed)[0] for seed in (5, 6) for name in ("gravel", "brick", "grass")]
    return [*new[:3], ("notes.txt", b"no photo"), *new[3:]]


def test_answers_come_in_the_order_of_the_photos_and_equal_those_of_the_classifier(served, surface_models, asked):
    answers = served.post("/v1/predict?model=surfaces", files=files(asked)).json()["answers"]
    assert [answer["file"] for answer in answers] == [name for name, _ in asked]
    classifier = ImageClassifier.load(surface_models / "surfaces.patchvote")
    for answer, own in zip(answers, classifier.answers([content for _, content in asked]), strict=True):
        if own.error is not None:
            assert (answer["error"], answer["probability"]) == (own.error.reason, None)
        else:
            assert (answer["likeliest"], answer["rejected"]) == (own.likeliest, own.rejected)
            assert answer["likeliest_probability"] == round(own.likeliest_probability, 4)
            assert answer["familiarity"] == round(own.familiarity, 4)
    in_base64 = [{"name": name, "content": base64.b64encode(data).decode()} for name, data in asked]
    assert served.post("/v1/predict?model=surfaces", json={"photos": in_base64}).json()["answers"] == answers
    strict = served.post("/v1/predict?model=surfaces&threshold=0.999", files=files(asked[:3])).json()["answers"]
    assert [(answer["label"], answer["probability"]) for answer in strict] == [("none of these", None)] * 3


def test_what_cannot_be_answered_is_refused(served, asked):
    one = files(asked[:1])
    for address, photos, error in (
        ("predict", one, (422, "invalid")),  # there are several models
        ("predict?model=surface", one, (404, "not_found")),
        ("explain?model=surfaces", files([asked[3]]), (422, "invalid")),
        ("explain?model=surfaces&labels=sea", one, (422, "invalid")),
        ("explain?model=surfaces", files(asked[:2]), (413, "too_many_files")),
    ):
        assert refusal(served.post(f"/v1/{address}", files=photos)) == error, address


def test_evidence_equals_that_of_explain_number_by_number(served, surface_models, asked):
    address = "/v1/explain?model=surfaces&width=24&height=16&labels=brick&labels=gravel"
    sent = served.post(address, files=files(asked[:1])).json()
    evidence = ImageClassifier.load(surface_models / "surfaces.patchvote").explain(asked[0][1])
    assert (sent["classes"], sent["matches"]) == (list(evidence.classes), [])
    assert sent["answer"]["likeliest"] == evidence.ranking[0]
    assert [one["label"] for one in sent["maps"]] == ["brick", "gravel"]
    for one in sent["maps"]:
        np.testing.assert_array_equal(one["votes"], evidence.map(one["label"], 24, 16))
        np.testing.assert_array_equal(one["contrast"], evidence.contrast(one["label"], 24, 16))
    np.testing.assert_array_equal([part["votes"] for part in sent["parts"]], evidence.votes)
    np.testing.assert_array_equal([part["box"] for part in sent["parts"]], evidence.boxes)
    np.testing.assert_array_equal([sent["probability"], sent["decision"]], [evidence.probability, evidence.decision])
    assert {pull["photo"]: pull["share"] for pull in sent["pulls"]} == pytest.approx(
        {pull.name: pull.share for pull in evidence.pulls}, abs=1e-6
    )
    # A model that remembers photos shows the parts that match.
    sent = served.post("/v1/explain?model=nearest&label=brick", files=files(asked[:1])).json()
    evidence = ImageClassifier.load(surface_models / "nearest.patchvote").explain(asked[0][1], "brick")
    assert (sent["matched"], len(sent["matches"])) == ("brick", 20)
    for match, own in zip(sent["matches"], evidence.matches, strict=False):
        assert (match["photo"], match["box"], match["there"]) == (own.name, list(own.box), list(own.there))


def test_models_are_listed_described_and_downloaded(served, surface_models):
    listed = served.get("/v1/models").json()["models"]
    assert [(model["name"], model["remembers"]) for model in listed] == [("surfaces", False), ("nearest", True)]
    assert listed[0]["classes"] == ["brick", "grass", "gravel"]
    assert served.get("/v1/models/nearest").json() == listed[1]
    assert served.get("/v1/models/surfaces/file").content == (surface_models / "surfaces.patchvote").read_bytes()
    assert served.get("/v1/models/other").status_code == 404


class Gated(QuickNetwork):
    """A network that waits until it may go on, and fails as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on, self.fails = threading.Event(), False

    def __call__(self, images):
        assert self.may_go_on.wait(30)
        if self.fails:
            raise RuntimeError("no memory")
        return super().__call__(images)


def shades(*values):
    """Return a photo of each shade."""
    return [Photo(f"{shade}", np.full((64, 64, 3), shade, np.uint8)) for shade in values]


def test_a_queue_is_bounded_skips_who_has_gone_and_goes_on_after_a_network_that_failed():
    network, counters = Gated(), (Counter(name, name, registry=None) for name in ("described", "refused"))
    batcher = Batcher(Extractor(QUICK, backbone=network, jobs=1), 5, *counters)
    try:
        first = batcher.submit(shades(*range(40)))  # with nobody waiting, more photos than may wait are taken at once
        with pytest.raises(Problem) as refused:
            batcher.submit(shades(*range(100, 106)))
        assert (refused.value.status_code, 1 <= refused.value.retry_after <= 60) == (429, True)
        for future in first[20:]:
            future.cancel()
        network.may_go_on.set()
        means = [future.result(30).bag.values[0, 0] * 255 for future in first[:20]]
        np.testing.assert_allclose(means, range(20), atol=0.01)
        assert batcher.submit(shades(1))[0].result(30).bag is not None
        assert network.calls == 21
        network.fails = True
        with pytest.raises(PatchvoteError, match="no memory"):
            batcher.submit(shades(1))[0].result(30)
        network.fails = False
        assert batcher.submit(shades(1))[0].result(30).bag is not None
    finally:
        network.may_go_on.set()
        batcher.close()


def test_an_answer_that_takes_too_long_is_given_up_with_a_time_to_come_again(tmp_path, surface_models, asked):
    wanted = settings(tmp_path, {"answer_seconds": 0.001}, models=(surface_models / "surfaces.patchvote",))
    with client(wanted) as served:
        response = served.post("/v1/predict", files=files(asked[:1]))
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) > 0


def test_a_model_whose_file_changed_or_went_still_answers_and_its_file_is_not_handed_out(
    tmp_path, surface_models, asked
):
    model = tmp_path / "m.patchvote"
    model.write_bytes((surface_models / "surfaces.patchvote").read_bytes())
    with client(settings(tmp_path / "data", models=(model,))) as home:
        answers = home.post("/v1/predict", files=files(asked)).json()
        assert home.get("/v1/models/m/file").content == model.read_bytes()
        model.write_bytes(b"something else")
        for status in ((409, "conflict"), (404, "not_found")):
            assert refusal(home.get("/v1/models/m/file")) == status
            assert refusal(home.post("/v1/workspaces", json={"model": "m"})) == status
            assert home.post("/v1/predict", files=files(asked)).json() == answers
            model.unlink(missing_ok=True)
