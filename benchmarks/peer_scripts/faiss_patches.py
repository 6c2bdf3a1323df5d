"""A memory of patches as PatchCore keeps one, with exact search by faiss: the class with the nearest patches wins.

python faiss_patches.py fit TRAIN MODEL
python faiss_patches.py predict MODEL TEST ANSWERS
"""

import csv
import sys
from pathlib import Path

import faiss
import numpy as np

from patchvote import Dense, Extractor, Recipe, find_photos

EXTRACTOR = Extractor(Recipe(sampling=Dense((224, 448), whole=False)))


def patches(files):
    for photo in EXTRACTOR.stream(find_photos(files)):
        values = photo.bag.values.astype(np.float32)
        faiss.normalize_L2(values)
        yield values


if sys.argv[1] == "fit":
    folders = sorted(folder for folder in Path(sys.argv[2]).iterdir() if folder.is_dir())
    memory = {folder.name: np.concatenate(list(patches(sorted(folder.glob("*"))))) for folder in folders}
    with open(sys.argv[3], "wb") as target:
        np.savez(target, **memory)
else:
    indices = {}
    for name, values in np.load(sys.argv[2]).items():
        indices[name] = faiss.IndexFlatL2(values.shape[1])
        indices[name].add(values)
    with open(sys.argv[4], "w", newline="") as target:
        files = sorted(Path(sys.argv[3]).glob("*/*"))
        for file, values in zip(files, patches(files)):
            distances = {name: index.search(values, 1)[0].sum() for name, index in indices.items()}
            csv.writer(target).writerow([file, min(distances, key=distances.get)])
