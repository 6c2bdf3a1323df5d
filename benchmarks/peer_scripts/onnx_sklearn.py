"""Features of the whole photo from patchvote's ONNX network, and a classifier of scikit-learn.

python onnx_sklearn.py fit TRAIN MODEL logistic|logistic-cv|svm|svm-cv|knn|centroid
python onnx_sklearn.py predict MODEL TEST ANSWERS
"""

import csv
import sys
from pathlib import Path

import joblib
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from patchvote import Dense, Extractor, Recipe, find_photos

HEADS = {
    "logistic": LogisticRegression(max_iter=1000),
    "logistic-cv": GridSearchCV(LogisticRegression(max_iter=1000), {"C": [1e-4, 1e-3, 1e-2, 0.1, 1, 10]}, n_jobs=-1),
    "svm": LinearSVC(C=0.01),
    "svm-cv": GridSearchCV(LinearSVC(), {"C": [1e-5, 1e-4, 1e-3, 1e-2]}, n_jobs=-1),
    "knn": KNeighborsClassifier(5, metric="cosine"),
    "centroid": NearestCentroid(),
}


def features(files):
    photos = Extractor(Recipe(sampling=Dense((448,), whole=False))).stream(find_photos(files))
    return np.concatenate([photo.bag.means() for photo in photos])  # not all bags at once


if sys.argv[1] == "fit":
    files = sorted(Path(sys.argv[2]).glob("*/*"))
    model = make_pipeline(StandardScaler(), HEADS[sys.argv[4]])
    model.fit(features(files), [file.parent.name for file in files])
    joblib.dump(model, sys.argv[3])
else:
    files = sorted(Path(sys.argv[3]).glob("*/*"))
    answers = joblib.load(sys.argv[2]).predict(features(files))
    with open(sys.argv[4], "w", newline="") as target:
        csv.writer(target).writerows(zip(files, answers))
