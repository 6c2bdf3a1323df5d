"""The basis in which products of features are taken: fixed for each network, so that features depend on a photo alone.

For an embedded network it is in the package: principal directions of its descriptors in 800 public photos
(`tools/basis.py`), whitened in part. For every other network it is a random orthonormal basis from a fixed seed; few
photos per class then lose up to a point.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash
from safetensors import safe_open

from .base import NetworkSpec

DIRECTIONS = 224  # more brought no accuracy, and a photo then takes 30 kB; with 152, other cameras lose 0.3 points


@dataclasses.dataclass(frozen=True, eq=False)
class Basis:
    """Projection of descriptors ``(n, features)`` for their products; kept in float16, and computed in float32."""

    offset: npt.NDArray[np.float16]
    directions: npt.NDArray[np.float16]

    @functools.cached_property
    def _in_float32(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        return self.offset.astype(np.float32), self.directions.astype(np.float32)

    def project(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return ``(values - offset) @ directions``."""
        offset, directions = self._in_float32
        return np.asarray((values - offset) @ directions)

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the numbers, by which features of the same basis are recognised."""
        digest = xxhash.xxh3_64(self.offset.tobytes())
        digest.update(self.directions.tobytes())
        return digest.hexdigest()


def basis_of(spec: NetworkSpec) -> Basis:
    """Return the basis of a network."""
    return basis_for(spec.name, spec.fingerprint, spec.dim)


@functools.lru_cache(4)
def basis_for(network: str, fingerprint: str, features: int) -> Basis:
    """Return the basis of the network of this name, fingerprint, and number of features."""
    file = basis_file(network)
    if file.is_file():
        with safe_open(file, "numpy") as stored:
            if stored.metadata()["fingerprint"] == fingerprint:
                return Basis(stored.get_tensor("offset"), stored.get_tensor("directions"))
    return random_basis(features)


@functools.lru_cache(4)
def random_basis(features: int) -> Basis:
    """Return the random orthonormal basis for so many features."""
    random = np.random.default_rng(0).standard_normal((features, min(features, DIRECTIONS)))
    return Basis(np.zeros(features, np.float16), np.linalg.qr(random)[0].astype(np.float16))


def basis_file(network: str) -> Path:
    """Return the file of the basis of an embedded network."""
    return Path(__file__).with_name("bases") / f"{Path(network).name}.safetensors"
