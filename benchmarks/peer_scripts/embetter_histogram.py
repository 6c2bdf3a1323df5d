"""embetter: colour histograms, the one encoder of images in it that needs no download, and logistic regression.

python embetter_histogram.py fit TRAIN MODEL
python embetter_histogram.py predict MODEL TEST ANSWERS
"""

import csv
import sys
from pathlib import Path

import joblib
from embetter.vision import ColorHistogramEncoder, ImageLoader
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

if sys.argv[1] == "fit":
    files = sorted(Path(sys.argv[2]).glob("*/*"))
    model = make_pipeline(ImageLoader(), ColorHistogramEncoder(), LogisticRegression(max_iter=1000))
    model.fit([str(file) for file in files], [file.parent.name for file in files])
    joblib.dump(model, sys.argv[3])
else:
    files = sorted(Path(sys.argv[3]).glob("*/*"))
    answers = joblib.load(sys.argv[2]).predict([str(file) for file in files])
    with open(sys.argv[4], "w", newline="") as target:
        csv.writer(target).writerows(zip(files, answers))
