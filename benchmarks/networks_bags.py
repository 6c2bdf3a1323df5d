"""Bags of the networks that `networks.py` compares: every network is extracted once, and variants are columns of it.

All tokens of the transformer stand in one store: those of the last block, of block 9, and the class token. It has a
cell every 16 pixels; beside a network that has one every 32, tokens are averaged over four cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from networks_tokens import CLASS, write_token_maps
from patchvote import Bags, Extractor, Photo, Recipe, Store, fill
from patchvote.networks.joined import unit

LITE = {"lite0": "efficientnet-lite0", "lite2": "efficientnet-lite2"}
POOLED = {"vit": 1, "vit32": 2}  # cells per side over which tokens are averaged
TOKENS = {"last": "tokens", "block9": "tokens_block9", "class": CLASS}
WIDTH = 192  # features of a token of ViT-Tiny
_AT_ONCE = 64  # photos that are read at once

# By name in records: sources that stand side by side, each with the tokens that are read of it.
Parts = tuple[tuple[str, tuple[str, ...]], ...]
NETWORKS: dict[str, Parts] = {
    "lite0": (("lite0", ()),),
    "lite2": (("lite2", ()),),
    "vit-last": (("vit", ("last",)),),
    "vit-block9": (("vit", ("block9",)),),
    "vit-class": (("vit", ("class",)),),
    "vit-last-class": (("vit", ("last", "class")),),
    "vit-last-block9": (("vit", ("last", "block9")),),
    "lite0+lite2": (("lite0", ()), ("lite2", ())),
    "lite0+vit": (("lite0", ()), ("vit32", ("last", "class"))),
    "lite2+vit": (("lite2", ()), ("vit32", ("last", "class"))),
}


def needs_transformer(network: str) -> bool:
    """Whether a network is read from the transformer's file."""
    return any(source in POOLED for source, _ in NETWORKS[network])


def name_of(network: str, transformer: Path, folder: Path) -> str:
    """Return the name by which patchvote loads a network; files that it needs are written to a folder."""
    names = []
    for source, tokens in NETWORKS[network]:
        if source in LITE:
            names.append(LITE[source])
        else:
            outputs = tuple(TOKENS[token] for token in tokens)
            path = folder / f"{source}-{'-'.join(tokens)}.onnx"
            names.append(str(write_token_maps(transformer, path, outputs, POOLED[source])))
    return "+".join(names)


class Stores:
    """Stores of one image set, one per source.

    Parameters
    ----------
    folder : Path
        Folder of the stores.
    transformer : Path
        ONNX file of the transformer.
    photos : sequence of Photo
        Photos to extract.
    jobs : int, optional
        Number of threads.
    """

    def __init__(self, folder: Path, transformer: Path, photos: Sequence[Photo], jobs: int | None) -> None:
        self._folder, self._transformer, self._photos, self._jobs = folder, transformer, photos, jobs
        self._open: dict[str, Store] = {}

    def _store(self, source: str) -> Store:
        """Return the store of a source; its photos are extracted when it is first used."""
        if source not in self._open:
            name = LITE.get(source) or str(
                write_token_maps(
                    self._transformer,
                    self._folder / f"{source}.onnx",
                    tuple(TOKENS.values()),
                    POOLED[source],
                    unit=False,
                )
            )
            print(f"{self._folder.name}, {source}: {len(self._photos):,} photos", flush=True)
            fill(self._folder / source, list(self._photos), Extractor(Recipe(name), jobs=self._jobs))
            self._open[source] = Store.open(self._folder / source)
        return self._open[source]

    def blocks(self, network: str, names: Sequence[str]) -> Iterator[Bags]:
        """Yield the bags of some photos by a network, in float16, a few photos at a time."""
        for start in range(0, len(names), _AT_ONCE):
            part = names[start : start + _AT_ONCE]
            loaded = [
                (self._store(source).only(part).load(dtype=np.float32)[0], tokens)
                for source, tokens in NETWORKS[network]
            ]
            yield _joined(loaded).astype(np.float16)

    def bags(self, network: str, names: Sequence[str]) -> Bags:
        """Return the bags of some photos by a network, in float16."""
        return Bags.join(list(self.blocks(network, names)))


def _joined(loaded: Sequence[tuple[Bags, tuple[str, ...]]]) -> Bags:
    """Return bags with the descriptors of all sources, as `JoinedBackbone` and `write_token_maps` join them."""
    values = []
    for bags, tokens in loaded:
        places = [list(TOKENS).index(token) for token in tokens]
        columns = [bags.values[:, WIDTH * place : WIDTH * (place + 1)] for place in places] or [bags.values]
        values.append(columns[0] if len(columns) == 1 else np.hstack([unit(one) for one in columns]))
    first = loaded[0][0]
    joined = values[0] if len(values) == 1 else np.hstack([unit(one) for one in values])
    result = Bags(np.array(joined, np.float32), first.offsets, first.boxes, first.level)
    if len(values) > 1 or any(len(tokens) > 1 for _, tokens in loaded):
        whole_from_cells(result)
    return result


def whole_from_cells(bags: Bags) -> None:
    """Replace the descriptor of each whole image by the mean of its cells at the first scale, as `dense` defines it."""
    cells, whole = np.flatnonzero(bags.level == 1), np.flatnonzero(bags.level == 0)
    starts = np.searchsorted(bags.owner[cells], bags.owner[whole])
    counts = np.bincount(bags.owner[cells], minlength=len(bags))[bags.owner[whole]]
    bags.values[whole] = np.add.reduceat(bags.values[cells], starts, axis=0) / counts[:, None]
