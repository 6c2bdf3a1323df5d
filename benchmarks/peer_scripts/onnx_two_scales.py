"""An image without parts at the two scales that patchvote looks at: the root of the mean of each, and a linear SVM.

python onnx_two_scales.py fit TRAIN MODEL
python onnx_two_scales.py predict MODEL TEST ANSWERS
"""

import csv
import sys
from pathlib import Path

import joblib
import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.svm import LinearSVC

from patchvote import Dense, Extractor, Recipe, find_photos


def features(files):
    photos = Extractor(Recipe(sampling=Dense((224, 448), whole=False))).stream(find_photos(files))
    scales = [[photo.bag.values[photo.bag.level == scale].mean(axis=0) for scale in (1, 2)] for photo in photos]
    return np.stack([normalize(np.sqrt(means)).ravel() for means in scales])


if sys.argv[1] == "fit":
    files = sorted(Path(sys.argv[2]).glob("*/*"))
    search = GridSearchCV(LinearSVC(), {"C": [1, 3, 10]}, n_jobs=-1)
    model = make_pipeline(StandardScaler(with_std=False), search)
    model.fit(features(files), [file.parent.name for file in files])
    joblib.dump(model, sys.argv[3])
else:
    files = sorted(Path(sys.argv[3]).glob("*/*"))
    answers = joblib.load(sys.argv[2]).predict(features(files))
    with open(sys.argv[4], "w", newline="") as target:
        csv.writer(target).writerows(zip(files, answers))
