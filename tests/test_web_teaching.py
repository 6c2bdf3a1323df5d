"""Teaching over HTTP: from empty workspace to a model, its report, corrections, new classes, download and opening."""

from __future__ import annotations

import csv
import io
import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi")

from helpers.command import network_in
from helpers.web import add, client, crops, events, files, learned, model_file, refusal, settings, submitted, taught
from patchvote import ImageClassifier, PatchvoteError
from patchvote.web.app import make_app


def test_the_whole_story(home, surfaces, real_photos):
    # Teach three classes, with some unlabelled photos beside them, and follow the learning.
    workspace = taught(home, surfaces)
    at = f"/v1/workspaces/{workspace}"
    new = [photo for name in surfaces for photo in crops(real_photos, name, 2, 7)]
    unlabelled = [photo["id"] for photo in add(home, workspace, new)["added"]]
    job = submitted(home, workspace, suggest=3)
    assert home.get(at).json()["job"]["id"] == job
    assert refusal(home.post(f"{at}/learn", json={})) == (409, "conflict")
    kinds, states = zip(*events(home, job), strict=True)
    assert (kinds[-1], states[-1]["status"]) == ("end", "done")
    stages = dict.fromkeys(state["stage"] for state in states)  # a short one may pass between two events
    assert sorted(stages, key=("start", "extract", "learn", "check", "suggest").index) == list(stages)

    # The report: accuracy with its interval, what to look at, and what to label next.
    report = home.get(f"{at}/report").json()
    low, high = report["held_out"]["interval"]
    assert report["held_out"]["images"] == 18
    assert low <= report["held_out"]["accuracy"] <= high
    assert set(report["more_photos"]["few"]) == set(surfaces)
    assert len({one["photo"] for one in report["suggestions"]} & set(unlabelled)) == 3
    state = home.get(at).json()
    assert state["model"]["stale"] is False
    assert [(one["name"], one["photos"], one["learned"]) for one in state["classes"]] == [(n, 6, 6) for n in surfaces]

    # Ask about the unlabelled ones; the answers are kept.
    asked = home.post(f"{at}/answers", json={}).json()
    assert ([photo["id"] for photo in asked["answers"]], asked["remaining"]) == (unlabelled, 0)
    assert sum(photo["answer"]["likeliest"] == photo["name"].split()[0] for photo in asked["answers"]) >= 5
    assert home.get(f"{at}/photos?answered=true").json()["photos"] == asked["answers"]

    # The training photos that count most come with their pictures.
    evidence = home.get(f"{at}/photos/{unlabelled[0]}/evidence").json()
    names = {photo["id"]: photo["name"] for photo in home.get(f"{at}/photos").json()["photos"]}
    shown = [f"{evidence['matched']}/{names[pull['image'].split('/')[-2]]}" for pull in evidence["pulls"]]
    assert shown == [pull["photo"] for pull in evidence["pulls"]] != []

    # A correction makes a training photo, of a class that is made for it; results for other programs have it.
    moved = home.patch(f"{at}/photos", json={"photos": unlabelled[:1], "class_name": "stone"}).json()["workspace"]
    assert (moved["model"]["stale"], moved["classes"][-1]["name"]) == (True, "stone")
    rows = list(csv.DictReader(io.StringIO(home.get(f"{at}/answers.csv").text)))
    assert [(row["file"], row["corrected"]) for row in rows] == [
        (new[0][0], "stone"),
        *((name, "") for name, _ in new[1:]),
    ]
    archive = zipfile.ZipFile(io.BytesIO(home.get(f"{at}/answers.zip").content))
    assert archive.read(f"stone/{new[0][0]}") == new[0][1]

    # Learn again: the new class is known, and old answers are not current any more.
    add(home, workspace, crops(real_photos, "coffee", 4, 3), class_name="stone")
    assert learned(home, workspace)["status"] == "done"
    assert home.get(at).json()["model"]["classes"] == sorted([*surfaces, "stone"])
    assert not any(photo["answer"]["current"] for photo in home.get(f"{at}/photos?answered=true").json()["photos"])
    assert len(list((home.folder / workspace / "runs").iterdir())) == 1  # runs of before are removed

    # Download, open elsewhere, and ask again: the same answers.
    opened = home.post("/v1/models", files=model_file(home.get(f"/v1/models/{workspace}/file").content)).json()
    assert opened["model"]["opened"] is True
    assert [one["name"] for one in opened["classes"]] == sorted([*surfaces, "stone"])
    photos = files(crops(real_photos, "coffee", 2, 8))
    first, second = (home.post(f"/v1/predict?model={name}", files=photos) for name in (workspace, opened["id"]))
    assert first.json()["answers"] == second.json()["answers"]


