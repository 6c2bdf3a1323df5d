"""The threat model of the server (docs/security.md): what clients send, hostile models among it."""

from __future__ import annotations

import base64
import concurrent.futures
import errno
import io
import json
import re
import struct
import time
import zipfile
import zlib

import pytest

pytest.importorskip("fastapi")


from helpers.hostile_photos import flat_jpeg, png_chunk
from helpers.web import client, crops, files, settings, taught
from patchvote.web.routes.photos import zip_of_answers
from patchvote.web.workspaces import PhotoRecord, Workspace, Workspaces


@pytest.fixture
def home(tmp_path):
    with client(settings(tmp_path / "data")) as made:
        yield made


@pytest.fixture
def workspace(home):
    return home.post("/v1/workspaces", json={}).json()["id"]


def bomb(side: int) -> bytes:
    """Return a small PNG of very many pixels."""
    rows = zlib.compress(bytes(1 + side // 8) * side, 9)
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", rows) + png_chunk(b"IEND", b"")


def test_a_bomb_is_refused_in_words_and_other_photos_are_answered(served, real_photos, workspace_of):
    photos = [("bomb.png", bomb(30_000)), *crops(real_photos, "brick", 1), ("large.jpg", flat_jpeg(20_000, 20_000))]
    assert len(photos[0][1]) < 200_000
    start = time.monotonic()
    answers = served.post("/v1/predict?model=surfaces", files=files(photos)).json()["answers"]
    assert [bool(answer["error"]) for answer in answers] == [True, False, True]
    kept = served.post(f"/v1/workspaces/{workspace_of(served)}/photos", files=files(photos)).json()
    assert [one["name"] for one in kept["refused"]] == ["bomb.png", "large.jpg"]
    assert "pixels" in kept["refused"][0]["reason"]
    assert time.monotonic() - start < 60  # less than two seconds on a machine that does nothing else


@pytest.fixture
def workspace_of():
    return lambda server: server.post("/v1/workspaces", json={}).json()["id"]


def test_ten_thousand_tiny_files_are_refused_quickly(home, workspace):
    many = files([(f"{index}.png", b"x") for index in range(10_000)])
    start = time.monotonic()
    response = home.post(f"/v1/workspaces/{workspace}/photos", files=many)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_many_files")
    plain = {"photos": [{"content": "eA=="}] * 10_000}
    assert home.post(f"/v1/workspaces/{workspace}/photos", json=plain).status_code == 413
    assert time.monotonic() - start < 60  # as above
    assert home.get(f"/v1/workspaces/{workspace}").json()["photos"] == 0


@pytest.mark.parametrize(
    ("kind", "body", "status", "says"),
    [
        ("text/plain", b"x", 415, "send multipart/form-data, or JSON"),
        ("", b"x", 415, "send multipart/form-data, or JSON"),
        ("multipart/form-data", b"x", 400, "the body is not valid multipart/form-data"),
        ("multipart/form-data; boundary=x", b"no part at all", 400, "the body is not valid multipart/form-data"),
        ("application/json", b"{", 400, "the body is not valid JSON"),
        ("application/json", b"[]", 422, "expected {"),
        ("application/json", b'{"photos": []}', 422, "there is no file in the request"),
        ("application/json", b'{"photos": ["a.jpg"]}', 422, "photos[0] has no content"),
        ("application/json", b'{"photos": [{"name": "a.jpg"}]}', 422, "photos[0] has no content"),
        ("application/json", b'{"photos": [{"content": "eA=="}, {"content": "!"}]}', 422, "photos[1] is not base64"),
        ("application/json", '{"photos": [{"content": "é"}]}'.encode(), 422, "photos[0] is not base64"),
    ],
)
def test_a_body_that_holds_no_photos_is_told_what_is_wrong_with_it(home, workspace, kind, body, status, says):
    address = f"/v1/workspaces/{workspace}"
    response = home.post(f"{address}/photos", content=body, headers={"Content-Type": kind})
    assert response.status_code == status
    assert says in response.json()["error"]["message"]
    assert home.get(address).json()["photos"] == 0


def test_bodies_are_bounded_announced_or_not(tmp_path):
    with client(settings(tmp_path, {"body_bytes": 10_000, "model_bytes": 20_000})) as home:

        def chunks():
            for _ in range(100):
                yield b"x" * 1000

        for path, most in (("/v1/workspaces", 10_000), ("/v1/models", 20_000)):
            kind = {"Content-Type": "multipart/form-data; boundary=x"}
            announced = home.post(path, content=b"x" * (most + 1), headers=kind)
            streamed = home.post(path, content=chunks(), headers=kind)
            assert [announced.status_code, streamed.status_code] == [413, 413]
            assert announced.json()["error"]["code"] == "too_large"


def test_json_that_would_take_much_more_memory_than_its_text_is_not_parsed(home, workspace):
    many = b"[],"  # a list takes 56 bytes
    for path, count, status in (
        (f"/v1/workspaces/{workspace}/classes", 400_000, 413),
        (f"/v1/workspaces/{workspace}/photos/delete", 400_000, 413),
        ("/v1/session", 400_000, 413),
        (f"/v1/workspaces/{workspace}/photos", 400_000, 413),
        (f"/v1/workspaces/{workspace}/photos", 100, 422),
    ):
        body = b'{"name": "x", "more": [' + many * count + b"[]]}"
        response = home.post(path, content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == status, (path, response.text)
    ids = [f"{number:064x}" for number in range(5_000)]
    assert home.post(f"/v1/workspaces/{workspace}/photos/delete", json={"photos": ids}).status_code == 404


def test_bodies_of_all_requests_together_are_bounded(tmp_path):
    with client(settings(tmp_path, {"bytes_in_flight": 5_000})) as home:
        busy = home.post("/v1/workspaces", content=b" " * 6_000, headers={"Content-Type": "application/json"})
        assert busy.status_code == 429
        assert int(busy.headers["Retry-After"]) > 0
        for _ in range(5):  # what was counted is given back
            assert home.post("/v1/workspaces", json={"title": "x" * 150}).status_code == 201


def test_a_workspace_has_room_for_so_many_photos_classes_and_bytes(tmp_path, surfaces):
    limits = {"workspace_photos": 4, "classes": 2, "workspace_bytes": 200_000, "workspaces": 2}
    with client(settings(tmp_path, limits)) as home:
        workspace = taught(home, {"a": surfaces["brick"][:2], "b": surfaces["grass"][:2]})
        at = f"/v1/workspaces/{workspace}"
        known = home.post(f"{at}/photos", files=files(surfaces["brick"][:2])).json()["known"]
        assert len(known) == 2  # they need no room
        for response in (
            home.post(f"{at}/photos", files=files([surfaces["brick"][0], surfaces["gravel"][0]])),
            home.post(f"{at}/classes", json={"name": "c"}),
        ):
            assert (response.status_code, response.json()["error"]["code"]) == (413, "full")
        home.post("/v1/workspaces", json={})
        assert home.post("/v1/workspaces", json={}).status_code == 413
        heavy = io.BytesIO(b"\xff\xd8" + b"x" * 300_000).getvalue()
        assert home.post(f"{at}/photos", files=files([("x.jpg", heavy)])).status_code == 413


def test_uploads_at_once_do_not_fill_a_workspace_beyond_its_room(tmp_path, surfaces):
    with client(settings(tmp_path, {"workspace_photos": 6})) as home:
        workspace = home.post("/v1/workspaces", json={}).json()["id"]
        at = f"/v1/workspaces/{workspace}/photos"
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            done = list(pool.map(lambda photos: home.post(at, files=files(photos)).status_code, surfaces.values()))
        assert sorted(done) == [200, 413, 413]
        assert home.get(at).json()["total"] == 6
        assert len(list((tmp_path / "workspaces" / workspace / "photos").iterdir())) == 6


def test_photos_of_a_request_that_fails_leave_no_file(tmp_path, surfaces, monkeypatch):
    put = Workspace.put

    def failing(workspace, digest, content, thumbnail):
        put(workspace, digest, content, thumbnail)
        if len(list((workspace.folder / "photos").iterdir())) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Workspace, "put", failing)
    with client(settings(tmp_path)) as home:
        workspace = taught(home, {"a": surfaces["brick"][:1]})
        at = f"/v1/workspaces/{workspace}/photos"
        assert home.post(at, files=files(surfaces["grass"])).json()["error"]["code"] == "full"
        assert home.get(at).json()["total"] == 1
        for part in ("photos", "thumbnails"):
            assert len(list((tmp_path / "workspaces" / workspace / part).iterdir())) == 1


def test_a_folder_that_cannot_be_a_class_does_not_keep_the_others_out(home, workspace, surfaces):
    (_, one), (_, two) = surfaces["brick"][:2]
    photos = [("x/floor/1.png", one), ("x/none of these/2.png", two)]
    at = f"/v1/workspaces/{workspace}/photos"
    reply = home.post(at, files=files(photos), data={"folders": "true"}).json()
    assert [photo["name"] for photo in reply["added"]] == ["1.png"]
    assert [photo["name"] for photo in reply["refused"]] == ["2.png"]
    assert "no class can be called" in reply["refused"][0]["reason"]


def test_a_model_of_more_classes_than_a_workspace_may_have_is_refused(tmp_path, surface_models):
    content = (surface_models / "surfaces.patchvote").read_bytes()
    with client(settings(tmp_path, {"model_classes": 2})) as home:
        response = home.post("/v1/models", files=files([("m.patchvote", content)], "file"))
        assert (response.status_code, response.json()["error"]["code"]) == (413, "full")
        assert list((tmp_path / "workspaces").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "..\\..\\x.png", "/etc/cron.d/x", "a\0b.png", "x" * 5000, "", ".", "\u202egnp.exe"]
)
def test_a_path_in_a_name_leads_nowhere(home, workspace, tmp_path, real_photos, name):
    before = {path for path in tmp_path.rglob("*") if "workspaces" not in path.parts}
    content = crops(real_photos, "brick", 1)[0][1]
    body = {"photos": [{"name": name, "content": base64.b64encode(content).decode()}], "folders": True}
    added = home.post(f"/v1/workspaces/{workspace}/photos", json=body)
    assert added.status_code in (200, 422)  # 422: a folder whose name cannot be that of a class
    assert {path for path in tmp_path.rglob("*") if "workspaces" not in path.parts} == before
    stored = [path.name for path in (tmp_path / "data" / "workspaces" / workspace).rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"[0-9a-f]{64}|state\.json", own) for own in stored)
    for photo in added.json().get("added", []):
        assert "/" not in photo["name"]
        assert len(photo["name"]) <= 200


