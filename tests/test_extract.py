from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PIL import Image

from patchvote import (
    Bags,
    Dense,
    Extractor,
    NetworkError,
    Patch,
    PatchvoteError,
    Photo,
    PhotoError,
    Recipe,
    find_photos,
)
from patchvote.bags import extract as module
from patchvote.networks import load
from patchvote.networks.onnx_file import load as open_onnx
from patchvote.photos.decode import load_image

DENSE = Recipe(sampling=Dense(sides=(64, 128)))
PATCH = Recipe(sampling=Patch(count=20, input=32))


def across_then_down(image: Image.Image, width: int, height: int) -> Image.Image:
    wide = image.resize((width, image.height), Image.Resampling.BICUBIC)
    return wide.resize((width, height), Image.Resampling.BICUBIC)


def same(a: Bags, b: Bags, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(a.values, b.values, atol=tolerance)
    for name in ("offsets", "boxes", "level"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def dense_by_hand(photo: Photo, recipe: Recipe) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One photo, one scale after the other, one cell after the other."""
    net, image = load(recipe.network), load_image(photo)
    values, boxes, level = [], [], []
    for index, side in enumerate(recipe.sampling.sides, start=1):
        width, height = recipe.sampling.input_size(*image.size, side, 32)
        (cells,) = net(np.asarray(across_then_down(image, width, height))[None])
        if index == 1:
            values.append(cells.reshape(-1, cells.shape[-1]).mean(axis=0))
            boxes.append([0, 0, 1, 1])
            level.append(0)
        rows, columns = cells.shape[:2]
        for row in range(rows):
            for column in range(columns):
                values.append(cells[row, column])
                boxes.append([column / columns, row / rows, (column + 1) / columns, (row + 1) / rows])
                level.append(index)
    return np.array(values), np.array(boxes), np.array(level)


def patches_by_hand(photo: Photo, recipe: Recipe) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One photo, one patch after the other, as the paper does it."""
    net, image = load(recipe.network), load_image(photo)
    size = recipe.sampling.working_size(*image.size)
    small = across_then_down(image, *size)
    pixel_boxes, level = recipe.sampling.pixel_boxes(*size)
    values = []
    for box in pixel_boxes.tolist():
        patch = across_then_down(small.crop(box), *(recipe.sampling.input,) * 2)
        values.append(net(np.asarray(patch)[None]).mean(axis=(0, 1, 2)))
    return np.array(values), pixel_boxes / np.tile(size, 2), level


@pytest.mark.parametrize(
    ("recipe", "by_hand"), [(DENSE, dense_by_hand), (PATCH, patches_by_hand)], ids=["dense", "patch"]
)
def test_bags_equal_the_plain_loop_of_the_definition(photo_folder, recipe, by_hand):
    photos = find_photos(photo_folder)[::5]
    for photo, bag in zip(photos, Extractor(recipe)(photos), strict=True):
        values, boxes, level = by_hand(photo, recipe)
        np.testing.assert_allclose(bag.values, values, atol=1e-5)
        np.testing.assert_allclose(bag.boxes, boxes, atol=1e-6)
        np.testing.assert_array_equal(bag.level, level)


@pytest.mark.parametrize("recipe", [DENSE, PATCH], ids=["dense", "patch"])
def test_bags_do_not_depend_on_batches_threads_or_neighbours(photo_folder, recipe, monkeypatch):
    photos = find_photos(photo_folder)[:12]
    expected = Extractor(recipe)(photos)
    same(Extractor(recipe, jobs=1)(photos), expected)
    same(Extractor(recipe, jobs=5)(photos), expected)
    same(Bags.join([Extractor(recipe)([photo]) for photo in photos]), expected)
    same(Extractor(recipe)(photos[::-1])[np.arange(11, -1, -1)], expected)
    same(Extractor(recipe, backbone=load(recipe.network, threads=2))(photos), expected)
    for pixels in (1, 1 << 20):
        monkeypatch.setattr(module, "_BATCH_PIXELS", pixels)
        same(Extractor(recipe)(photos), expected)


class Counting:
    """A network that notes the batches it gets, and cannot take narrow images."""

    def __init__(self) -> None:
        self.inner = load("efficientnet-lite0")
        self.spec = self.inner.spec
        self.batches: list[tuple[int, ...]] = []

    def __call__(self, images: np.ndarray) -> np.ndarray:
        if images.shape[1] > 3 * images.shape[2]:
            raise NetworkError("too narrow")
        self.batches.append(images.shape)
        return self.inner(images)


def test_patches_of_many_photos_share_batches(photo_folder, monkeypatch):
    monkeypatch.setattr(module, "_BATCH_PIXELS", 32 * 32 * 64)
    counting = Counting()
    bags = Extractor(PATCH, backbone=counting, jobs=2)(find_photos(photo_folder)[:6])
    assert len(counting.batches) == -(-len(bags.values) // 64) < len(bags)


def test_photos_come_in_order_and_bad_ones_take_their_place(photo_folder, tmp_path):
    (tmp_path / "bad.jpg").write_text("no photo")
    photos = find_photos(photo_folder)[:3]
    photos.insert(1, Photo("bad.jpg", tmp_path / "bad.jpg"))
    photos.insert(2, Photo("odd", np.zeros((300, 30), np.uint8)))
    items = list(Extractor(DENSE).stream(photos))
    assert [item.photo for item in items] == photos
    assert [item.bag is None for item in items] == [item.error is not None for item in items]
    assert [item.error is None for item in items] == [True, False, True, True, True]
    with pytest.raises(PhotoError, match="bad.jpg: is not an image"):
        Extractor(DENSE)(photos)
    counting = Counting()
    known = list(Extractor(DENSE, backbone=counting).stream(photos, known={items[3].digest}))
    assert (known[3].bag, known[3].error, known[3].digest) == (None, None, items[3].digest)  # is not decoded
    assert str(known[2].error) == "odd: too narrow"
    assert sum(shape[0] for shape in counting.batches) == 5  # four, and one of the odd photo


def test_photos_are_drawn_only_a_few_ahead(photo_folder):
    photos, drawn = find_photos(photo_folder), []

    def draw():
        for photo in photos:
            drawn.append(photo)
            yield photo

    stream = Extractor(DENSE, jobs=2).stream(draw())
    next(stream)
    assert len(drawn) <= 12
    stream.close()
    assert len(drawn) <= 12


def test_a_network_that_does_not_fit_the_sampling_is_refused(tiny_network, photo_folder):
    vectors = open_onnx(tiny_network, output="vector")
    recipe = Recipe(network=str(tiny_network), sampling=Patch(count=20, input=64))
    assert Extractor(recipe, backbone=vectors)(find_photos(photo_folder)[:2]).dim == 6
    with pytest.raises(NetworkError, match="one vector per image"):
        Extractor(Recipe(network=str(tiny_network)), backbone=vectors)
    network = open_onnx(tiny_network, output="features")
    network.spec = dataclasses.replace(network.spec, stride=2)
    with pytest.raises(NetworkError, match="a cell every 2 pixels: .* more than 100,000 descriptors per photo"):
        Extractor(Recipe(sampling=Dense((2048,))), backbone=network)
    network.spec = dataclasses.replace(network.spec, stride=32, size=1024)
    with pytest.raises(PatchvoteError, match="100 patches of 1,024 px are 104,857,600 pixels per photo"):
        Extractor(Recipe(sampling=Patch()), backbone=network)
