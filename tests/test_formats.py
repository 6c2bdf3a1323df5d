"""Photos of phones: HEIC, AVIF and embedded colour profiles."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from helpers.decoding import decode
from patchvote import Photo, PhotoError, find_photos
from patchvote.photos import formats
from patchvote.photos.decode import load_image
from patchvote.photos.passed_over import PassedOver
from patchvote.photos.profiles import to_srgb

HEIC = pytest.mark.skipif(not formats._has_heic(), reason="pillow-heif is not installed")
AVIF = pytest.mark.skipif(not formats._has_avif(), reason="Pillow has no AVIF")
SRGB = {"r": (0.4360, 0.2225, 0.0139), "g": (0.3851, 0.7169, 0.0971), "b": (0.1431, 0.0606, 0.7142)}


def saved(image, kind, **settings):
    if kind == "HEIF":
        formats._register_heic()
    file = io.BytesIO()
    image.save(file, kind, **settings)
    return file.getvalue()


def profile_of(red, green, blue, description="test"):
    """Return an ICC profile of a colour space with these primaries and the tone curve of a power of 2.2."""

    def fixed(*values):
        return b"".join(struct.pack(">i", round(value * 65536)) for value in values)

    text = description.encode() + b"\0"
    tags = {
        b"desc": b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + b"\0" * 78,
        b"wtpt": b"XYZ \0\0\0\0" + fixed(0.9642, 1.0, 0.8249),
        **{
            name: b"XYZ \0\0\0\0" + fixed(*values)
            for name, values in zip((b"rXYZ", b"gXYZ", b"bXYZ"), (red, green, blue), strict=True)
        },
        **{name: b"curv\0\0\0\0" + struct.pack(">IH", 1, 563) + b"\0\0" for name in (b"rTRC", b"gTRC", b"bTRC")},
    }
    table, body, start = struct.pack(">I", len(tags)), b"", 128 + 4 + 12 * len(tags)
    for name, tag in tags.items():
        tag += b"\0" * (-len(tag) % 4)
        table += name + struct.pack(">II", start + len(body), len(tag))
        body += tag
    header = struct.pack(">I4sI", 128 + len(table + body), b"lcms", 0x02100000) + b"mntrRGB XYZ "
    header += b"\0" * 12 + b"acsp" + b"\0" * 28 + fixed(0.9642, 1.0, 0.8249)
    return header.ljust(128, b"\0") + table + body


@pytest.fixture(scope="module")
def cat(real_photos):
    return Image.open(real_photos / "chelsea.png").convert("RGB").crop((100, 50, 260, 170))


@HEIC
def test_a_heic_photo_is_read_as_the_same_pixels(cat, tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "IMG_1.HEIC").write_bytes(saved(cat, "HEIF", quality=95))
    (photo,) = find_photos(tmp_path)
    difference = np.asarray(load_image(photo), float) - np.asarray(cat)
    assert np.abs(difference).mean() < 4


@HEIC
def test_a_rotated_heic_photo_is_upright(cat):
    exif = Image.Exif()
    exif[0x0112] = 6
    content = saved(cat.transpose(Image.Transpose.ROTATE_90), "HEIF", quality=95, exif=exif.tobytes())
    image = decode("a.heic", content)
    assert image.size == cat.size
    assert np.abs(np.asarray(image, float) - np.asarray(cat)).mean() < 4


@AVIF
def test_an_avif_photo_is_read_as_the_same_pixels(cat, tmp_path):
    (tmp_path / "cat.avif").write_bytes(saved(cat, "AVIF", quality=95, speed=10))
    image = load_image(Photo("cat.avif", tmp_path / "cat.avif"))
    assert np.abs(np.asarray(image, float) - np.asarray(cat)).mean() < 4


@pytest.mark.parametrize(("kind", "brand", "says"), [("heic", b"heic", "extra heic"), ("avif", b"avif", "from PyPI")])
def test_where_the_decoder_is_missing_the_way_to_get_it_is_told(kind, brand, says, tmp_path, monkeypatch):
    monkeypatch.setattr(formats, f"_has_{kind}", lambda: False)
    formats.endings.cache_clear()
    try:
        for name in (f"cat/1.{kind}", "cat/2.png"):
            (tmp_path / "cat").mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"\0\0\0\x18ftyp" + brand + b"\0" * 8)
        (sentence,) = find_photos(tmp_path).passed_over.sentences()
        assert f"1 with .{kind}" in sentence
        assert says in sentence
        with pytest.raises(PhotoError, match=f"is a photo of the type {kind.upper()}.*{says}"):
            load_image(Photo("2.png", tmp_path / "cat" / "2.png"))
    finally:
        formats.endings.cache_clear()


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_damaged_files_of_these_types_are_refused_or_decoded(kind, cat):
    if not (formats._has_heic() if kind == "HEIF" else formats._has_avif()):
        pytest.skip("no decoder")
    content = saved(cat, kind, quality=60)
    rng = np.random.default_rng(0)
    for _ in range(40):
        broken = bytearray(content[: rng.integers(12, len(content))])
        for place in rng.integers(8, len(broken), 6):
            broken[place] = rng.integers(256)
        try:
            image = decode("x", bytes(broken))
        except PhotoError:
            continue
        assert image.mode in ("RGB", "L")


@pytest.mark.parametrize("kind", ["heic", "avif"])
def test_a_damaged_photo_of_a_type_that_is_read_here_is_told_as_damaged(kind):
    if f".{kind}" not in formats.endings():
        pytest.skip(f"no decoder of {kind} is installed")
    with pytest.raises(PhotoError, match="is a damaged photo of the type|is damaged") as told:
        decode(f"a.{kind}", b"\0\0\0\x18ftyp" + kind.encode() + b"\0" * 300)
    assert "Install" not in str(told.value)


def test_each_type_that_is_passed_over_gets_its_own_advice():
    (sentence,) = PassedOver({".nef": 2, ".heic": 1, ".cr2": 1}, "a.nef").sentences()
    assert ".nef, .cr2: Convert such photos to .jpg or .png. .heic: Install the extra heic" in sentence
    assert "pip install 'patchvote[heic]'" in PassedOver({".heic": 1}).advice()[0]


@HEIC
def test_a_heic_photo_that_claims_too_many_pixels_is_refused():
    content = bytearray(saved(Image.new("RGB", (64, 48)), "HEIF"))
    place = content.index(b"ispe") + 8
    content[place : place + 8] = struct.pack(">II", 30_000, 30_000)
    with pytest.raises(PhotoError):
        decode("bomb.heic", bytes(content))


def test_colours_are_converted_from_the_profile_of_a_photo(cat):
    swapped = profile_of(SRGB["b"], SRGB["g"], SRGB["r"])  # what it calls red is blue
    image = decode("a.png", saved(cat, "PNG", icc_profile=swapped))
    assert np.abs(np.asarray(image, float) - np.asarray(cat)[:, :, ::-1]).mean() < 3


def test_transparent_and_palette_images_keep_their_profile(cat):
    swapped = profile_of(SRGB["b"], SRGB["g"], SRGB["r"])
    for image in (cat.convert("RGBA"), cat.quantize(256)):
        plain = np.asarray(image.convert("RGB"), float)[:, :, ::-1]
        assert np.abs(np.asarray(decode("a", saved(image, "PNG", icc_profile=swapped)), float) - plain).mean() < 3


def test_a_wide_colour_space_becomes_more_saturated():
    wide = profile_of((0.6097, 0.3111, 0.0195), (0.2053, 0.6257, 0.0609), (0.1492, 0.0632, 0.7446))  # Adobe RGB
    image = Image.new("RGB", (8, 8), (60, 180, 60))
    red, green, _ = decode("a.png", saved(image, "PNG", icc_profile=wide)).getpixel((0, 0))
    assert red < 40
    assert abs(green - 180) < 8


@pytest.mark.parametrize(
    "profile",
    [profile_of(*SRGB.values(), description="sRGB IEC61966-2.1"), b"not a profile", b"\0" * 128],
    ids=["sRGB", "text", "zeros"],
)
def test_a_profile_that_says_nothing_new_changes_nothing(cat, profile):
    assert decode("a.png", saved(cat, "PNG", icc_profile=profile)).tobytes() == cat.tobytes()


def test_flipped_bytes_of_a_profile_never_stop_the_decoding(cat):
    profile, rng = bytearray(profile_of(*SRGB.values())), np.random.default_rng(0)
    for _ in range(60):
        broken = profile.copy()
        for place in rng.integers(0, len(broken), 8):
            broken[place] = rng.integers(256)
        assert decode("a.png", saved(cat, "PNG", icc_profile=bytes(broken))).size == cat.size


def test_a_grey_image_stays_grey_whatever_its_profile(cat):
    grey = cat.convert("L")
    image = decode("a.png", saved(grey, "PNG", icc_profile=profile_of(*SRGB.values())))
    assert (image.mode, image.tobytes()) == ("L", grey.tobytes())


def test_a_profile_of_many_megabytes_is_not_read(cat):
    swapped = profile_of(SRGB["b"], SRGB["g"], SRGB["r"])
    assert to_srgb(cat.copy(), swapped).tobytes() != cat.tobytes()
    assert to_srgb(cat.copy(), swapped + b"\0" * (4 << 20)).tobytes() == cat.tobytes()
