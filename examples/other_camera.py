"""Photos of another camera: how much accuracy they cost, and what adapting without labels brings.

    python examples/other_camera.py FOLDER

The other camera is made up: test photos are darkened, get a colour cast, and are blurred. Draws `cameras.png`.
"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageFilter

from patchvote import ImageClassifier
from photos import output_folder, save_figure, small_photos


def with_other_camera(source, target):
    """Write photos as a camera with a poor lens and a wrong white balance would have taken them."""
    for path in sorted(source.glob("*/*.png")):
        image = Image.open(path).convert("RGB").filter(ImageFilter.GaussianBlur(1.2))
        pixels = 255 * (np.asarray(image, float) / 255) ** 1.8 * (1.0, 0.75, 0.5)
        place = target / path.parent.name / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(place)
    return target


def main():
    """Learn from one camera, and ask about photos of another: as it is, and adapted."""
    figures = output_folder()
    train, test, _ = small_photos(per_class=8)
    other = with_other_camera(test, test.parent / "other camera")

    classifier = ImageClassifier(cache=train.parent / "cache", jobs=1).fit(train)
    found = {"same camera": classifier.evaluate(test), "other camera": classifier.evaluate(other)}
    classifier.adapt(sorted(other.glob("*/*.png")))  # a list of files: their labels are not looked at
    if classifier.refusal:
        print("not adapted:", classifier.refusal)
    found["other camera,\nadapted"] = classifier.evaluate(other)

    figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
    for number, (name, scores) in enumerate(found.items()):
        low, high = scores.interval
        print(f"{name!r}: {100 * scores.accuracy:.1f} % of {len(scores)} photos")
        axes.bar(number, 100 * scores.accuracy, color="#00796b", width=0.6)
        axes.plot([number, number], [100 * low, 100 * high], color="black")
    axes.set_xticks(range(len(found)), found)
    axes.set_ylim(0, 105)
    axes.set_ylabel("classified correctly, %")
    axes.set_title("lines: 95 % confidence", fontsize="small")
    save_figure(figure, figures / "cameras.png")


if __name__ == "__main__":
    main()
