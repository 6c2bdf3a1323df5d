"""The command that lists networks: what is at hand, what can be downloaded, licences, and what each costs here."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.terminal import columns_of, padded, printable, show, show_json, width, wrapped
from .common import Device, Jobs, Json

_TIMED_PHOTOS = 6
_GAP, _INDENT = 2, 4  # columns between two cells, and before what continues on a line of its own

if TYPE_CHECKING:
    from ..bags.extract import Extractor
    from ..networks.names import ListedNetwork


def networks(
    measure: Annotated[
        bool, typer.Option("--measure", help="Load those at hand, and measure the seconds per photo on this machine.")
    ] = False,
    device: Device = "cpu",
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """List the networks that have a name: embedded, on the Hugging Face hub, and of other packages.

    Nothing is downloaded. A network of the hub is downloaded once, when you name it: fit PHOTOS --network dinov2-small.
    """
    from ..networks.names import list_networks

    listed = list_networks()
    costs = {network.name: _cost(network, device, jobs) for network in listed if network.at_hand} if measure else {}
    if as_json:
        records = [dataclasses.asdict(network) | costs.get(network.name, {}) for network in listed]
        show_json({"networks": records})
        return
    show(*_lines(listed, columns_of(sys.stdout)))
    for name, cost in costs.items():
        seconds, problem = cost.get("seconds_per_photo"), cost.get("problem")
        show(f"  {name}: {problem or f'{seconds:.3f} s per photo of 640 x 480 pixels'}")


def _cost(network: ListedNetwork, device: str, jobs: int | None) -> dict[str, float | str]:
    """Return the seconds per photo, or why they cannot be measured."""
    from ..bags.extract import Extractor
    from ..errors import NetworkError, first_line

    if network.is_engine:
        return {"problem": "an engine, which is measured with the rest of its name: fit --network auto does not try it"}
    try:
        extractor = Extractor(network.name, jobs=jobs, device=device)
        return {"seconds_per_photo": _seconds_per_photo(extractor)}
    except NetworkError as error:
        return {"problem": f"cannot be used: {first_line(error)}"}


def _seconds_per_photo(extractor: Extractor) -> float:
    """Return the seconds that an extractor takes on this machine per photo: smooth images of 640 x 480 pixels."""
    import numpy as np

    from ..photos.find import find_photos

    y, x = np.mgrid[0:480, 0:640]
    waves = [
        np.stack([127 + 120 * np.sin((x * (1 + shift) + y * channel) / 40) for channel in range(3)], axis=-1)
        for shift in range(1 + _TIMED_PHOTOS)
    ]
    first, *others = find_photos([wave.astype(np.uint8) for wave in waves])
    list(extractor.stream([first]))  # the first call of a network allocates its memory
    start = time.perf_counter()
    list(extractor.stream(others))
    return (time.perf_counter() - start) / len(others)


def _lines(listed: list[ListedNetwork], columns: int | None) -> list[str]:
    """Return the table of networks, and the notes on them, within the columns of a terminal."""
    rows: list[tuple[str, ...]] = [("network", "here", "size", "features", "stride", "licence", "from")]
    for network in listed:
        size = "?" if network.megabytes is None else f"{network.megabytes:,.0f} MB"
        numbers = ("?" if number is None else str(number) for number in (network.features, network.stride))
        here = "yes" if network.at_hand else "no"
        rows.append((network.name, here, size, *numbers, network.licence or "?", network.origin))
    notes = [f"  {network.name}: {network.note}" for network in listed if network.note]
    if columns is not None:  # what `show` would wrap knows nothing of columns and notes
        notes = [line for note in notes for line in wrapped(printable(note), columns, 4)]
    return [
        *_table([[printable(cell) for cell in row] for row in rows], columns),
        *(["notes:", *notes] if notes else []),
    ]


def _table(rows: list[list[str]], columns: int | None) -> list[str]:
    """Return rows in aligned columns; in a narrow terminal, where a network is from is on a line below its row.

    A name that is too long for a narrow terminal is on a line above its row: it is copied as a whole.
    """
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    if columns is None or sum(widths) + _GAP * (len(widths) - 1) <= columns:
        return [_row(row, widths) for row in rows]
    heads, origins = [row[:-1] for row in rows], [row[-1] for row in rows]
    rest = sum(widths[1:-1]) + _GAP * (len(widths) - 2)
    widths = [min(max(width(row[0]) for row in heads), max(columns - rest, len(rows[0][0]))), *widths[1:-1]]
    lines = [_row(heads[0], widths)]
    for head, origin in zip(heads[1:], origins[1:], strict=True):
        if width(head[0]) > widths[0]:
            lines.append(head[0])
            head = ["", *head[1:]]
        lines += [_row(head, widths), *wrapped(f"{' ' * _INDENT}{origins[0]} {origin}", columns, _INDENT)]
    return lines


def _row(cells: list[str], widths: list[int]) -> str:
    return (" " * _GAP).join(padded(cell, size) for cell, size in zip(cells, widths, strict=True)).rstrip()
