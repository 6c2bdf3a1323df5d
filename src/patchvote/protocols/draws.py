"""Draws on disk: which photos each split has, one line per draw in `splits.jsonl`.

The version before kept two lists per draw, with one name per line, which are read as well.
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
LISTS_BEFORE = "splits"  # folder of the lists of the version before
_MAX_BYTES = 1 << 30  # of one file; all draws of Office-Caltech have 11 MB


@dataclasses.dataclass(frozen=True)
class Draw:
    """Which split it is.

    Parameters
    ----------
    setting : str
        Name of the setting.
    pair : str or None
        Source and target.
    split : int
        Its number, from 1.
    """

    setting: str
    pair: str | None
    split: int

    @property
    def stem(self) -> str:
        """The draw in one word, as the version before called its lists.

        Examples
        --------
        >>> Draw("unsupervised", "amazon-webcam", 3).stem
        'unsupervised-amazon-webcam-03'
        """
        return "-".join(filter(None, [self.setting, self.pair, f"{self.split:02d}"]))


def read_draws(folder: Path) -> dict[Draw, Split]:
    """Read the draws that are kept in the folder of a protocol; none where there is no such file.

    Raises
    ------
    PatchvoteError
        A line is no draw.
    """
    try:
        return dict(read_lines(folder / SPLITS, _parse, "not a split of a protocol", _MAX_BYTES))
    except FileNotFoundError:
        return {}


def _parse(record: dict[str, Any]) -> tuple[Draw, Split]:
    draw = Draw(record["setting"], record["pair"], int(record["split"]))
    return draw, Split(list(record["train"]), list(record["test"]))


def write_draws(folder: Path, draws: Mapping[Draw, Split]) -> None:
    """Write all draws of a protocol, in order."""
    ordered = sorted(draws.items(), key=lambda item: (item[0].setting, item[0].pair or "", item[0].split))
    records = (dataclasses.asdict(draw) | dataclasses.asdict(split) for draw, split in ordered)
    write_file(folder / SPLITS, (f"{json.dumps(record)}\n".encode() for record in records))


def lists_before(folder: Path, draw: Draw) -> list[Path]:
    """Return the two lists that the version before kept of a draw, training photos first."""
    return [folder / LISTS_BEFORE / f"{draw.stem}-{part}.txt" for part in ("train", "test")]


def read_before(folder: Path, draw: Draw) -> Split | None:
    """Read the lists that the version before kept of a draw; None where there are none.

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
    """Refuse a draw that has other photos than what is kept.

    Raises
    ------
    PatchvoteError
        It has.
    """
    if kept != drawn:
        raise PatchvoteError(
            f"the split {draw.stem} kept in {folder} lists other photos than are drawn now, so results kept beside it "
            "are of another split. Is the image set complete, and the protocol unchanged? Else name another folder "
            "with --results."
        )
