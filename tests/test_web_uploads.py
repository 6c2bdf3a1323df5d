"""The threat model of the server (docs/security.md): what clients send, hostile models among it."""

from __future__ import annotations

import base64
import concurrent.futures
import io
import json
import re
import struct
import time
import zipfile

import pytest

pytest.importorskip("fastapi")


from helpers.bad_files import bomb
from helpers.hostile_photos import flat_jpeg
from helpers.small_models import header_of, with_header
from helpers.web import add, client, crops, files, model_file, refusal, settings, taught


def test_bombs_and_ten_thousand_tiny_files_are_refused_quickly_and_other_photos_are_answered(served, real_photos):
    bombs, start = {"bomb.png": bomb(30_000, 30_000), "large.jpg": flat_jpeg(20_000, 20_000)}, time.monotonic()
    photos = [*crops(real_photos, "brick", 1), *bombs.items()]
    answers = served.post("/v1/predict?model=surfaces", files=files(photos)).json()["answers"]
    assert [bool(answer["error"]) for answer in answers] == [False, True, True]
    workspace = taught(served, {})
    assert [one["name"] for one in add(served, workspace, photos)["refused"]] == list(bombs)
    at = f"/v1/workspaces/{workspace}/photos"
    by_form = served.post(at, files=files([(f"{index}.png", b"x") for index in range(10_000)]))
    by_json = served.post(at, json={"photos": [{"content": "eA=="}] * 10_000})
    assert refusal(by_form) == refusal(by_json) == (413, "too_many_files")
    assert served.get(at).json()["total"] == 1
    assert time.monotonic() - start < 60  # a few seconds on a machine that does nothing else


@pytest.mark.parametrize(
    ("kind", "body", "status", "keyword"),
    [
        ("text/plain", b"x", 415, "multipart"),
        ("", b"x", 415, "multipart"),
        ("multipart/form-data; boundary=x", b"no part at all", 400, "multipart"),
        ("application/json", b"{", 422, "JSON"),
        ("application/json", b"[]", 422, "object"),
        ("application/json", b'{"photos": []}', 422, "no file"),
        ("application/json", b'{"photos": [{"name": "a.jpg"}]}', 422, "photos 0 content"),
        ("application/json", b'{"photos": [{"content": "eA=="}, {"content": "!"}]}', 422, "photos 1 content"),
    ],
)
def test_a_body_that_holds_no_photos_is_told_what_is_wrong_with_it(home, workspace, kind, body, status, keyword):
    address = f"/v1/workspaces/{workspace}/photos"
    response = home.post(address, content=body, headers={"Content-Type": kind})
    assert (response.status_code, keyword in response.json()["error"]["message"]) == (status, True)
    assert home.get(address).json()["total"] == 0


def test_bodies_are_bounded_announced_or_not_and_those_of_all_requests_together(tmp_path):
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    with client(settings(tmp_path, {"body_bytes": 10_000, "model_bytes": 20_000})) as home:
        for path, most in (("/v1/workspaces", 10_000), ("/v1/models", 20_000)):
            for content in (b"x" * (most + 1), (b"x" * 1000 for _ in range(100))):
                assert refusal(home.post(path, content=content, headers=kind)) == (413, "too_large")
    with client(settings(tmp_path, {"bytes_in_flight": 5_000})) as home:
        busy = home.post("/v1/workspaces", content=b" " * 6_000, headers={"Content-Type": "application/json"})
        assert (busy.status_code, int(busy.headers["Retry-After"]) > 0) == (429, True)
        for _ in range(5):  # what was counted is given back
            assert home.post("/v1/workspaces", json={"title": "x" * 150}).status_code == 201


def test_json_that_would_take_much_more_memory_than_its_text_is_not_parsed(home, workspace):
    at, kind = f"/v1/workspaces/{workspace}", {"Content-Type": "application/json"}
    for path, count, status in (
        ("/v1/session", 400_000, 413),
        (f"{at}/photos", 400_000, 413),
        (f"{at}/photos", 100, 422),
    ):
        body = b'{"name": "x", "more": [' + b"[]," * count + b"[]]}"  # a list takes 56 bytes
        assert home.post(path, content=body, headers=kind).status_code == status, path
    ids = [f"{number:064x}" for number in range(5_000)]
    assert home.post(f"{at}/photos/delete", json={"photos": ids}).status_code == 404


def test_a_workspace_has_room_for_so_many_photos_classes_and_bytes_also_for_uploads_at_once(tmp_path, surfaces):
    limits = {"workspace_photos": 8, "classes": 2, "workspaces": 2}
    with client(settings(tmp_path, limits)) as home:
        workspace = taught(home, {"a": surfaces["brick"][:1], "b": surfaces["grass"][:1]})
        at, full = f"/v1/workspaces/{workspace}", (413, "full")
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            uploads = [{"url": f"{at}/photos", "files": files(photos)} for photos in surfaces.values()]
            done = pool.map(lambda upload: home.post(**upload).status_code, uploads)
        assert sorted(done) == [200, 413, 413]
        stored = len(list((home.folder / workspace / "photos").iterdir()))
        assert home.get(at).json()["photos"] == stored <= 8
        assert len(add(home, workspace, surfaces["brick"][:1])["known"]) == 1  # it needs no room
        assert refusal(home.post(f"{at}/classes", json={"name": "c"})) == full
        taught(home, {})
        assert refusal(home.post("/v1/workspaces", json={})) == full
    with client(settings(tmp_path / "heavy", {"workspace_bytes": 10_000})) as home:
        at = f"/v1/workspaces/{taught(home, {})}/photos"
        assert refusal(home.post(at, files=files(surfaces["brick"]))) == full


