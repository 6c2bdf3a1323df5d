"""About a gigabyte in all: whatever the photos are, and however many threads decode them."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.decoding import decode
from helpers.hostile_photos import (
    costly,
    flat_jpeg,
    jpeg_segment,
    png_chunk,
    png_with,
    saved,
    tiff_with_a_large_tile,
    tiff_with_offsets,
)
from helpers.waiting import wait_for
from patchvote import Dense, Extractor, Photo, PhotoError, Recipe, find_photos
from patchvote.photos import decode as images
from patchvote.photos.decode import load_image
from patchvote.utils.machine import MemoryLimit

pytestmark = pytest.mark.slow

linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc of Linux")

MEASURE = """
import json, sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
from patchvote import Dense, Extractor, Photo, PhotoError, Recipe
from patchvote.networks import open_onnx
from patchvote.photos import decode as images
from helpers.decoding import decode
from patchvote.utils.machine import MemoryLimit, forget_peak_memory, peak_memory

def resident():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return 1024 * int(line.split()[1])

def growth(function):
    forget_peak_memory()
    before = resident()
    answer = function()
    return answer, peak_memory() - before

def extract(network, files, jobs, sides=(64,)):
    net = open_onnx(network, output="features")
    extractor = Extractor(Recipe(network=network, sampling=Dense(sides=sides)), backbone=net, jobs=jobs)
    return [str(item.error) for item in extractor.stream([Photo(name, Path(name)) for name in files]) if item.error]
