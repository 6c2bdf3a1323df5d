"""Teaching over HTTP: from empty workspace to a model, its report, corrections, new classes, download and opening."""

from __future__ import annotations

import csv
import io
import zipfile

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi")

from helpers.waiting import wait_for
from helpers.web import client, crops, events, files, learned, settings, taught
from patchvote import ImageClassifier
from patchvote.models.file import read_model
from patchvote.networks import load
from patchvote.networks.onnx_file import write_network


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A server without models, for the tests of this file."""
    with client(settings(tmp_path_factory.mktemp("data"))) as made:
        yield made


@pytest.fixture
def workspace(home):
    return home.post("/v1/workspaces", json={"title": "Floors"}).json()["id"]


def test_the_whole_story(home, surfaces, real_photos):
    # Teach three classes, with some unlabelled photos beside them, and follow the learning.
    workspace = taught(home, surfaces)
    at = f"/v1/workspaces/{workspace}"
    new = [crops(real_photos, name, 2, 7) for name in surfaces]
    unlabelled = home.post(f"{at}/photos", files=files([photo for own in new for photo in own])).json()["added"]
    job = home.post(f"{at}/learn", json={"suggest": 3}).json()
    assert home.get(at).json()["job"]["id"] == job["id"]
    assert home.post(f"{at}/learn", json={}).status_code == 409
    told = list(events(home, job["id"]))
    assert [kind for kind, _ in told][-1] == "end"
    assert told[-1][1]["status"] == "done"
    stages = list(dict.fromkeys(state["stage"] for _, state in told))  # a short one may come and go between two events
    assert stages == [stage for stage in ("start", "extract", "learn", "check", "suggest") if stage in stages]
    assert stages[-1] == "suggest"

    # The report: accuracy with its interval, what to look at, and what to label next.
    report = home.get(f"{at}/report").json()
    assert report["held_out"]["images"] == 18
    low, high = report["held_out"]["interval"]
    assert low <= report["held_out"]["accuracy"] <= high
    assert set(report["more_photos"]["few"]) == set(surfaces)
    assert report["more_photos"]["sentence"].startswith(  # as `fit` says it
        "Whether more photos would help cannot be told: 18 photos were held out, and 30 are the least. If you add "
    )
    assert {one["photo"] for one in report["suggestions"]} <= {photo["id"] for photo in unlabelled}
    assert len(report["suggestions"]) == 3
    state = home.get(at).json()
    assert state["model"]["stale"] is False
    assert [(one["name"], one["photos"], one["learned"]) for one in state["classes"]] == [(n, 6, 6) for n in surfaces]

    # Ask about the unlabelled ones; the answers are kept.
    asked = home.post(f"{at}/answers", json={}).json()
    assert asked["remaining"] == 0
    assert [photo["id"] for photo in asked["answers"]] == [photo["id"] for photo in unlabelled]
    right = [photo["answer"]["likeliest"] == photo["name"].split()[0] for photo in asked["answers"]]
    assert sum(right) >= 5
    assert home.get(f"{at}/photos?answered=true").json()["photos"] == asked["answers"]

    # The training photos that count most come with their pictures.
    told = home.get(f"{at}/photos/{unlabelled[0]['id']}/evidence").json()
    names = {photo["id"]: photo["name"] for photo in home.get(f"{at}/photos").json()["photos"]}
    assert told["pulls"]
    for pull in told["pulls"]:
        assert pull["photo"] == f"{told['matched']}/{names[pull['image'].split('/')[-2]]}"

    # A correction makes a training photo, of a class that is made for it.
    corrected = asked["answers"][0]
    moved = home.patch(f"{at}/photos", json={"photos": [corrected["id"]], "class_name": "stone"}).json()
    assert moved["workspace"]["model"]["stale"] is True
    assert [one["name"] for one in moved["workspace"]["classes"]][-1] == "stone"
    home.post(f"{at}/photos", files=files(crops(real_photos, "coffee", 4, 3)), data={"class_name": "stone"})

    # Results for other programs.
    rows = list(csv.DictReader(io.StringIO(home.get(f"{at}/answers.csv").text)))
    assert [row["file"] for row in rows] == [photo["name"] for photo in asked["answers"]]
    assert [row["corrected"] for row in rows] == ["stone", "", "", "", "", ""]
    archive = zipfile.ZipFile(io.BytesIO(home.get(f"{at}/answers.zip").content))
    assert archive.testzip() is None
    assert f"stone/{corrected['name']}" in archive.namelist()
    assert archive.read(f"stone/{corrected['name']}") == new[0][0][1]

    # Learn again: the new class is known, and old answers are not current any more.
    assert learned(home, workspace)["status"] == "done"
    state = home.get(at).json()
    assert state["model"]["classes"] == sorted([*surfaces, "stone"])
    assert not any(photo["answer"]["current"] for photo in home.get(f"{at}/photos?answered=true").json()["photos"])

    # Download, open elsewhere, and ask again: the same answers.
    file = home.get(f"/v1/models/{workspace}/file").content
    opened = home.post("/v1/models", files=files([("m.patchvote", file)], "file"))
    assert opened.status_code == 201
    assert opened.json()["model"]["opened"] is True
    assert [one["name"] for one in opened.json()["classes"]] == sorted([*surfaces, "stone"])
    photos = files(crops(real_photos, "coffee", 2, 8))
    first, second = (
        home.post(f"/v1/predict?model={name}", files=photos).json()["answers"]
        for name in (workspace, opened.json()["id"])
    )
    assert first == second
    assert len(list((home.app_data / workspace / "runs").iterdir())) == 1  # runs of before are removed


@pytest.fixture(autouse=True)
def _folder(home):
    """Let tests look at the files of workspaces."""
    home.app_data = _context(home).settings.data / "workspaces"


def _context(home):
    app = home.app
    while not hasattr(app, "state"):
        app = app._app
    return app.state.context


def test_photos_and_classes_are_added_to_a_model_that_was_opened(home, surface_models, surfaces, real_photos):
    content = (surface_models / "nearest.patchvote").read_bytes()
    workspace = home.post("/v1/models", files=files([("n.patchvote", content)], "file")).json()["id"]
    at = f"/v1/workspaces/{workspace}"
    new = crops(real_photos, "coffee", 4, 3)
    added = home.post(f"{at}/photos", files=files(new), data={"class_name": "table"}).json()
    assert added["workspace"]["model"]["stale"] is True
    assert learned(home, workspace)["status"] == "done"
    state = home.get(at).json()
    assert state["model"]["classes"] == ["brick", "grass", "gravel", "table"]
    assert home.get(f"{at}/report").json()["mode"] == "add"
    # Parts of a photo that the workspace has come with its address, others without.
    photo = home.post(f"{at}/photos", files=files(crops(real_photos, "coffee", 1, 9))).json()["added"][0]
    matches = {
        label: home.get(f"{at}/photos/{photo['id']}/evidence?label={label}").json()["matches"]
        for label in ("table", "brick")
    }
    known = {one["id"] for one in added["added"]}
    assert all(match["image"].split("/")[-2] in known for match in matches["table"])
    assert home.get(matches["table"][0]["image"]).headers["content-type"] == "image/jpeg"
    assert all(match["image"] is None for match in matches["brick"])
    # The file is what `add` of the classifier gives.
    classifier = ImageClassifier.load(surface_models / "nearest.patchvote", cache=False)
    classifier.add([data for _, data in new], ["table"] * 4)
    own = classifier.predict_proba([crops(real_photos, "coffee", 1, 9)[0][1]])[0]
    told = home.get(f"{at}/photos/{photo['id']}/evidence").json()["probability"]
    np.testing.assert_allclose(told, own, atol=1e-6)


def test_an_opened_model_forgets_photos_and_classes_and_learns_others(home, surface_models, surfaces, real_photos):
    content = (surface_models / "surfaces.patchvote").read_bytes()
    workspace = home.post("/v1/models", files=files([("s.patchvote", content)], "file")).json()["id"]
    at = f"/v1/workspaces/{workspace}"
    state = home.post(f"{at}/forget", json={"photos": ["gravel/"]}).json()["workspace"]
    assert state["model"]["classes"] == ["brick", "grass"]
    assert home.post(f"{at}/forget", json={"photos": ["nobody.jpg"]}).status_code == 422
    assert home.post(f"{at}/forget", json={"photos": ["grass/"]}).status_code == 422  # one class would be left
    home.post(f"{at}/photos", files=files(crops(real_photos, "coffee", 4, 3)), data={"class_name": "table"})
    assert learned(home, workspace)["status"] == "done"
    assert home.get(at).json()["model"]["classes"] == ["brick", "grass", "table"]
    taught_here = {photo["id"] for photo in home.get(f"{at}/photos").json()["photos"]}
    assert {one["photo"] for one in home.get(f"{at}/report").json()["mistakes"]} <= taught_here


def test_a_workspace_without_an_opened_model_forgets_by_removing_photos(home, workspace):
    refused = home.post(f"/v1/workspaces/{workspace}/forget", json={"photos": ["a.jpg"]})
    assert refused.status_code == 409
    assert "remove photos, and learn again" in refused.json()["error"]["message"]


def test_a_job_that_is_cancelled_changes_nothing(home, surfaces):
    workspace = taught(home, surfaces)
    job = home.post(f"/v1/workspaces/{workspace}/learn", json={}).json()["id"]
    wait_for(lambda: home.get(f"/v1/jobs/{job}").json()["stage"] != "start")
    start = home.delete(f"/v1/jobs/{job}").json()
    assert start["status"] == "cancelled"
    assert list(events(home, job))[-1][1]["status"] == "cancelled"
    state = home.get(f"/v1/workspaces/{workspace}").json()
    assert state["job"] is None
    assert state["model"] is None
    wait_for(lambda: not list((home.app_data / workspace / "runs").iterdir()))
    assert home.delete(f"/v1/jobs/{job}").json()["status"] == "cancelled"


def test_what_cannot_be_learned_is_said_in_a_sentence(home, workspace, surfaces):
    at = f"/v1/workspaces/{workspace}"
    assert home.post(f"{at}/learn", json={}).status_code == 422
    home.post(f"{at}/photos", files=files(surfaces["brick"][:2]), data={"class_name": "brick"})
    one = home.post(f"{at}/learn", json={})
    assert one.status_code == 422
    assert "two classes" in one.json()["error"]["message"]
    assert home.post(f"{at}/learn", json={"voter": "sorcery"}).status_code == 422
    assert home.get(f"{at}/report").status_code == 404
    assert home.post(f"{at}/answers", json={}).status_code == 404


def test_classes_are_made_renamed_and_removed(home, workspace, surfaces):
    at = f"/v1/workspaces/{workspace}/classes"
    made = home.post(at, json={"name": " cat "})
    assert made.status_code == 201
    assert made.json()["class"] == {"id": "c1", "name": "cat", "photos": 0, "learned": 0}
    assert home.post(at, json={"name": "cat"}).status_code == 409
    assert home.patch(f"{at}/c1", json={"name": "tabby"}).json()["class"]["name"] == "tabby"
    assert home.patch(f"{at}/c9", json={"name": "x"}).status_code == 404
    for name in ("", "  ", "None of these", "a\nb", "x" * 1001):
        assert home.post(at, json={"name": name}).status_code == 422
    photos = home.post(f"/v1/workspaces/{workspace}/photos", files=files(surfaces["brick"][:2]), data={"class": "c1"})
    assert [photo["class"] for photo in photos.json()["added"]] == ["c1", "c1"]
    left = home.delete(f"{at}/c1").json()["workspace"]
    assert (left["classes"], left["unlabelled"]) == ([], 2)
    assert home.post(at, json={"name": "dog"}).json()["class"]["id"] == "c2"  # ids are not used twice
    home.patch(f"/v1/workspaces/{workspace}/photos", json={"photos": [photos.json()["added"][0]["id"]], "class": "c2"})
    left = home.delete(f"{at}/c2?photos=delete").json()["workspace"]
    assert left["photos"] == 1
    assert len(list((home.app_data / workspace / "photos").iterdir())) == 1


def test_photos_are_listed_moved_and_removed_in_the_order_in_which_they_came(home, workspace, surfaces):
    at = f"/v1/workspaces/{workspace}/photos"
    added = home.post(at, files=files(surfaces["grass"]), data={"class_name": "grass"}).json()["added"]
    names = [name for name, _ in surfaces["grass"]]
    assert [photo["name"] for photo in home.get(f"{at}?class=c1").json()["photos"]] == names
    page = home.get(f"{at}?offset=2&limit=3").json()
    assert ([photo["name"] for photo in page["photos"]], page["total"]) == (names[2:5], 6)
    assert home.get(f"{at}?class=none").json()["total"] == 0
    assert home.get(f"{at}?class=c7").status_code == 404
    ids = [photo["id"] for photo in added]
    assert home.patch(at, json={"photos": ids[:2], "class": None}).json()["workspace"]["unlabelled"] == 2
    gone = home.post(f"{at}/delete", json={"photos": ids[:1]}).json()
    assert (gone["deleted"], gone["workspace"]["photos"]) == (1, 5)
    assert home.get(f"{at}/{ids[0]}/thumbnail").status_code == 404
    assert home.post(f"{at}/delete", json={"photos": ids[:2]}).status_code == 404  # all or none
    assert home.get(at).json()["total"] == 5


def test_a_photo_that_is_there_already_is_known_by_its_content(home, workspace, surfaces):
    at = f"/v1/workspaces/{workspace}/photos"
    name, content = surfaces["brick"][0]
    home.post(at, files=files([(name, content)]))
    again = home.post(
        at, files=files([("other.png", content), ("x.png", content)]), data={"class_name": "brick"}
    ).json()
    assert again["added"] == []
    assert [(photo["name"], photo["class"]) for photo in again["known"]] == [(name, "c1")]  # it had no class before
    third = home.post(at, files=files([(name, content)]), data={"class_name": "grass"}).json()
    assert [photo["class"] for photo in third["known"]] == ["c1"]  # and keeps it


def test_a_folder_of_class_folders_makes_the_classes(home, workspace, surfaces):
    photos = [(f"floors/{label}/{name}", data) for label, own in surfaces.items() for name, data in own[:2]]
    done = home.post(
        f"/v1/workspaces/{workspace}/photos", files=files([*photos, surfaces["brick"][3]]), data={"folders": "true"}
    ).json()["workspace"]
    assert [(one["name"], one["photos"]) for one in done["classes"]] == [(label, 2) for label in surfaces]
    assert done["unlabelled"] == 1


def test_pictures_are_upright_jpegs_of_bounded_size(home, workspace):
    image = Image.new("RGB", (3000, 1500), (200, 30, 30))
    image.paste((30, 30, 200), (0, 0, 1500, 1500))
    data, turned = io.BytesIO(), Image.Exif()
    turned[0x0112] = 6  # to be turned right by 90 degrees
    image.save(data, "JPEG", exif=turned)
    at = f"/v1/workspaces/{workspace}/photos"
    (photo,) = home.post(at, files=files([("turned.jpg", data.getvalue())])).json()["added"]
    assert (photo["width"], photo["height"]) == (512, 1024)
    for which, size in (("thumbnail", (128, 256)), ("image", (512, 1024))):
        response = home.get(photo[which])
        shown = Image.open(io.BytesIO(response.content))
        assert (shown.format, shown.size) == ("JPEG", size)
        assert shown.getpixel((10, 10))[2] > 150  # the left half is on top now
        assert not shown.getexif()


def test_a_reload_loses_nothing(home, workspace, surfaces, tmp_path):
    at = f"/v1/workspaces/{workspace}"
    home.post(f"{at}/photos", files=files(surfaces["brick"]), data={"class_name": "brick"})
    before, photos = home.get(at).json(), home.get(f"{at}/photos").json()
    with client(settings(_context(home).settings.data)) as other:  # reads everything from the disk
        assert other.get(at).json() == before
        assert other.get(f"{at}/photos").json() == photos


def test_a_workspace_is_removed_with_everything_in_it(home, workspace, surfaces):
    home.post(f"/v1/workspaces/{workspace}/photos", files=files(surfaces["brick"]))
    assert home.delete(f"/v1/workspaces/{workspace}").status_code == 204
    assert home.get(f"/v1/workspaces/{workspace}").status_code == 404
    assert not (home.app_data / workspace).exists()


def test_the_model_of_the_server_can_be_opened_in_a_workspace(served):
    made = served.post("/v1/workspaces", json={"model": "surfaces"}).json()
    assert made["model"]["classes"] == ["brick", "grass", "gravel"]
    assert made["model"]["opened"] is True


def test_the_voter_can_be_chosen(home, surfaces, real_photos):
    workspace = taught(home, {name: photos[:3] for name, photos in surfaces.items()})
    assert learned(home, workspace, voter="nbnn", budget=0)["status"] == "done"
    run = next((home.app_data / workspace / "runs").iterdir())
    assert read_model(run / "model.patchvote").kind == "nbnn"
    photo = home.post(f"/v1/workspaces/{workspace}/photos", files=files(crops(real_photos, "brick", 1, 9))).json()
    told = home.get(f"/v1/workspaces/{workspace}/photos/{photo['added'][0]['id']}/evidence?label=grass").json()
    own = {photo["id"]: photo for photo in home.get(f"/v1/workspaces/{workspace}/photos").json()["photos"]}
    names = {own[match["image"].split("/")[-2]]["name"] for match in told["matches"]}
    assert names <= {name for name, _ in surfaces["grass"]}


def test_a_model_of_the_server_with_a_network_beside_it_is_asked_and_taught_in_a_workspace(
    tmp_path, surfaces, real_photos
):
    backbone = load("efficientnet-lite0")
    write_network(tmp_path / "net.onnx", backbone.graph(), backbone.spec)
    contents = [content for photos in surfaces.values() for _, content in photos]
    labels = [name for name, photos in surfaces.items() for _ in photos]
    classifier = ImageClassifier(str(tmp_path / "net.onnx"), cache=False).fit(contents, labels)
    classifier.save(tmp_path / "own.patchvote")
    with client(settings(tmp_path / "data", models=(tmp_path / "own.patchvote",))) as made:
        opened = made.post("/v1/workspaces", json={"model": "own"})
        assert opened.status_code == 201, opened.text
        workspace, photos = opened.json()["id"], crops(real_photos, "brick", 1, 7)
        photo = made.post(f"/v1/workspaces/{workspace}/photos", files=files(photos)).json()["added"][0]["id"]
        asked = made.post(f"/v1/workspaces/{workspace}/answers", json={"photos": [photo]})
        assert asked.json()["answers"][0]["answer"]["likeliest"] == "brick"
        made.patch(f"/v1/workspaces/{workspace}/photos", json={"photos": [photo], "class_name": "new"})
        assert learned(made, workspace)["status"] == "done"
        assert "new" in made.get(f"/v1/workspaces/{workspace}").json()["model"]["classes"]

        # The network is in memory: it may be removed.
        (tmp_path / "net.onnx").unlink()
        assert made.post("/v1/workspaces", json={"model": "own"}).status_code == 201
        again = learned(made, workspace)
        assert again["status"] == "failed"
        assert str(tmp_path) not in again["message"]