@pytest.mark.parametrize("name", ["../../../etc/passwd", "..\\..\\x.png", "/etc/cron.d/x", "a\0b.png", "x" * 5000, ""])
def test_a_path_in_a_name_leads_nowhere(home, workspace, surfaces, name):
    data = home.folder.parent
    before = {path for path in data.rglob("*") if "workspaces" not in path.parts}
    body = {"photos": [{"name": name, "content": base64.b64encode(surfaces["brick"][0][1]).decode()}], "folders": True}
    added = home.post(f"/v1/workspaces/{workspace}/photos", json=body)
    assert added.status_code in (200, 422)  # 422: a folder whose name cannot be that of a class
    assert {path for path in data.rglob("*") if "workspaces" not in path.parts} == before
    stored = [path.name for path in (home.folder / workspace).rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"[0-9a-f]{64}|state(-before)?\.json", own) for own in stored)
    for photo in added.json().get("added", []):
        assert "/" not in photo["name"]
        assert len(photo["name"]) <= 200


def test_neither_a_path_in_an_address_nor_another_workspace_leads_to_a_file(home, workspace, surfaces):
    for name in ("..%2f..%2fstate.json", "state.json", "%2e%2e", "0" * 64):
        for address in (
            f"v1/workspaces/{workspace}/photos/{name}/image",
            f"v1/models/..%2f{name}/file",
            f"static/{name}",
        ):
            assert home.get(f"/{address}").status_code == 404
    photo, other = add(home, workspace, surfaces["brick"][:1])["added"][0]["id"], taught(home, {})
    for which in ("thumbnail", "image", "evidence"):
        assert home.get(f"/v1/workspaces/{other}/photos/{photo}/{which}").status_code == 404
    assert home.patch(f"/v1/workspaces/{other}/photos", json={"photos": [photo]}).status_code == 404


def test_an_archive_of_answers_holds_no_name_twice_and_none_that_leads_elsewhere(served, real_photos):
    workspace = served.post("/v1/workspaces", json={"model": "surfaces"}).json()["id"]
    at, names = f"/v1/workspaces/{workspace}", ("=cmd.png", "=CMD.png", "photo", "gone.png")
    contents = [data for _, data in crops(real_photos, "brick", 4, 5)]
    photos = [(f"../../{index}/{name}", data) for index, (name, data) in enumerate(zip(names, contents, strict=True))]
    ids = [photo["id"] for photo in add(served, workspace, photos)["added"]]
    served.post(f"{at}/answers", json={})
    served.patch(f"{at}/photos", json={"photos": ids, "class_name": "../../etc"})
    (served.folder / workspace / "photos" / ids[3]).unlink()
    names = zipfile.ZipFile(io.BytesIO(served.get(f"{at}/answers.zip").content)).namelist()
    assert names == [f"%2E.%2F..%2Fetc/{name}" for name in ("=cmd.png", "=CMD (2).png", "photo")]
    assert "\n'=cmd.png" in served.get(f"{at}/answers.csv").text.replace("\r", "")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("recipe.network", "torch:os.system@touch"),
        ("recipe.network", "../../other/model.patchvote"),
        ("recipe.sides", [2048] * 16),
        ("fingerprint", "0" * 64),
    ],
)
def test_a_hostile_model_is_refused_and_leaves_nothing(home, surface_models, tmp_path, path, value):
    whole, before = surface_models / "surfaces.patchvote", set(home.folder.iterdir())
    header = inner = header_of(whole)
    *outer, last = path.split(".")
    for key in outer:
        inner = inner[key]
    inner[last] = value
    content = with_header(whole, tmp_path / "m.patchvote", json.dumps(header)).read_bytes()
    response = home.post("/v1/models", files=model_file(content))
    assert (response.status_code, str(home.folder.parent) in response.text) == (422, False)
    assert set(home.folder.iterdir()) == before


def test_a_file_that_is_no_model_or_beyond_a_limit_leaves_the_model_that_was_there(served, surface_models, tmp_path):
    workspace = served.post("/v1/workspaces", json={"model": "surfaces"}).json()["id"]
    whole = (surface_models / "surfaces.patchvote").read_bytes()
    middle = len(whole) // 2
    damaged = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (b"", b"\x80\x04.", whole[:1000], damaged, struct.pack("<Q", 1 << 60) + b"{}"):
        assert served.put(f"/v1/workspaces/{workspace}/model", files=model_file(content)).status_code == 422
    assert served.get(f"/v1/models/{workspace}/file").content == whole
    for limit, error in (({"model_classes": 2}, (413, "full")), ({"network_pixels": 1000}, (422, "invalid"))):
        with client(settings(tmp_path, limit)) as home:
            assert refusal(home.post("/v1/models", files=model_file(whole))) == error
            assert list(home.folder.iterdir()) == []
