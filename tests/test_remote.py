"""Photos, stores and models on other file systems: in memory, and on an S3 server of this machine."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.command import network_in
from helpers.quick_network import QUICK, QuickNetwork
from patchvote import (
    Extractor,
    ImageClassifier,
    PatchvoteError,
    Photo,
    PhotoError,
    Store,
    StoreError,
    fill,
    find_photos,
)
from patchvote.errors import DamagedShardError
from patchvote.models.file import read_model
from patchvote.photos.decode import load_image
from patchvote.utils.remote import RemotePath, place

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def server():
    """Address of an S3 server of this machine."""
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    one = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    one.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*one.get_host_and_port()))
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3", use_listings_cache=False).mkdir("s3://bucket")
        yield
    one.stop()


@pytest.fixture(params=["memory://bucket", "s3://bucket"])
def remote(request, tmp_path, photo_folder):
    """A remote folder with three photos of each of two classes and a broken one, and the same photos in a local one."""
    if request.param.startswith("s3"):
        request.getfixturevalue("server")
    local = tmp_path / "photos"
    for label in ("brick", "Straße & Café"):
        (local / label).mkdir(parents=True)
        for photo in sorted((photo_folder / label).iterdir())[:3]:
            shutil.copy(photo, local / label)
    (local / "brick" / "broken.jpg").write_bytes(b"no photo")
    root = place(f"{request.param}/{tmp_path.name}")
    for path in [*local.rglob("*.*")]:
        (root / "photos" / path.relative_to(local).as_posix()).write(path.read_bytes())
    (root / "photos" / ".hidden.jpg").write(b"")
    return root, local


@pytest.fixture
def extractor():
    return Extractor(QUICK, backbone=QuickNetwork(), jobs=2)


def no_answer(_: object) -> None:
    raise OSError(errno.EIO, "nobody answers")


def test_a_remote_path_behaves_as_a_path():
    path = place("s3://bucket/photos") / "cat" / "1.jpg"
    assert (str(path), path.suffix, str(path.parent)) == (
        "s3://bucket/photos/cat/1.jpg",
        ".jpg",
        "s3://bucket/photos/cat",
    )
    assert path.relative_to(place("s3://bucket/photos")).as_posix() == "cat/1.jpg"
    assert str(pickle.loads(pickle.dumps(path))) == str(path)
    assert not isinstance(place("photos/cat"), RemotePath)
    assert place("file:///photos/cat") == Path("/photos/cat")
    with pytest.raises(TypeError, match="no local file"):
        os.stat(path)  # noqa: PTH116


def test_what_cannot_be_read_or_listed_is_told_by_its_name(monkeypatch):
    path = place("memory://bucket/unreadable/1.jpg")
    path.write(b"")
    with pytest.raises(PhotoError, match="a folder: cannot be read: it is a folder, not a file"):
        load_image(Photo("a folder", path.parent))
    monkeypatch.setattr(RemotePath, "_info", no_answer)
    with pytest.raises(PhotoError, match="1.jpg: cannot be read: nobody answers"):
        load_image(Photo("1.jpg", path))
    monkeypatch.undo()
    monkeypatch.setattr(RemotePath, "walk_files", no_answer)
    with pytest.raises(PhotoError, match="unreadable: the folder cannot be listed: nobody answers"):
        find_photos(str(path.parent))
    with pytest.raises(PatchvoteError, match="nosuch:// cannot be read or written"):
        Store.open("nosuch://bucket/store")


def test_a_remote_store_of_remote_photos_equals_a_local_one(remote, tmp_path, extractor):
    root, local = remote
    filled = fill(str(root / "store"), str(root / "photos"), extractor)
    fill(tmp_path / "store", local, extractor)
    assert (filled.extracted, [error.name for error in filled.skipped]) == (6, ["brick/broken.jpg"])
    store, expected = Store.open(str(root / "store")), Store.open(tmp_path / "store")
    assert store.names == expected.names
    for name in ("values", "offsets", "boxes", "level"):
        np.testing.assert_array_equal(getattr(store.load()[0], name), getattr(expected.load()[0], name))
    again = fill(str(root / "store"), str(root / "photos"), extractor)
    assert (again.extracted, again.kept) == (0, 6)
    assert store.summary()["bytes"] > 0


def test_damage_of_a_remote_shard_is_detected_and_mended(remote, extractor):
    root, _ = remote
    fill(str(root / "store"), str(root / "photos" / "brick"), extractor)
    (shard,) = Store.open(str(root / "store")).shards
    with shard.path.open_bytes() as file:
        content = bytearray(file.read())
    content[shard.places["values"].start] ^= 1
    shard.path.write(bytes(content))
    with pytest.raises(DamagedShardError, match="is not what was written"):
        Store.open(str(root / "store")).load()
    shard.path.write(bytes(content[:100]))
    with pytest.raises(StoreError, match="every file in it is damaged"):
        Store.open(str(root / "store"))
    filled = fill(str(root / "store"), str(root / "photos" / "brick"), extractor)
    assert filled.extracted == 3
    assert "It was set aside" in filled.damaged[0]
    assert len(Store.open(str(root / "store")).load()[0]) == 3


def test_readers_of_one_remote_file_do_not_move_each_other():
    path = place("memory://bucket/two readers")
    path.write(b"0123456789")
    with path.open_bytes() as one, path.open_bytes() as other:
        one.seek(5)
        assert (other.read(3), one.read(3)) == (b"012", b"567")


def test_a_model_is_saved_to_and_read_from_a_remote_file(remote):
    root, local = remote
    classifier = ImageClassifier(QUICK, backbone=QuickNetwork(), cache=False, voter="snbnl").fit(str(root / "photos"))
    classifier.save(str(root / "m.patchvote"))
    model = read_model(str(root / "m.patchvote"))
    assert model.classes == ("Straße & Café", "brick")
    loaded = ImageClassifier.load(str(root / "m.patchvote"), backbone=QuickNetwork(), cache=False)
    photos = [str(root / "photos" / "brick" / "brick no. 0.png"), local / "brick" / "brick no. 0.png"]
    first, second = loaded.predict_proba(photos)
    np.testing.assert_array_equal(first, second)


def test_commands_take_remote_paths_and_refuse_remote_outputs(remote, command, tmp_path, monkeypatch):
    root, local = remote
    monkeypatch.chdir(tmp_path)
    network_in(tmp_path)
    done = command("extract", root / "photos", root / "store", "--network", "tiny.onnx", "--sides", "64")
    assert (done.code, "6 photos extracted" in done.out) == (3, True)
    assert "skipped brick/broken.jpg: is not an image" in done.err
    assert command("fit", root / "photos", "m.patchvote", "--network", "tiny.onnx", "--no-cache").code == 3
    place(str(root / "m.patchvote")).write((tmp_path / "m.patchvote").read_bytes())
    done = command("predict", root / "m.patchvote", root / "photos" / "brick", "--network", "tiny.onnx")
    assert done.code == 3
    assert done.out.count(f"{root}/photos/brick/brick no. ") == 3
    done = command("fit", local, root / "new.patchvote", "--network", "tiny.onnx")
    assert (done.code, "name a local file, and copy it there" in done.err) == (1, True)