@pytest.mark.parametrize("photo", ["..%2f..%2fstate.json", "state.json", "%2e%2e", "0" * 64])
def test_a_path_in_an_address_leads_nowhere(home, workspace, photo):
    assert home.get(f"/v1/workspaces/{workspace}/photos/{photo}/image").status_code == 404
    assert home.get(f"/v1/workspaces/..%2f{workspace}").status_code == 404
    assert home.get(f"/v1/models/..%2f{workspace}/file").status_code == 404
    assert home.get(f"/static/..%2f{photo}").status_code == 404


def test_an_archive_of_answers_holds_no_name_that_leads_elsewhere(served, real_photos):
    workspace = served.post("/v1/workspaces", json={"model": "surfaces"}).json()["id"]
    at = f"/v1/workspaces/{workspace}"
    photos = [(f"../../{index}/=cmd.png", data) for index, (_, data) in enumerate(crops(real_photos, "brick", 2, 5))]
    ids = [photo["id"] for photo in served.post(f"{at}/photos", files=files(photos)).json()["added"]]
    served.post(f"{at}/answers", json={})
    served.patch(f"{at}/photos", json={"photos": ids, "class_name": "../../etc"})
    names = zipfile.ZipFile(io.BytesIO(served.get(f"{at}/answers.zip").content)).namelist()
    assert names == ["%2E.%2F..%2Fetc/=cmd.png", "%2E.%2F..%2Fetc/=cmd (2).png"]
    assert "\n'=cmd.png" in served.get(f"{at}/answers.csv").text.replace("\r", "")


