"""Find the fixed basis of an embedded network in photos, and write it into the package.

    python tools/basis.py efficientnet-lite0 PHOTOS [PHOTOS ...]

PHOTOS are folders of photos or lists of files. The bases in the package are of 800 photos: 400 each of ten kinds of
rooms (the training photos of MIT Indoor-67) and of ten kinds of places (the training photos of SUN-397, partition 01).
Test photos of these lists, Scene-15 and Office+Caltech were not seen.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from patchvote import Extractor, find_photos
from patchvote.bags.moments import DIRECTIONS, signed_root
from patchvote.networks.bases import basis_file

PHOTOS = 400  # of every folder
PARTS = 20  # of every photo
WHITENING = 0.35  # directions are divided by the variance to this power; 0.25 and 0.5 were no better


def main() -> None:
    """Find and write the basis."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("network")
    parser.add_argument("photos", type=Path, nargs="+")
    arguments = parser.parse_args()
    extractor, rng, parts = Extractor(arguments.network), np.random.default_rng(0), []
    for source in arguments.photos:
        listed = source.read_text().split() if source.is_file() else source
        photos = find_photos([source.parent / name for name in listed] if isinstance(listed, list) else listed)
        chosen = np.sort(rng.permutation(len(photos))[:PHOTOS])
        for item in extractor.stream([photos[i] for i in chosen.tolist()]):
            if item.bag is not None:
                rows = rng.permutation(len(item.bag.values))[:PARTS]
                parts.append(signed_root(item.bag.values[rows]))
    sample = np.concatenate(parts).astype(np.float64)
    offset = sample.mean(axis=0)
    variance, directions = np.linalg.eigh(np.cov((sample - offset).T))
    leading = directions[:, ::-1][:, :DIRECTIONS] / variance[::-1][:DIRECTIONS] ** WHITENING
    arrays = {"offset": offset.astype(np.float16), "directions": leading.astype(np.float16)}
    file = basis_file(arguments.network)
    file.parent.mkdir(exist_ok=True)
    save_file(arrays, file, {"fingerprint": extractor.backbone.spec.fingerprint})
    print(f"{file}: {len(leading)} features, {leading.shape[1]} directions, from {len(sample):,} parts of photos")


if __name__ == "__main__":
    main()
