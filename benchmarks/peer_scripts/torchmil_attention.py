"""torchmil: attention-based multiple instance learning (ABMIL) on descriptors of the same parts as patchvote's.

torchmil's models tell two classes apart; for more, the last layer is replaced and the labels are one-hot.

python torchmil_attention.py fit TRAIN MODEL
python torchmil_attention.py predict MODEL TEST ANSWERS
"""

import csv
import random
import sys
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from torchmil.models import ABMIL

from patchvote import Dense, Extractor, Recipe, find_photos

EXTRACTOR = Extractor(Recipe(sampling=Dense((224, 448), whole=False)))
EPOCHS, BATCH = 10, 16


def bags_of(files):
    for photo in EXTRACTOR.stream(find_photos(files)):
        yield torch.from_numpy(photo.bag.values).float()


def network(classes):
    model = ABMIL(in_shape=(1280,), gated=True, criterion=torch.nn.CrossEntropyLoss())
    model.classifier = torch.nn.Linear(1280, len(classes))
    return model


if sys.argv[1] == "fit":
    random.seed(0), torch.manual_seed(0)
    files = sorted(Path(sys.argv[2]).glob("*/*"))
    classes = sorted({file.parent.name for file in files})
    labels = torch.nn.functional.one_hot(torch.tensor([classes.index(file.parent.name) for file in files]))
    bags = list(bags_of(files))
    means = torch.stack([bag.mean(dim=0) for bag in bags])
    mean, scale = means.mean(dim=0), means.std(dim=0) + 1e-3
    bags = [(bag - mean) / scale for bag in bags]
    model = network(classes).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        order = random.sample(range(len(bags)), len(bags))
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            mask = pad_sequence([torch.ones(len(bags[index])) for index in chosen], batch_first=True)
            batch = pad_sequence([bags[index] for index in chosen], batch_first=True)
            _, losses = model.compute_loss(labels[chosen], batch, mask)
            optimiser.zero_grad()
            sum(losses.values()).backward()
            optimiser.step()
        schedule.step()
    torch.save({"classes": classes, "mean": mean, "scale": scale, "weights": model.state_dict()}, sys.argv[3])
else:
    saved = torch.load(sys.argv[2], weights_only=True)
    model = network(saved["classes"]).eval()
    model.load_state_dict(saved["weights"])
    with torch.inference_mode(), open(sys.argv[4], "w", newline="") as target:
        files = sorted(Path(sys.argv[3]).glob("*/*"))
        for file, bag in zip(files, bags_of(files)):
            scores = model((bag[None] - saved["mean"]) / saved["scale"])
            csv.writer(target).writerow([file, saved["classes"][int(scores.argmax())]])