"""


def measured(code: str, *words: object):
    """Run some lines in a process of their own, and return what they print as JSON."""
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", MEASURE + code, here, *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def write(folder: Path, photos: dict[str, bytes]) -> list[Path]:
    for name, content in photos.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in photos]


@linux
def test_costly_photos_of_all_kinds_at_once_take_no_more_than_the_pixels_that_are_decoded_at_once(
    tmp_path, tiny_network
):
    photos = costly(2200, 2100) | {f"{index}.jpg": flat_jpeg(4000, 4000, progressive=True) for index in range(4)}
    photos["tile.tif"] = tiff_with_a_large_tile(3000)
    errors, most = measured(
        "images.AT_ONCE = MemoryLimit(12_000_000)\n"
        "print(json.dumps(growth(lambda: extract(sys.argv[2], sys.argv[3:], jobs=8))))",
        tiny_network,
        *write(tmp_path, photos),
    )
    assert errors == []
    assert most < 24 * 12e6 + 80e6  # the network and the files take a little


@linux
@pytest.mark.parametrize("side", [448, 0], ids=["as for the network", "at full size"])
def test_no_kind_of_photo_takes_more_memory_per_pixel_than_is_reckoned_with(tmp_path, side):
    told = measured(
        "longest = Dense(sides=(int(sys.argv[2]),)).longest if int(sys.argv[2]) else None\n"
        "decode('first', Path(sys.argv[3]).read_bytes(), longest)\n"
        "told = {}\n"
        "for name in sys.argv[3:]:\n"
        "    content = Path(name).read_bytes()\n"
        "    image, told[Path(name).name] = growth(lambda: decode(name, content, longest))\n"
        "    del image\n"
        "    images.give_back_memory()\n"
        "print(json.dumps(told))",
        side,
        *write(tmp_path, costly(2100, 2000)),
    )
    assert len(told) == 15
    assert {name: most for name, most in told.items() if most > 24 * 2100 * 2000 + 6e6} == {}


@linux
def test_photos_that_wait_for_the_network_are_as_small_as_it_sees_them(tmp_path, tiny_network):
    (file,) = write(tmp_path, {"large.png": saved(Image.new("RGB", (2100, 2100)), "PNG", compress_level=1)})
    errors, most = measured(
        "images.AT_ONCE = MemoryLimit(4_500_000)\n"
        "print(json.dumps(growth(lambda: extract(sys.argv[2], 24 * sys.argv[3:], jobs=8))))",
        tiny_network,
        file,
    )
    assert errors == []
    assert most < 150e6  # 24 photos as they are would take 420 MB


@linux
def test_errors_that_are_kept_do_not_keep_the_pixels(tmp_path, tiny_network):
    content = saved(Image.new("RGB", (3000, 3000)), "PNG", compress_level=0)
    (file,) = write(tmp_path, {"torn.png": content[:-99_999]})
    errors, kept = measured(
        "before = resident()\n"
        "errors = extract(sys.argv[2], 5 * sys.argv[3:], jobs=2)\n"
        "print(json.dumps([errors, resident() - before]))",
        tiny_network,
        file,
    )
    assert len(errors) == 5
    assert all("is damaged" in error for error in errors)
    assert kept < 100e6  # the pixels of five take 180 MB


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("large.webp", saved(Image.new("RGB", (8000, 8000)), "WEBP", lossless=True, quality=0, method=0)),
        ("progressive.jpg", flat_jpeg(10_500, 10_500, progressive=True)),
        ("parted.jpg", flat_jpeg(10_500, 10_500, parted=True)),
        ("tile.tif", tiff_with_a_large_tile(64).replace(struct.pack("<HHL", 322, 3, 1), struct.pack("<HHL", 322, 4, 1))
         .replace(struct.pack("<L", 64), struct.pack("<L", 60_000_000), 1)),
    ],
)  # fmt: skip
def test_a_photo_whose_decoder_would_take_gigabytes_is_refused_in_words(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    for photo in (Photo(name, content), Photo(name, tmp_path / name)):
        with pytest.raises(
            PhotoError, match="pixels, more than the .* million that are decoded|more pixels than are safe"
        ):
            load_image(photo, 448)


def test_bags_are_the_same_where_photos_have_to_wait_for_their_turn(photo_folder, monkeypatch):
    photos = find_photos(photo_folder)[::3]
    recipe = Recipe(sampling=Dense(sides=(64, 128)))
    plenty = Extractor(recipe, jobs=4)(photos)
    monkeypatch.setattr(images, "AT_ONCE", MemoryLimit(10_000))  # one at a time
    monkeypatch.setattr(images, "_USUAL", 1_000)  # and all of them twice
    scarce = Extractor(recipe, jobs=4)(photos)
    np.testing.assert_array_equal(plenty.values, scarce.values)
    assert images.AT_ONCE.free == images.AT_ONCE.size


def test_the_turn_ends_when_decoding_fails():
    for content in (b"", b"no photo", flat_jpeg(4000, 4000, progressive=True)[:3000]):
        with pytest.raises(PhotoError):
            decode("x.jpg", content)
    assert images.AT_ONCE.free == images.AT_ONCE.size


def test_a_file_that_changes_between_two_looks_waits_for_its_turn_again(tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    path.write_bytes(saved(Image.new("RGB", (64, 64)), "PNG"))
    contents = [flat_jpeg(3000, 1000), flat_jpeg(3000, 1000, progressive=True)]
    real = images._content
    monkeypatch.setattr(images, "_content", lambda *a: contents.pop() if contents else real(*a))
    assert load_image(Photo("x.png", path)).size == (3000, 1000)
    assert contents == []
    assert images.AT_ONCE.free == images.AT_ONCE.size


# --- turns --------------------------------------------------------------------------------------------------------


def test_those_who_wait_for_room_get_it_and_never_more_than_there_is():
    room, held, most = MemoryLimit(100), [0], [0]
    lock = threading.Lock()

    def work(count: int) -> None:
        for _ in range(20):
            with room.take(count):
                with lock:
                    held[0] += count
                    most[0] = max(most[0], held[0])
                time.sleep(0.0002)
                with lock:
                    held[0] -= count

    threads = [threading.Thread(target=work, args=(count,), daemon=True) for count in (100, 60, 60, 30, 10, 10, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert most[0] <= 100
    assert room.free == 100


def test_a_large_request_is_not_overtaken_by_small_ones():
    room, order = MemoryLimit(10), []

    def want(count: int) -> None:
        with room.take(count):
            order.append(count)

    with room.take(5):
        threads = []
        for count in (10, 1, 2):
            threads.append(threading.Thread(target=want, args=(count,), daemon=True))
            threads[-1].start()
            wait_for(room._turn.locked)  # the first waits for bytes, and the others for their turn
        assert order == []
    for thread in threads:
        thread.join(60)
    assert order[0] == 10


def test_more_than_there_is_is_an_error_and_not_a_wait():
    with pytest.raises(MemoryError), MemoryLimit(10).take(11):
        pass


# --- headers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (flat_jpeg(64, 64, progressive=True, scans=5000), "more than 100 scans"),
        (tiff_with_offsets(1_000_000), "a tag of 1,000,000 numbers"),
    ],
)
def test_a_header_that_no_photo_has_is_refused_before_a_decoder_sees_it(content, says, monkeypatch):
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("a decoder saw it"))
    with pytest.raises(PhotoError, match=says):
        decode("x", content)


TEXT = png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20)))


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xd8" + jpeg_segment(0xFE, b"") * 100_000 + flat_jpeg(8, 8)[2:],
        b"\xff\xd8" + jpeg_segment(0xE1, b"Exif\0\0" + bytes(65_000)) * 100 + flat_jpeg(8, 8)[2:],
        b"\xff\xd8\xff\xd8" + bytes(2_000_000) + flat_jpeg(8, 8)[2:],
        png_with(png_chunk(b"tEXt", b"a\0b") * 50_000),
        png_with(TEXT * 20),
        png_with(TEXT * 500),
        saved(Image.new("P", (8, 8)), "GIF")[:13] + b"!\xfe" + b"\2ab" * 500_000,
        tiff_with_offsets(20_000),
    ],
    ids=["segments", "exif", "junk", "chunks", "texts", "too many texts", "blocks", "strips"],
)
def test_data_beside_the_pixels_is_read_or_refused_in_seconds(content):
    before = time.process_time()
    with contextlib.suppress(PhotoError):
        assert decode("x", content).size == (8, 8)
    assert time.process_time() - before < 5  # less than one where nothing else runs


def test_headers_that_end_within_are_refused():
    for content in (flat_jpeg(64, 64), saved(Image.new("P", (8, 8)), "GIF"), tiff_with_offsets(8), png_with(b"")):
        for end in range(0, len(content) // 2, 3):
            with pytest.raises(PhotoError):
                decode("x", content[:end])


@pytest.mark.parametrize("limit", [Image.MAX_IMAGE_PIXELS, None], ids=["Pillow's limit", "no limit of Pillow's"])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_of_the_largest_size_is_refused_whatever_limit_pillow_has(limit, progressive, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    content = flat_jpeg(64, 64, progressive=progressive).replace(struct.pack(">HH", 64, 64), b"\xff\xdc\xff\xdc", 1)
    with pytest.raises(PhotoError, match="more pixels than are safe|more than the 100 million"):
        decode("huge.jpg", content)


def test_of_endless_animations_and_chains_only_the_first_frame_is_read():
    frames = [Image.new("P", (8, 8), index % 7) for index in range(200)]
    for kind in ("GIF", "PNG", "TIFF"):
        content = saved(frames[0], kind, save_all=True, append_images=frames[1:])
        assert decode(f"x.{kind}", content).size == (8, 8)
    colours = [Image.new("RGB", (8, 8), (index, 0, 0)) for index in range(50)]
    assert decode("x.webp", saved(colours[0], "WEBP", save_all=True, append_images=colours[1:])).size == (8, 8)
