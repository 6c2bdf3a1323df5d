"""Stock: the content of a store, as far as one run that fills it has read it.

Other processes may write to the store at the same time: `look_around` reads their shards. A damaged shard is renamed,
never deleted. A claim, which reserves a new store for a recipe while the first bags are extracted, is valid as long as
its writer runs.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ..errors import DamagedShardError, ForeignStoreError, StoreError
from ..utils.files import abandoned
from .bags import Bags
from .entries import Entry
from .recipe import Recipe
from .shard import Shard, is_own_name, newest, set_aside, shard_files


class Stock:
    """The shards of a store, and what they hold.

    Parameters
    ----------
    path : Path
        Folder of the store.
    recipe, fingerprint, dim
        Recipe and network that the bags must have, and number of features per descriptor.
    dtype : str, optional
        Type that the descriptors must have; by default that of the store, float16 for a new one.

    Attributes
    ----------
    shards : list of Shard
        Shards of the store, without claims.
    known : dict
        Entry of each photo, by name.
    bags : dict
        Shard and index of each bag, by the digest of the content.
    dtype : str
        Type of the descriptors on disk.
    claim : Shard or None
        Claim that this run has written.
    damaged : list of str
        Shards that were found damaged, and their new names.
    """

    def __init__(self, path: Path, recipe: Recipe, fingerprint: str, dim: int, dtype: str | None) -> None:
        self.path, self.recipe, self.fingerprint, self.dim = path, recipe, fingerprint, dim
        self.asked_dtype, self.dtype = dtype, dtype or "float16"
        self.shards: list[Shard] = []
        self.known: dict[str, Entry] = {}
        self.bags: dict[str, tuple[Shard, int]] = {}
        self.claim: Shard | None = None
        self.damaged: list[str] = []
        self._seen: set[Path] = set()

    @property
    def last_number(self) -> int:
        """Largest number of a shard."""
        return max((shard.order[0] for shard in self.shards), default=0)

    def look_around(self) -> None:
        """Read the headers of the shards that are new since the last call."""
        paths = [
            path
            for path in shard_files(self.path)
            if path not in self._seen and (self.claim is None or path != self.claim.path)
        ]
        self._seen.update(paths)
        fresh = [shard for shard in map(self._opened, paths) if shard is not None]
        for shard in sorted(fresh, key=lambda shard: shard.order):
            if shard.is_claim and self._is_void(shard):
                continue
            self._check_kind(shard)
            if not shard.is_claim:
                self.shards.append(shard)
        if fresh:
            self._take_stock()

    def bag_of(self, digest: str) -> Bags | None:
        """Return the bag of a content; None if it is damaged or gone."""
        if digest not in self.bags:
            return None
        shard, index = self.bags[digest]
        try:
            return shard.bag(index)
        except StoreError as error:
            if isinstance(error, DamagedShardError):
                self._set_aside(shard.path, error)
            self.shards.remove(shard)
            self._take_stock()
            return None

    def _opened(self, path: Path) -> Shard | None:
        """Open a shard; a damaged one is set aside, and a file that is no shard is ignored."""
        try:
            return Shard.open(path)
        except DamagedShardError as error:
            if is_own_name(path):
                self._set_aside(path, error)
        except StoreError:
            pass  # removed since, or not a shard of ours; `Store.open` and `patchvote info` name it
        return None

    def _is_void(self, claim: Shard) -> bool:
        """Whether a claim is void: its process is dead, or will find an older claim and withdraw."""
        with contextlib.suppress(OSError), abandoned(claim.path, claim.owner) as is_abandoned:
            if is_abandoned:
                claim.path.unlink()
                return True
            return bool(self.shards) or (self.claim is not None and self.claim.order < claim.order)
        return True  # it was removed

    def _take_stock(self) -> None:
        """Update which photos and which contents the store holds."""
        self.known = {name: shard.entries[index] for name, (shard, index) in newest(self.shards).items()}
        # In place, because the extractor reads it.
        self.bags.clear()
        for shard in self.shards:
            self.bags.update((digest, (shard, index)) for index, digest in enumerate(shard.entries.digests))

    def _set_aside(self, path: Path, error: StoreError) -> None:
        try:
            message = f"{error} It was set aside as {set_aside(path).name}."
        except FileNotFoundError:
            return  # another process has set it aside
        except OSError as problem:
            message = f"{error} It cannot be set aside: {problem.strerror or problem}."
        self.damaged.append(message)

    def _check_kind(self, shard: Shard) -> None:
        """Refuse a shard of another recipe, network or type."""
        recipe = self.recipe
        if shard.kind == (recipe.sampling, recipe.activation, self.fingerprint, self.dim):
            if self.asked_dtype not in (None, shard.dtype):
                raise StoreError(
                    f"{self.path} keeps descriptors in {shard.dtype}, not {self.asked_dtype}. Leave the type out, or "
                    "choose another folder for the store."
                )
            self.dtype = shard.dtype
            return
        if (shard.recipe.sampling, shard.recipe.activation) == (recipe.sampling, recipe.activation):
            what = f"the same recipe but another network ({shard.fingerprint}, now {self.fingerprint})"
        else:
            what = f"another recipe (there: {shard.recipe.to_json()}; asked: {recipe.to_json()})"
        raise ForeignStoreError(f"{self.path} was made with {what}. Choose another folder for the store.")