def test_photos_of_one_name_are_numbered_in_the_folder_of_their_class(tmp_path):
    workspace = Workspaces(tmp_path, settings(tmp_path).limits).create()
    with workspace.change() as state:
        for digest, name in zip("abcd", ["photo", "photo", "a.b.png", "A.b.png"], strict=True):
            state.photos[digest] = PhotoRecord(digest, name, None, 1, 1, 1, {"label": "St. Bernard"})
            workspace.put(digest, b"photo", b"thumbnail")
    names = zipfile.ZipFile(io.BytesIO(b"".join(zip_of_answers(workspace)))).namelist()
    assert names == [f"St. Bernard/{name}" for name in ("photo", "photo (2)", "a.b.png", "A.b (2).png")]


def test_workspaces_are_known_by_ids_that_nobody_can_guess(home, workspace):
    ids = {home.post("/v1/workspaces", json={}).json()["id"] for _ in range(20)}
    assert len({one[:8] for one in ids}) == 20
    assert all(re.fullmatch(r"[0-9a-f]{32}", one) for one in ids)
    paths = home.get("/openapi.json").json()["paths"]
    assert list(paths["/v1/workspaces"]) == ["post"]  # there is no list of them
    assert list(paths["/v1/models"]) == ["get", "post"]
    assert home.get("/v1/models").json() == {"models": []}


