"""Whatever a file holds, decoding gives an upright image, or an error that says why not."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from helpers.bad_files import DAMAGED, ODD, bomb, write_bad_files
from helpers.hostile_photos import saved
from patchvote import Photo, PhotoError, find_photos
from patchvote.photos import decode as images
from patchvote.photos import formats
from patchvote.photos.decode import _to_srgb, digest_of, load_image, opened

MODERN = [
    pytest.param("HEIF", marks=pytest.mark.skipif(not formats._has_heic(), reason="pillow-heif is not installed")),
    "AVIF",
]


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    write_bad_files(folder)
    return folder


@pytest.fixture(scope="module")
def cat(real_photos):
    return Image.open(real_photos / "chelsea.png").convert("RGB").crop((100, 50, 260, 170))


def load(path: Path) -> Image.Image:
    return load_image(Photo(path.name, path))


def decode(name, content, longest=None) -> Image.Image:
    return opened(Photo(name, content), longest)[0]


def modern(image, kind, **settings):
    if kind == "HEIF":
        formats.pillow_formats()
    return saved(image, kind, quality=95, **settings)


def difference(one, other) -> float:
    return np.abs(np.asarray(one, float) - np.asarray(other)).mean()


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_gives_its_name_and_the_reason(bad, name):
    with pytest.raises(PhotoError, match=DAMAGED[name]) as caught:
        load(bad / name)
    assert caught.value.name == name
    assert caught.value.__context__ is None or "link" in name  # an error that is kept does not keep the pixels


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_gives_upright_rgb_of_the_right_colour(bad, name):
    image = load(bad / name)
    assert image.mode == "RGB"
    assert np.abs(np.subtract(image.getpixel((0, 0)), ODD[name])).max() <= 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_comes_out_as_a_viewer_shows_it(orientation, cat):
    undo = [None, None, 0, 3, 1, 5, 2, 6, 4][orientation]  # members of `Image.Transpose`
    stored = cat if undo is None else cat.transpose(Image.Transpose(undo))
    exif = Image.Exif()
    exif[0x0112] = orientation
    np.testing.assert_array_equal(np.asarray(decode("a.png", saved(stored, "PNG", exif=exif))), np.asarray(cat))


def test_a_photo_that_may_not_be_read_says_permission(tmp_path):
    path = tmp_path / "locked.png"
    Image.new("RGB", (4, 4)).save(path)
    path.chmod(0)
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    try:
        if root:  # who may read everything becomes somebody who may not, for the time of one call
            os.seteuid(65534)
        with pytest.raises(PhotoError, match="Permission denied"):
            load(path)
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_the_limit_on_pixels_is_checked_before_anything_is_decoded(monkeypatch):
    with pytest.raises(PhotoError, match="more pixels"):
        decode("large.png", bomb(11_000, 11_000))
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    small = saved(Image.new("RGB", (10, 10)), "PNG")
    assert decode("ok", small).size == (10, 10)
    monkeypatch.setattr(images, "MAX_PIXELS", 99)
    with pytest.raises(PhotoError, match="more pixels"):
        decode("ok", small)


def test_a_large_jpeg_is_decoded_at_a_fraction_and_looks_the_same(real_photos):
    large = Image.open(real_photos / "coffee.png").convert("RGB").resize((4800, 3200), Image.Resampling.BICUBIC)
    content = saved(large, "JPEG", quality=95)
    less, full = decode("large.jpg", content, lambda *_: 448), decode("large.jpg", content)
    assert 2 * 448 <= max(less.size) < 4800 / 2
    assert full.size == (4800, 3200)
    assert difference(*(image.resize((448, 299), Image.Resampling.BICUBIC) for image in (less, full))) < 2


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "I;16"])
def test_a_large_image_of_any_kind_is_reduced_and_stays_upright(mode):
    half = np.zeros((4200, 4000), np.uint8)
    half[:2100] = 200  # bright above; lying on its side after the camera
    image = Image.fromarray(half.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(half).convert(mode)
    exif = Image.Exif()
    exif[0x0112] = 6
    content = saved(image, "PNG", exif=exif, compress_level=1)
    small = decode("large.png", content, lambda *_: 448).convert("L")
    assert 2 * 448 <= max(small.size) <= 4 * 448
    assert small.getpixel((0, 5)) == 0  # rotated by a quarter: dark left, bright right
    assert small.getpixel((small.width - 1, 5)) == 200


def test_digests_are_of_what_an_image_shows_not_of_its_name(tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        Image.new("RGB", (4, 4), "blue" if name == "c.png" else "red").save(tmp_path / name)
    a, b, c = (digest_of(Photo(name, tmp_path / name)) for name in ("a.png", "b.png", "c.png"))
    assert a == b != c
    assert digest_of(Photo("d", (tmp_path / "a.png").read_bytes())) == a
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert digest_of(Photo("x", grey)) == digest_of(Photo("y", grey.copy())) != digest_of(Photo("z", grey.T))
    red, green = Image.new("P", (8, 8), 1), Image.new("P", (8, 8), 1)
    red.putpalette([0, 0, 0, 255, 0, 0])
    green.putpalette([0, 0, 0, 0, 255, 0])
    upright, rotated = Image.fromarray(grey), Image.fromarray(grey)
    rotated.getexif()[0x0112] = 3
    assert len({digest_of(Photo("x", image)) for image in (red, green, upright, rotated)}) == 4


def test_arrays_are_taken_as_scikit_image_makes_them_and_others_are_refused():
    grey = np.full((4, 5), 128, np.uint8)
    colours = np.full((4, 5, 3), 128)
    opaque = np.dstack([grey, grey, grey, np.full((4, 5), 255, np.uint8)])
    for array in (grey, grey[..., None], colours / 255, (colours * 257).astype(np.uint16), opaque):
        image = load_image(Photo("array", array))
        assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (5, 4), (128, 128, 128))
    for array, says in (
        (np.zeros((4, 5, 2), np.uint8), r"shape \(h, w\), .* got \(4, 5, 2\)"),
        (np.zeros((0, 5), np.uint8), "shape"),
        (np.zeros((4, 5), np.int64), "got int64"),
        (np.full((4, 5), 2.0), "must lie in 0..1, got 2 to 2"),
        (np.full((4, 5), np.nan), "must lie in 0..1"),
    ):
        with pytest.raises(PhotoError, match=says):
            load_image(Photo("array", array))


# --- photos of phones -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODERN)
def test_a_photo_of_a_phone_is_read_as_the_same_upright_pixels(kind, cat, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    content = modern(cat.transpose(Image.Transpose.ROTATE_90), kind, exif=exif.tobytes())
    (tmp_path / f"IMG_1.{'HEIC' if kind == 'HEIF' else kind}").write_bytes(content)
    (photo,) = find_photos(tmp_path)
    image = load_image(photo)
    assert image.size == cat.size
    assert difference(image, cat) < 4


@pytest.mark.parametrize("kind", MODERN)
def test_damaged_photos_of_phones_are_refused_or_decoded(kind, cat):
    content, rng = modern(cat, kind), np.random.default_rng(0)
    for _ in range(40):
        broken = bytearray(content[: rng.integers(12, len(content))])
        for place in rng.integers(8, len(broken), 6):
            broken[place] = rng.integers(256)
        try:
            image = decode("x", bytes(broken))
        except PhotoError:
            continue
        assert image.mode in ("RGB", "L")
    huge = bytearray(content)
    place = content.index(b"ispe") + 8
    huge[place : place + 8] = struct.pack(">II", 30_000, 30_000)
    with pytest.raises(PhotoError):
        decode("bomb", bytes(huge))
    with pytest.raises(PhotoError, match="can be read"):
        decode("a", content[:12] + b"\0" * 300)


def test_where_the_decoder_is_missing_the_way_to_get_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_has_heic", lambda: False)
    formats.endings.cache_clear()
    formats.pillow_formats.cache_clear()
    try:
        (tmp_path / "cat").mkdir()
        for name in ("cat/1.heic", "cat/2.png"):
            (tmp_path / name).write_bytes(b"\0\0\0\x18ftypheic" + b"\0" * 8)
        (sentence,) = find_photos(tmp_path).passed_over.sentences()
        assert "1 with .heic" in sentence
        assert "extra heic" in sentence
        with pytest.raises(PhotoError, match="is not an image.*extra heic"):
            load(tmp_path / "cat" / "1.heic")
    finally:
        formats.endings.cache_clear()
        formats.pillow_formats.cache_clear()


# --- colour profiles --------------------------------------------------------------------------------------------------


PLAIN = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
OTHER = PLAIN.replace("sRGB".encode("utf-16-be"), "mine".encode("utf-16-be"))  # its description
SWAPPED = OTHER.replace(b"rXYZ", b"....").replace(b"bXYZ", b"rXYZ").replace(b"....", b"bXYZ")  # red is blue


@pytest.mark.parametrize("convert", [lambda cat: cat, lambda cat: cat.convert("RGBA"), lambda cat: cat.quantize(256)])
def test_colours_are_converted_from_the_profile_of_a_photo(cat, convert):
    image = convert(cat)
    plain = np.asarray(image.convert("RGB"), float)[:, :, ::-1]
    assert difference(decode("a.png", saved(image, "PNG", icc_profile=SWAPPED)), plain) < 3


@pytest.mark.parametrize("profile", [PLAIN, b"not a profile", b""], ids=["sRGB", "text", "none"])
def test_a_profile_that_is_srgb_or_damaged_changes_nothing(cat, profile):
    assert _to_srgb(cat.copy(), profile).tobytes() == cat.tobytes()
    grey = cat.convert("L")
    assert decode("a.png", saved(grey, "PNG", icc_profile=SWAPPED)).tobytes() == grey.tobytes()
