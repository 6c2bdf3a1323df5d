"""None of these: a model of four classes is asked about photos of classes that it does not know.

    python examples/reject_unknown.py FOLDER

Draws `familiarity.png`: how familiar photos of known and of unknown classes look to the model.
"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from patchvote import ImageClassifier, find_photos
from photos import output_folder, save_figure, small_photos

UNKNOWN = ("stars", "tissue")
THRESHOLD = 0.05  # the default: at most 1 in 20 photos of the classes may be rejected


def main():
    """Learn four classes, and look at the familiarity of photos of six."""
    figures = output_folder()
    train, test, _ = small_photos(per_class=8)
    photos = [photo for photo in find_photos(train) if photo.label not in UNKNOWN]
    classifier = ImageClassifier(cache=train.parent / "cache", jobs=1).fit(photos)

    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    rng, rejected = np.random.default_rng(0), {True: [], False: []}
    classes = sorted(classifier.classes) + list(UNKNOWN)
    for number, label in enumerate(classes):
        answers = list(classifier.answers(sorted((test / label).glob("*.png"))))
        rejected[label in UNKNOWN] += [answer.rejected for answer in answers]
        familiarity = np.maximum([answer.familiarity for answer in answers], 1e-4)
        colour = "#c62828" if label in UNKNOWN else "#00796b"
        axes.semilogx(familiarity, number + rng.uniform(-0.2, 0.2, len(answers)), "o", color=colour, alpha=0.7)
    axes.axvline(THRESHOLD, color="black", linestyle="--")
    axes.set_yticks(range(len(classes)), [f"{label} (unknown)" if label in UNKNOWN else label for label in classes])
    axes.set_xlabel("familiarity; left of the line the answer is “none of these”")
    for unknown, answers in rejected.items():
        print(f"{'unknown' if unknown else 'known'} classes: {sum(answers)} of {len(answers)} photos are rejected")
    save_figure(figure, figures / "familiarity.png")


if __name__ == "__main__":
    main()
