"""Photos of strangers are decoded in child processes: to the same pixels, and whatever one does, others are served."""

from __future__ import annotations

import functools
import struct
import threading

import numpy as np
import pytest

pytest.importorskip("fastapi")

from PIL import Image

from helpers.bad_files import bomb
from helpers.hostile_photos import costly, flat_jpeg, saved
from helpers.web import client, crops, files, settings
from patchvote import Dense, ImageClassifier, Patch, PhotoError
from patchvote.bags.boxes import input_sizes
from patchvote.photos.decode import pictures, within
from patchvote.photos.find import Photo
from patchvote.utils.machine import forget_peak_memory, peak_memory, resident_memory
from patchvote.web import decoding
from patchvote.web.decoding import Decoders

THUMBNAIL = functools.partial(within, 64)
ENDLESS = flat_jpeg(3000, 3000, progressive=True, scans=8000)  # ten seconds or more


@pytest.fixture
def decoders(monkeypatch):
    monkeypatch.setattr(decoding, "cores", lambda: 1)
    made = Decoders()
    yield made
    made.close()


def test_a_child_gives_the_pixels_the_digest_and_the_reasons_that_this_process_gives(decoders, tmp_path):
    photos = [Photo(name, content) for name, content in costly(300, 200).items()]
    (tmp_path / "x.png").write_bytes(costly(300, 200)["alpha.png"])
    photos.append(Photo("x.png", tmp_path / "x.png"))
    for sampling in (Dense((96, 32)), Patch(20)):
        sizes = functools.partial(input_sizes, sampling, 32, None)
        for photo in photos:
            (here, digest), (there, same) = pictures(photo, sizes), decoders(photo, sizes)
            assert digest == same
            assert decoders(photo, sizes, {digest}) == ([], digest)
            for own, other in zip(here, there, strict=True):
                np.testing.assert_array_equal(own, other)
    for photo in (Photo("a", b""), Photo("b.cr2", b"no photo"), Photo("c", bomb(30_000, 30_000)), Photo("d", tmp_path)):
        reasons = []
        for decode in (pictures, decoders):
            with pytest.raises(PhotoError) as raised:
                decode(photo, THUMBNAIL)
            reasons.append((raised.value.name, raised.value.reason))
        assert reasons[0] == reasons[1]


def test_a_child_that_ends_costs_one_photo_and_is_replaced(decoders):
    photo, endless = Photo("x.png", saved(Image.new("RGB", (64, 64)), "PNG")), Photo("y.jpg", ENDLESS)
    decoders(photo, THUMBNAIL)
    first = decoders._free.queue[0].process
    killer = threading.Timer(0.5, first.kill)
    killer.start()
    with pytest.raises(PhotoError, match=r"y\.jpg: takes too much memory or time"):
        decoders(endless, THUMBNAIL)
    assert decoders(photo, THUMBNAIL)[0][0].shape == (64, 64, 3)
    second = decoders._free.queue[0].process
    second.kill()  # while it has nothing to do
    second.wait()
    assert decoders(photo, THUMBNAIL)[0][0].shape == (64, 64, 3)
    third = decoders._free.queue[0].process
    decoders.close()
    assert [process.returncode for process in (first, second, third)] == [-9, -9, 0]
    assert decoders(photo, THUMBNAIL)[0][0].shape == (64, 64, 3)  # also one that comes late has an answer


@pytest.mark.slow
def test_a_photo_that_takes_too_long_is_given_up(decoders):
    with pytest.raises(PhotoError, match="memory or time"):
        decoders(Photo("x.jpg", ENDLESS), THUMBNAIL)


def lying(kind: str, **how: int) -> bytes:
    """A photo of 90 million pixels whose header says that it has 64 x 64."""
    content = bytearray(saved(Image.new("RGB", (10_000, 9_000)), kind, quality=1, **how))
    place = content.index(b"ispe") + 8
    content[place : place + 8] = struct.pack(">II", 64, 64)
    return bytes(content)


@pytest.mark.slow
def test_bombs_of_every_format_leave_the_server_as_small_as_it_was_and_others_are_answered(
    tmp_path, surface_models, real_photos
):
    large = (9_900, 9_900)
    bombs = {
        "huge.png": bomb(30_000, 30_000),
        "torn.png": bomb(*large),
        "alpha.png": saved(Image.new("RGBA", large, (1, 2, 3, 4)), "PNG", compress_level=1),
        "lossless.webp": saved(Image.new("RGB", large), "WEBP", lossless=True, quality=0, method=0),
        "progressive.jpg": flat_jpeg(*large, progressive=True, components=4),
        "strip.tif": saved(Image.new("RGB", large), "TIFF", compression="tiff_deflate", tiffinfo={278: large[1]}),
        "plain.gif": saved(Image.new("P", large), "GIF"),
        "lying.avif": lying("AVIF", speed=10),
    }
    good = crops(real_photos, "brick", 2)
    own = ImageClassifier.load(surface_models / "surfaces.patchvote").answers([content for _, content in good])
    wanted = settings(tmp_path, models=(surface_models / "surfaces.patchvote",))
    with client(wanted) as home:
        home.post("/v1/predict", files=files(good))
        forget_peak_memory()
        before = resident_memory()
        answers = home.post("/v1/predict", files=files([good[0], *bombs.items(), good[1]])).json()["answers"]
        assert peak_memory() - before < 100e6
        workspace = home.post("/v1/workspaces", json={}).json()["id"]
        added = home.post(f"/v1/workspaces/{workspace}/photos", files=files([*bombs.items(), *good])).json()
    heavy = {"huge.png", "torn.png", "alpha.png", "lossless.webp", "progressive.jpg"}
    assert heavy <= {answer["file"] for answer in answers if answer["error"]}
    assert heavy <= {one["name"] for one in added["refused"]}
    for answer, expected in zip((answers[0], answers[-1]), own, strict=True):
        assert answer["likeliest_probability"] == round(expected.likeliest_probability, 4)