def test_an_opened_model_learns_more_photos_and_classes_as_add_of_the_classifier(served, surface_models, real_photos):
    workspace = served.post("/v1/workspaces", json={"model": "nearest"}).json()["id"]
    at, new = f"/v1/workspaces/{workspace}", crops(real_photos, "coffee", 4, 3)
    added = add(served, workspace, new, class_name="table")
    assert added["workspace"]["model"]["stale"] is True
    assert learned(served, workspace)["status"] == "done"
    assert served.get(at).json()["model"]["classes"] == ["brick", "grass", "gravel", "table"]
    assert served.get(f"{at}/report").json()["mode"] == "add"
    # Parts of a photo that the workspace has come with its address, others without.
    other = crops(real_photos, "coffee", 1, 9)
    evidence = f"{at}/photos/{add(served, workspace, other)['added'][0]['id']}/evidence"
    table, brick = (served.get(f"{evidence}?label={label}").json()["matches"] for label in ("table", "brick"))
    assert {match["image"].split("/")[-2] for match in table} <= {one["id"] for one in added["added"]}
    assert served.get(table[0]["image"]).headers["content-type"] == "image/jpeg"
    assert {match["image"] for match in brick} == {None}
    classifier = ImageClassifier.load(surface_models / "nearest.patchvote", cache=False)
    classifier.add([data for _, data in new], ["table"] * 4)
    expected = classifier.predict_proba([other[0][1]])[0]
    np.testing.assert_allclose(served.get(evidence).json()["probability"], expected, atol=1e-6)


def test_an_opened_model_forgets_photos_and_classes_and_learns_others(served, real_photos):
    workspace = served.post("/v1/workspaces", json={"model": "surfaces"}).json()["id"]
    at = f"/v1/workspaces/{workspace}"
    state = served.post(f"{at}/forget", json={"photos": ["gravel/"]}).json()["workspace"]
    assert state["model"]["classes"] == ["brick", "grass"]
    for photos in ("nobody.jpg", "grass/"):  # one class would be left
        assert served.post(f"{at}/forget", json={"photos": [photos]}).status_code == 422
    add(served, workspace, crops(real_photos, "coffee", 4, 3), class_name="table")
    assert learned(served, workspace)["status"] == "done"
    assert served.get(at).json()["model"]["classes"] == ["brick", "grass", "table"]
    taught_here = {photo["id"] for photo in served.get(f"{at}/photos").json()["photos"]}
    assert {one["photo"] for one in served.get(f"{at}/report").json()["mistakes"]} <= taught_here


def test_what_cannot_be_learned_or_forgotten_is_refused(home, workspace, surfaces):
    at = f"/v1/workspaces/{workspace}"
    add(home, workspace, surfaces["brick"][:2], class_name="brick")
    assert refusal(home.post(f"{at}/learn", json={})) == (422, "invalid")  # one class
    assert home.post(f"{at}/learn", json={"voter": "sorcery"}).status_code == 422
    assert home.get(f"{at}/report").status_code == home.post(f"{at}/answers", json={}).status_code == 404
    assert refusal(home.post(f"{at}/forget", json={"photos": ["a.jpg"]})) == (409, "conflict")


def test_classes_are_made_renamed_and_removed(home, workspace, surfaces):
    at = f"/v1/workspaces/{workspace}/classes"
    made = home.post(at, json={"name": " cat "})
    assert (made.status_code, made.json()["class"]) == (201, {"id": "c1", "name": "cat", "photos": 0, "learned": 0})
    assert home.post(at, json={"name": "cat"}).status_code == 409
    assert home.patch(f"{at}/c1", json={"name": "tabby"}).json()["class"]["name"] == "tabby"
    assert home.patch(f"{at}/c9", json={"name": "x"}).status_code == 404
    for name in ("  ", "None of these", "a\nb", "x" * 1001):
        assert home.post(at, json={"name": name}).status_code == 422
    photos = add(home, workspace, surfaces["brick"][:2], **{"class": "c1"})["added"]
    assert [photo["class"] for photo in photos] == ["c1", "c1"]
    left = home.delete(f"{at}/c1").json()["workspace"]
    assert (left["classes"], left["unlabelled"]) == ([], 2)
    assert home.post(at, json={"name": "dog"}).json()["class"]["id"] == "c2"  # ids are not used twice
    home.patch(f"/v1/workspaces/{workspace}/photos", json={"photos": [photos[0]["id"]], "class": "c2"})
    assert home.delete(f"{at}/c2?photos=delete").json()["workspace"]["photos"] == 1
    assert len(list((home.folder / workspace / "photos").iterdir())) == 1


