"""A first model: learn, measure, ask, and look at the evidence.

    python examples/first_model.py FOLDER      # figures go into FOLDER

Draws `bag.png` (the parts of a photo that vote), `confusion.png` and `evidence.png`.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from patchvote import Extractor, ImageClassifier
from photos import output_folder, save_figure, save_picture, small_photos


def draw_bag(photo, path):
    """Draw a photo, and the boxes of the descriptors of its bag, one panel per scale."""
    bags = Extractor(jobs=1)([photo])
    image = Image.open(photo)
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
    axes[0].set_title("a photo")
    for panel, level in zip(axes[1:], (1, 2), strict=True):
        boxes = bags.boxes[bags.level == level]
        panel.set_title(f"{len(boxes)} parts at {224 * level} pixels")
        for left, top, right, bottom in boxes:  # in 0..1 of the photo
            corner = (left * image.width, top * image.height)
            size = ((right - left) * image.width, (bottom - top) * image.height)
            panel.add_patch(plt.Rectangle(corner, *size, fill=False, color="orange", linewidth=0.8))
    for panel in axes:
        panel.imshow(image)
        panel.axis("off")
    save_figure(figure, path)


def draw_confusion(scores, path):
    """Draw how many photos of each class (rows) got each answer (columns)."""
    figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
    axes.imshow(scores.confusion, cmap="Blues")
    axes.set_xticks(range(len(scores.classes)), scores.classes, rotation=90)
    axes.set_yticks(range(len(scores.classes)), scores.classes)
    for (row, column), count in np.ndenumerate(scores.confusion):
        axes.text(column, row, count or "", ha="center", va="center", color="white" if row == column else "black")
    axes.set(xlabel="predicted class", ylabel="true class")
    save_figure(figure, path)


def main():
    """Learn six classes from 36 crops, and ask about 24 others."""
    figures = output_folder()
    train, test, collage = small_photos()
    draw_bag(collage, figures / "bag.png")

    classifier = ImageClassifier(cache=train.parent / "cache", jobs=1).fit(train)  # your own cache by default
    scores = classifier.evaluate(test)
    low, high = scores.interval
    print(f"{100 * scores.accuracy:.1f} % of {len(scores)} photos ({100 * low:.1f} to {100 * high:.1f} %)")
    draw_confusion(scores, figures / "confusion.png")

    for answer in classifier.answers([test / "brick" / "00.png", test / "coins" / "01.png"]):
        print(Path(answer.name).name, answer.label, answer.probability)  # None beside "none of these"
    save_picture(classifier.explain(collage).plot(["brick", "tissue", "stars"], side=240), figures / "evidence.png")


if __name__ == "__main__":
    main()
