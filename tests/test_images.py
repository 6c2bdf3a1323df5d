from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.bad_files import DAMAGED, ODD, bomb, write_bad_files
from helpers.decoding import decode
from patchvote import Dense, Photo, PhotoError
from patchvote.photos import decode as images
from patchvote.photos.decode import digest_of, load_image


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    write_bad_files(folder)
    return folder


def load(path: Path) -> Image.Image:
    return load_image(Photo(path.name, path))


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_gives_its_name_and_the_reason(bad, name):
    with pytest.raises(PhotoError, match=DAMAGED[name]) as caught:
        load(bad / name)
    assert caught.value.name == name


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_gives_upright_rgb_of_the_right_colour(bad, name):
    image = load(bad / name)
    assert image.mode == "RGB"
    assert np.abs(np.subtract(image.getpixel((0, 0)), ODD[name])).max() <= 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_comes_out_as_a_viewer_shows_it(tmp_path, orientation, real_photos):
    upright = Image.open(real_photos / "chelsea.png").convert("RGB").crop((0, 0, 96, 64))
    undo = {
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }
    stored = upright
    for step in undo.get(orientation, []):
        stored = stored.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(np.asarray(load(tmp_path / "a.png")), np.asarray(upright))


def test_a_photo_that_may_not_be_read_says_permission(tmp_path):
    path = tmp_path / "locked.png"
    Image.new("RGB", (4, 4)).save(path)
    load(path)
    path.chmod(0)
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    try:
        if root:  # who may read everything becomes somebody who may not, for the time of one call
            os.seteuid(65534)
        with pytest.raises(PhotoError, match="permission denied"):
            load(path)
    finally:
        if root:
            os.seteuid(0)


def test_a_name_that_is_too_long_for_a_file_is_told_as_that(tmp_path):
    with pytest.raises(PhotoError, match="cannot be read: File name too long"):
        load(tmp_path / f"{'x' * 300}.jpg")


def test_a_pipe_named_like_a_photo_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(PhotoError, match="not an ordinary file"):
        load(tmp_path / "pipe.jpg")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_the_limit_on_pixels_is_checked_before_anything_is_decoded(monkeypatch):
    with pytest.raises(PhotoError, match=r"has 11,000 x 11,000 pixels, more than the 100 million"):
        decode("large.png", bomb(11_000, 11_000))
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    assert decode("ok", png(Image.new("RGB", (10, 10)))).size == (10, 10)
    monkeypatch.setattr(images, "MAX_PIXELS", 99)
    with pytest.raises(PhotoError, match="10 x 10 pixels"):
        decode("ok", png(Image.new("RGB", (10, 10))))


def png(image: Image.Image) -> bytes:
    import io

    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def test_a_large_jpeg_is_decoded_at_a_fraction_and_looks_the_same(tmp_path, real_photos):
    large = Image.open(real_photos / "coffee.png").convert("RGB").resize((4800, 3200), Image.Resampling.BICUBIC)
    large.save(tmp_path / "large.jpg", quality=95)
    content = (tmp_path / "large.jpg").read_bytes()
    less = decode("large.jpg", content, Dense().longest)
    assert 2 * 448 <= max(less.size) < 4800 / 2
    full = decode("large.jpg", content)
    assert full.size == (4800, 3200)
    small = [np.asarray(image.resize((448, 299), Image.Resampling.BICUBIC), dtype=float) for image in (less, full)]
    assert np.abs(small[0] - small[1]).mean() < 2


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "I;16"])
def test_a_large_image_of_any_kind_is_reduced_and_stays_upright(mode):
    import io

    half = np.zeros((4200, 4000), np.uint8)
    half[:2100] = 200  # bright above; lying on its side after the camera
    image = Image.fromarray(half)
    image = Image.fromarray(half.astype(np.uint16) * 257) if mode == "I;16" else image.convert(mode)
    exif = Image.Exif()
    exif[0x0112] = 6
    data = io.BytesIO()
    image.save(data, "PNG", exif=exif, compress_level=1)
    small = decode("large.png", data.getvalue(), Dense().longest).convert("L")
    assert 2 * 448 <= max(small.size) <= 4 * 448
    assert small.getpixel((0, 5)) == 0  # turned by a quarter: dark left, bright right
    assert small.getpixel((small.width - 1, 5)) == 200


def test_images_of_the_caller_are_told_apart_by_what_they_show():
    palette = Image.new("P", (8, 8), 1)
    digests = set()
    for colour in ((255, 0, 0), (0, 255, 0)):
        palette.putpalette([0, 0, 0, *colour])
        digests.add(digest_of(Photo("x", palette.copy())))
    upright = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    turned = upright.copy()
    turned.getexif()[0x0112] = 3
    digests |= {digest_of(Photo("x", upright)), digest_of(Photo("x", turned))}
    assert len(digests) == 4


def test_the_digest_is_of_the_content_not_of_the_name(tmp_path):
    for name in ("a.png", "b.png"):
        Image.new("RGB", (4, 4), "red").save(tmp_path / name)
    Image.new("RGB", (4, 4), "blue").save(tmp_path / "c.png")
    a, b, c = (digest_of(Photo(name, tmp_path / name)) for name in ("a.png", "b.png", "c.png"))
    assert a == b != c
    grey = np.zeros((2, 3), np.uint8)
    assert digest_of(Photo("x", grey)) == digest_of(Photo("y", grey.copy())) != digest_of(Photo("z", grey.T))


@pytest.mark.parametrize(
    "array",
    [
        np.full((4, 5), 128, np.uint8),
        np.full((4, 5, 1), 128, np.uint8),
        np.full((4, 5, 3), 128 / 255, np.float64),
        np.full((4, 5, 3), 128 * 257, np.uint16),
        np.dstack([np.full((4, 5, 3), 128, np.uint8), np.full((4, 5), 255, np.uint8)]),
    ],
)
def test_arrays_are_taken_as_scikit_image_makes_them(array):
    image = load_image(Photo("array", array))
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (5, 4), (128, 128, 128))


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((4, 5, 2), np.uint8), r"shape \(h, w\), .* got \(4, 5, 2\)"),
        (np.zeros((0, 5), np.uint8), "shape"),
        (np.zeros(7, np.uint8), "shape"),
        (np.zeros((4, 5), np.int64), "must be uint8, uint16, bool or float in 0..1, got int64"),
        (np.full((4, 5), 2.0), "must lie in 0..1, got 2 to 2"),
        (np.full((4, 5), np.nan), "must lie in 0..1"),
    ],
)
def test_arrays_that_are_no_images_are_refused(array, says):
    with pytest.raises(PhotoError, match=says):
        load_image(Photo("array", array))


def test_an_image_of_the_caller_is_left_as_it_was():
    image = Image.new("RGB", (4, 6))
    image.getexif()[0x0112] = 6
    assert load_image(Photo("mine", image)).size == (6, 4)
    assert image.size == (4, 6)
