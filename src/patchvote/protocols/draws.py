"""Draws on disk: the photos of each split, one line per draw in `splits.jsonl`.

The previous version wrote two lists per draw, with one name per line, which can still be read.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import PatchvoteError
from ..utils.files import write_file
from ..utils.reading import read_text
from .json_lines import read_lines
from .splits import Split

SPLITS = "splits.jsonl"
LISTS_BEFORE = "splits"  # folder of the lists of the previous version
_MAX_BYTES = 1 << 30  # per file; all draws of Office-Caltech have 11 MB


@dataclasses.dataclass(frozen=True)
class Draw:
    """Identifies a split.

    Parameters
    ----------
    setting : str
        Name of the setting.
    pair : str or None
        Source and target domain; None where there are no domains.
    split : int
        Number of the split, from 1.
    """

    setting: str
    pair: str | None
    split: int

    @property
    def stem(self) -> str:
        """The draw in one word, as in the names of lists in the previous version.

        Examples
        --------
        >>> Draw("unsupervised", "amazon-webcam", 3).stem
        'unsupervised-amazon-webcam-03'
        """
        return "-".join(filter(None, [self.setting, self.pair, f"{self.split:02d}"]))


def read_draws(folder: Path) -> dict[Draw, Split]:
    """Read the draws in the folder of a protocol; none where there is no such file.

    Raises
    ------
    PatchvoteError
        A line is not a draw.
    """
    try:
        return dict(read_lines(folder / SPLITS, _parse, "not a split of a protocol", _MAX_BYTES))
    except FileNotFoundError:
        return {}


def _parse(record: dict[str, Any]) -> tuple[Draw, Split]:
    draw = Draw(record["setting"], record["pair"], int(record["split"]))
    if not isinstance(draw.setting, str) or not isinstance(draw.pair, str | None):
        raise TypeError("setting or pair has a wrong type")
    return draw, Split(list(record["train"]), list(record["test"]))


def write_draws(folder: Path, draws: Mapping[Draw, Split]) -> None:
    """Write all draws of a protocol, ordered by setting, pair and split."""
    ordered = sorted(draws.items(), key=lambda item: (item[0].setting, item[0].pair or "", item[0].split))
    records = (dataclasses.asdict(draw) | dataclasses.asdict(split) for draw, split in ordered)
    write_file(folder / SPLITS, (f"{json.dumps(record)}\n".encode() for record in records))


def lists_before(folder: Path, draw: Draw) -> list[Path]:
    """Return the two lists of a draw in the previous version, training photos first."""
    return [folder / LISTS_BEFORE / f"{draw.stem}-{part}.txt" for part in ("train", "test")]


def read_before(folder: Path, draw: Draw) -> Split | None:
    """Read the lists of a draw in the previous version; None where there are none.

    Raises
    ------
    PatchvoteError
        A list cannot be read.
    """
    lists = []
    for path in lists_before(folder, draw):
        try:
            lists.append(read_text(path, _MAX_BYTES).replace("\r\n", "\n").split("\n")[:-1])
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise PatchvoteError(f"{path} is not a list of photos ({error!r}). Move it away.") from None
    return Split(*lists)


def check_draw(folder: Path, draw: Draw, kept: Split, drawn: Split) -> None:
    """Check that a draw has the same photos as the stored draw.

    Raises
    ------
    PatchvoteError
        The photos differ.
    """
    if kept != drawn:
        raise PatchvoteError(
            f"the split {draw.stem} kept in {folder} lists other photos than are drawn now, so the results beside it "
            "belong to another split. Is the image set complete, and the protocol unchanged? If not, name another "
            "folder with --results."
        )