def test_photos_are_known_by_their_content_listed_moved_and_removed_in_the_order_in_which_they_came(
    home, workspace, surfaces
):
    at, (name, content) = f"/v1/workspaces/{workspace}/photos", surfaces["grass"][0]
    add(home, workspace, [(name, content)])
    ids = [photo["id"] for photo in add(home, workspace, surfaces["grass"], class_name="grass")["added"]]
    again = add(home, workspace, [("other.png", content)], class_name="brick")  # the class that it got it keeps
    assert [(photo["name"], photo["class"]) for photo in again["known"]] == [(name, "c1")]
    ids.insert(0, again["known"][0]["id"])
    for query, expected, total in (("class=c1", ids, 6), ("offset=2&limit=3", ids[2:5], 6), ("class=none", [], 0)):
        page = home.get(f"{at}?{query}").json()
        assert ([photo["id"] for photo in page["photos"]], page["total"]) == (expected, total)
    assert home.get(f"{at}?class=c7").status_code == 404
    assert home.patch(at, json={"photos": ids[:2], "class": None}).json()["workspace"]["unlabelled"] == 2
    gone = home.post(f"{at}/delete", json={"photos": ids[:1]}).json()
    assert (gone["deleted"], gone["workspace"]["photos"]) == (1, 5)
    assert home.get(f"{at}/{ids[0]}/thumbnail").status_code == 404
    assert home.post(f"{at}/delete", json={"photos": ids[:2]}).status_code == 404  # all or none
    assert home.get(at).json()["total"] == 5


def test_a_folder_of_class_folders_makes_the_classes(home, workspace, surfaces):
    photos = [(f"floors/{label}/{name}", data) for label, own in surfaces.items() for name, data in own[:2]]
    photos.append(("floors/none of these/1.png", surfaces["brick"][4][1]))
    done = add(home, workspace, [*photos, surfaces["brick"][3]], folders="true")
    assert [(one["name"], one["photos"]) for one in done["workspace"]["classes"]] == [(label, 2) for label in surfaces]
    assert done["workspace"]["unlabelled"] == len(done["refused"]) == 1  # a folder that cannot be a class


def test_pictures_are_upright_jpegs_of_bounded_size(home, workspace):
    image, data, rotated = Image.new("RGB", (3000, 1500), (200, 30, 30)), io.BytesIO(), Image.Exif()
    image.paste((30, 30, 200), (0, 0, 1500, 1500))
    rotated[0x0112] = 6  # to be rotated clockwise by 90 degrees
    image.save(data, "JPEG", exif=rotated)
    (photo,) = add(home, workspace, [("rotated.jpg", data.getvalue())])["added"]
    assert (photo["width"], photo["height"]) == (512, 1024)
    for which, size in (("thumbnail", (128, 256)), ("image", (512, 1024))):
        shown = Image.open(io.BytesIO(home.get(photo[which]).content))
        assert (shown.format, shown.size, dict(shown.getexif())) == ("JPEG", size, {})
        assert shown.getpixel((10, 10))[2] > 150  # the left half is on top now


def test_a_model_of_the_server_with_a_network_beside_it_is_asked_and_taught_in_a_workspace(
    tmp_path, flowers, surface_models, real_photos
):
    network, own = network_in(tmp_path), tmp_path / "own.patchvote"
    ImageClassifier(str(network), cache=False).fit(flowers / "photos").save(own)
    with client(settings(tmp_path / "data", models=(own,))) as made:
        workspace = made.post("/v1/workspaces", json={"model": "own"}).json()["id"]
        photo = add(made, workspace, crops(real_photos, "brick", 1, 7), class_name="new")["added"][0]["id"]
        asked = made.post(f"/v1/workspaces/{workspace}/answers", json={"photos": [photo]})
        assert asked.json()["answers"][0]["answer"]["likeliest"] in ("iris", "rose")
        assert learned(made, workspace)["status"] == "done"
        assert "new" in made.get(f"/v1/workspaces/{workspace}").json()["model"]["classes"]

        # The network is in memory: it may be removed.
        network.rename(tmp_path / "moved.onnx")
        assert made.post("/v1/workspaces", json={"model": "own"}).status_code == 201
        again = learned(made, workspace)
        assert (again["status"], str(tmp_path) in again["message"]) == ("failed", False)

    # The network of the settings is for models that lack theirs, and not for the others.
    shutil.copy(tmp_path / "tiny.toml", tmp_path / "moved.toml")
    models = (own, surface_models / "surfaces.patchvote")
    with client(settings(tmp_path / "data", models=models, network=str(tmp_path / "moved.onnx"))) as made:
        assert {one["name"] for one in made.get("/v1/models").json()["models"]} == {"own", "surfaces"}
    with pytest.raises(PatchvoteError, match="found beside it"):
        make_app(settings(tmp_path / "other", models=models), None)
