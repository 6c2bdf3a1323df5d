"""The paper's own way: random patches of photos through the network one by one, and votes of sNBNL.

Usage:
    python paper_patches.py fit TRAIN MODEL
    python paper_patches.py predict MODEL TEST ANSWERS
"""

import csv
import sys
from pathlib import Path

from patchvote import SNBNL, ImageClassifier, Patch, Recipe

if sys.argv[1] == "fit":
    ImageClassifier(Recipe(sampling=Patch()), voter=SNBNL(), cache=False).fit(sys.argv[2]).save(sys.argv[3])
else:
    files = sorted(Path(sys.argv[3]).glob("*/*"))
    answers = ImageClassifier.load(sys.argv[2], cache=False).predict(files)
    with open(sys.argv[4], "w", newline="") as target:
        csv.writer(target).writerows(zip(files, answers))
