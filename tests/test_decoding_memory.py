"""One gigabyte in all: whatever the photos are, and however many threads decode them."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
import time
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
    with_data_beside,
)
from helpers.waiting import wait_for
from patchvote import Dense, Extractor, Photo, PhotoError, Recipe
from patchvote.photos import decode as images
from patchvote.photos.decode import load_image
from patchvote.photos.safety import read_header
from patchvote.utils.machine import MemoryLimit

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
from patchvote.utils.machine import forget_peak_memory, peak_memory

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
    return [item.error for item in extractor.stream([Photo(name, Path(name)) for name in files])]
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
def test_costly_photos_of_all_kinds_at_once_stay_below_a_gigabyte(tmp_path, tiny_network):
    photos = costly(3700, 3600) | {f"{index}.jpg": flat_jpeg(8000, 8000, progressive=True) for index in range(4)}
    photos["tile.tif"] = tiff_with_a_large_tile(6000)
    photos["large.webp"] = saved(Image.new("RGB", (7000, 7000)), "WEBP", lossless=True, quality=0, method=0)
    photos["larger.webp"] = saved(Image.new("RGB", (9000, 9000)), "WEBP", lossless=True, quality=0, method=0)
    errors, most = measured(
        "errors, most = growth(lambda: extract(sys.argv[2], sys.argv[3:], jobs=8))\n"
        "print(json.dumps([[str(error) for error in errors if error], most]))",
        tiny_network,
        *write(tmp_path, photos),
    )
    assert [error.partition(": ")[0].rpartition("/")[2] for error in errors] == ["larger.webp"]
    assert most < 1e9


@linux
@pytest.mark.parametrize("side", [448, 0], ids=["as for the network", "at full size"])
def test_no_photo_takes_more_memory_than_was_foreseen(tmp_path, side):
    told = measured(
        "foreseen = []\n"
        "images.footprint, known = lambda *a: foreseen.append(known(*a)) or foreseen[-1], images.footprint\n"
        "longest = Dense(sides=(int(sys.argv[2]),)).longest if int(sys.argv[2]) else None\n"
        "decode('first', Path(sys.argv[3]).read_bytes(), longest)\n"
        "for name in sys.argv[3:]:\n"
        "    content = Path(name).read_bytes()\n"
        "    image, most = growth(lambda: decode(name, content, longest))\n"
        "    print('[' if name == sys.argv[3] else ',', json.dumps([Path(name).name, most, foreseen[-1]]))\n"
        "    del image\n"
        "    images.give_back_memory()\n"
        "print(']')",
        side,
        *write(tmp_path, costly(4200, 4000)),
    )
    for name, most, foreseen in told:
        assert most < foreseen + 4e6, f"{name}: {most / 1e6:.0f} MB, and {foreseen / 1e6:.0f} MB were foreseen"
        assert foreseen < 2 * most + 80e6, f"{name}: {foreseen / 1e6:.0f} MB were foreseen for {most / 1e6:.0f} MB"


@linux
def test_what_stands_beside_the_pixels_takes_no_more_memory_than_was_foreseen(tmp_path):
    told = measured(
        "decode('first', Path(sys.argv[2]).read_bytes())\n"
        "images.give_back_memory()\n"
        "for name in sys.argv[2:]:\n"
        "    content = Path(name).read_bytes()\n"
        "    foreseen = images.read_header(content).opening\n"
        "    image, most = growth(lambda: decode(name, content))\n"
        "    print('[' if name == sys.argv[2] else ',', json.dumps([Path(name).name, most, foreseen]))\n"
        "    del image, content\n"
        "    images.give_back_memory()\n"
        "print(']')",
        *write(tmp_path, with_data_beside(24_000_000)),
    )
    assert len(told) == 6
    for name, most, foreseen in told:
        assert most < foreseen + 8e6, f"{name}: {most / 1e6:.0f} MB, and {foreseen / 1e6:.0f} MB were foreseen"
        assert foreseen > 90e6, name


def test_a_photo_with_hundreds_of_megabytes_beside_its_pixels_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(images, "MEMORY", MemoryLimit(64_000_000))  # a fifteenth of all, for photos of a fifteenth
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("a decoder saw it"))
    for name, content in with_data_beside(24_000_000).items():
        with pytest.raises(PhotoError, match=rf"{name}: would take 1\d\d MB of memory to decode"):
            decode(name, content)


@linux
def test_photos_that_wait_for_the_network_are_as_small_as_it_sees_them(tmp_path, tiny_network):
    (file,) = write(tmp_path, {"large.png": saved(Image.new("RGB", (3990, 3990)), "PNG", compress_level=1)})
    errors, most = measured(
        "errors, most = growth(lambda: extract(sys.argv[2], 24 * sys.argv[3:], jobs=8, sides=(1000,)))\n"
        "print(json.dumps([[str(error) for error in errors if error], most]))",
        tiny_network,
        file,
    )
    assert errors == []
    assert most < 1.1e9  # the network itself takes a little


@linux
def test_errors_that_are_kept_do_not_keep_the_pixels(tmp_path, tiny_network):
    content = saved(Image.new("RGB", (6000, 6000)), "PNG", compress_level=0)
    (file,) = write(tmp_path, {"torn.png": content[:-99_999]})
    errors, kept = measured(
        "before = resident()\n"
        "errors = extract(sys.argv[2], 5 * sys.argv[3:], jobs=2)\n"
        "print(json.dumps([[str(error) for error in errors], resident() - before]))",
        tiny_network,
        file,
    )
    assert len(errors) == 5
    assert all("is damaged" in error for error in errors)
    assert kept < 200e6


def test_a_photo_that_would_take_more_than_all_is_refused_in_words(tmp_path):
    content = saved(Image.new("RGB", (8000, 8000)), "WEBP", lossless=True, quality=0, method=0)
    says = (
        r"has 8,000 x 8,000 pixels, and would take 1,\d{3} MB .* all photos together may take 900 MB\. Make it smaller"
    )
    with pytest.raises(PhotoError, match=says):
        decode("large.webp", content, Dense().longest)
    (tmp_path / "large.webp").write_bytes(content)
    with pytest.raises(PhotoError, match=says):
        load_image(Photo("large.webp", tmp_path / "large.webp"))
    with Image.open(tmp_path / "large.webp") as opened, pytest.raises(PhotoError, match=says):
        load_image(Photo("opened", opened))


def test_baseline_jpegs_and_photos_of_two_pictures_take_no_more_room_than_usual():
    two = saved(Image.new("RGB", (4000, 3000)), "MPO", save_all=True, append_images=[Image.new("RGB", (400, 300))])
    for content in (flat_jpeg(4000, 3000), flat_jpeg(10_000, 8_000), two):
        image, needed = images._decode_within("x", content, Dense().longest, images._USUAL)
        assert image is not None
        assert needed < images._USUAL


def test_bags_are_the_same_where_photos_have_to_wait_for_room(tmp_path, photo_folder, monkeypatch):
    from patchvote import find_photos

    photos = find_photos(photo_folder)[::3]
    recipe = Recipe(sampling=Dense(sides=(64, 128)))
    plenty = Extractor(recipe, jobs=4)(photos)
    monkeypatch.setattr(images, "MEMORY", MemoryLimit(34_000_000))  # one at a time
    monkeypatch.setattr(images, "_USUAL", 1 << 20)  # and most of them twice
    scarce = Extractor(recipe, jobs=4)(photos)
    np.testing.assert_array_equal(plenty.values, scarce.values)
    assert images.MEMORY.free == images.MEMORY.size


def test_room_is_given_back_when_decoding_fails(tmp_path):
    for content in (b"", b"no photo", flat_jpeg(4000, 4000, progressive=True)[:3000]):
        (tmp_path / "x.jpg").write_bytes(content)
        with pytest.raises(PhotoError):
            load_image(Photo("x.jpg", tmp_path / "x.jpg"))
    assert images.MEMORY.free == images.MEMORY.size


def test_a_file_that_changes_between_two_looks_is_read_again_with_more_room(tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    path.write_bytes(saved(Image.new("RGB", (64, 64)), "PNG"))
    real, contents = images._content, [flat_jpeg(9000, 3000), flat_jpeg(9000, 3000, progressive=True)]
    monkeypatch.setattr(images, "_content", lambda *a: contents.pop() if contents else real(*a))
    assert load_image(Photo("x.png", path)).size == (9000, 3000)
    assert contents == []
    assert images.MEMORY.free == images.MEMORY.size


# --- room ---------------------------------------------------------------------------------------------------------


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
        (b"\xff\xd8" + jpeg_segment(0xFE, b"") * 500_000 + flat_jpeg(8, 8)[2:], "more than 10,000 segments"),
        (b"\xff\xd8" + jpeg_segment(0xE1, b"Exif\0\0" + bytes(65_000)) * 300 + flat_jpeg(8, 8)[2:], "segments of EXIF"),
        (b"\xff\xd8\xff\xd8" + bytes(20_000_000) + flat_jpeg(8, 8)[2:], "belong to nothing"),
        (png_with(png_chunk(b"tEXt", b"a\0b") * 200_000), "more than 10,000 chunks"),
        (saved(Image.new("P", (8, 8)), "GIF")[:13] + b"!\xfe" + b"\2ab" * 2_000_000, "too many blocks"),
        (tiff_with_offsets(1_000_000), "1,000,000 strips or tiles"),
    ],
    ids=["scans", "segments", "exif", "junk", "chunks", "blocks", "strips"],
)
def test_a_header_that_no_photo_has_is_refused_before_a_decoder_sees_it(content, says, monkeypatch):
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("a decoder saw it"))
    with pytest.raises(PhotoError, match=says):
        decode("x", content)


def test_texts_that_inflate_wait_for_room_or_are_refused():
    import zlib

    text = png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20)))
    assert read_header(png_with(text * 20)).opening > 20 << 20
    assert decode("x.png", png_with(text * 20)).size == (8, 8)
    with pytest.raises(PhotoError, match="would take .* MB of memory"):
        decode("x.png", png_with(text * 500))


@pytest.mark.parametrize(
    ("content", "one_scan"),
    [
        (flat_jpeg(64, 64), True),
        (saved(Image.new("RGB", (64, 64)), "JPEG"), True),
        (saved(Image.new("L", (64, 64)), "JPEG"), True),
        (b"\xff\xd8" + jpeg_segment(0xE1, b"Exif\0\0xx") + flat_jpeg(64, 64)[2:], True),
        (flat_jpeg(64, 64, parted=True), False),
        (flat_jpeg(64, 64, progressive=True), False),
        (saved(Image.new("RGB", (64, 64)), "JPEG", progressive=True), False),
        (flat_jpeg(64, 64)[:40], False),
    ],
)
def test_a_jpeg_in_one_scan_is_told_from_others(content, one_scan):
    assert read_header(content).one_scan is one_scan


def test_headers_that_end_within_are_left_to_the_decoder():
    for content in (flat_jpeg(64, 64), saved(Image.new("P", (8, 8)), "GIF"), tiff_with_offsets(8), png_with(b"")):
        for end in range(len(content)):
            read_header(content[:end])


@pytest.mark.parametrize("limit", [Image.MAX_IMAGE_PIXELS, None], ids=["Pillow's limit", "no limit of Pillow's"])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_of_the_largest_size_is_refused_whatever_limit_pillow_has(limit, progressive, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    content = flat_jpeg(64, 64, progressive=progressive).replace(struct.pack(">HH", 64, 64), b"\xff\xdc\xff\xdc", 1)
    with pytest.raises(
        PhotoError, match="more pixels than are safe|would take .* MB of memory|more than the 100 million"
    ):
        decode("huge.jpg", content)


def test_of_endless_animations_and_chains_only_the_first_frame_is_read():
    frames = [Image.new("P", (8, 8), index % 7) for index in range(1500)]
    for kind in ("GIF", "PNG", "TIFF"):
        content = saved(frames[0], kind, save_all=True, append_images=frames[1:])
        assert decode(f"x.{kind}", content).size == (8, 8)
    colours = [Image.new("RGB", (8, 8), (index, 0, 0)) for index in range(200)]
    assert decode("x.webp", saved(colours[0], "WEBP", save_all=True, append_images=colours[1:])).size == (8, 8)
    circle = bytearray(tiff_with_offsets(8))
    end = 8 + 2 + 12 * 9
    circle[end : end + 4] = struct.pack("<L", 8)  # the next directory is this one
    assert decode("x.tif", bytes(circle)).size == (8, 8)