def test_a_photo_of_one_workspace_is_not_reached_through_another(home, workspace, surfaces):
    photo = home.post(f"/v1/workspaces/{workspace}/photos", files=files(surfaces["brick"][:1])).json()["added"][0]["id"]
    other = home.post("/v1/workspaces", json={}).json()["id"]
    for which in ("thumbnail", "image", "evidence"):
        assert home.get(f"/v1/workspaces/{other}/photos/{photo}/{which}").status_code == 404
    assert home.patch(f"/v1/workspaces/{other}/photos", json={"photos": [photo]}).status_code == 404


def _with_header(content: bytes, change) -> bytes:
    """Return a model file with a changed header; its checksum is left out, as files of earlier versions have none."""
    size = struct.unpack("<Q", content[:8])[0]
    outer = json.loads(content[8 : 8 + size])
    header = json.loads(outer["__metadata__"]["patchvote_model"])
    header.pop("checksum")
    change(header)
    outer["__metadata__"] = {"patchvote_model": json.dumps(header)}
    text = json.dumps(outer).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def _set(*path, value):
    def change(header):
        for key in path[:-1]:
            header = header[key]
        header[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("recipe", "network", value="torch:os.system@touch"),
        _set("recipe", "network", value="/etc/passwd"),
        _set("recipe", "network", value="../../other/model.patchvote"),
        _set("recipe", "sides", value=[2048] * 16),
        _set("fingerprint", value="0" * 64),
        _set("kind", value="os:system"),
        _set("classes", value=["a"] * 3),
        _set("temperature", value=1e300),
        _set("about", "images", value={"brick": -1}),
    ],
)
def test_a_hostile_model_is_refused_in_a_sentence_and_leaves_nothing(home, tmp_path, surface_models, change):
    content = (surface_models / "surfaces.patchvote").read_bytes()
    response = home.post("/v1/models", files=files([("m.patchvote", _with_header(content, change))], "file"))
    assert response.status_code == 422, response.text
    assert str(tmp_path) not in response.text
    assert list((tmp_path / "data" / "workspaces").iterdir()) == []


def test_a_file_that_is_no_model_leaves_the_model_that_was_there(served, surface_models):
    workspace = served.post("/v1/workspaces", json={"model": "surfaces"}).json()["id"]
    whole = (surface_models / "surfaces.patchvote").read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 1
    for content in (b"", b"\x80\x04.", whole[:1000], bytes(damaged), struct.pack("<Q", 1 << 60) + b"{}"):
        response = served.put(f"/v1/workspaces/{workspace}/model", files=files([("m", content)], "file"))
        assert response.status_code == 422, response.text
    assert served.get(f"/v1/models/{workspace}/file").content == whole


def test_a_model_whose_network_would_look_too_long_is_refused(tmp_path, surface_models):
    content = (surface_models / "surfaces.patchvote").read_bytes()
    with client(settings(tmp_path, {"network_pixels": 1000})) as home:
        response = home.post("/v1/models", files=files([("m.patchvote", content)], "file"))
        assert response.status_code == 422
        assert "million pixels" in response.json()["error"]["message"]
