"""The command that lists networks: what is at hand, what can be downloaded, licences, and what each costs here."""

from __future__ import annotations

import dataclasses
import io
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import NetworkError, first_line
from ..utils.terminal import columns_of, emit, printable, show, show_json
from .options import Machine, Printing

if TYPE_CHECKING:
    from ..bags.extract import Extractor
    from ..networks.names import ListedNetwork

_TIMED_PHOTOS = 6
_COLUMNS = 10_000  # of the table where there is no terminal: as many as it needs


def networks(
    measure: Annotated[bool, typer.Option("--measure", help="Measure the seconds per photo of those at hand.")] = False,
    *,
    machine: Machine,
    printing: Printing,
) -> None:
    """List the networks that have a name: embedded, on the Hugging Face hub, and of other packages.

    Nothing is downloaded. A network of the hub is downloaded once, when you name it: fit PHOTOS --network dinov2-small.
    """
    from ..networks.names import list_networks

    listed = list_networks()
    costs = {network.name: _cost(network, machine) for network in listed if network.at_hand} if measure else {}
    if printing.as_json:
        records = [dataclasses.asdict(network) | costs.get(network.name, {}) for network in listed]
        show_json({"networks": records})
        return
    for line in _table(listed, columns_of(sys.stdout) or _COLUMNS):
        emit(line)
    notes = [f"{network.name}: {network.note}" for network in listed if network.note]
    show(*(["notes:"] if notes else []), *(f"  {note}" for note in notes), indent=4)
    for name, cost in costs.items():
        seconds, problem = cost.get("seconds_per_photo"), cost.get("problem")
        show(f"  {name}: {problem or f'{seconds:.3f} s per photo of 640 x 480 pixels'}")


def _cost(network: ListedNetwork, machine: Machine) -> dict[str, float | str]:
    """Return the seconds per photo, or why they cannot be measured."""
    from ..bags.extract import Extractor

    try:
        extractor = Extractor(network.name, **machine.settings)
        return {"seconds_per_photo": _seconds_per_photo(extractor)}
    except NetworkError as error:
        return {"problem": f"cannot be used: {first_line(error)}"}


def _seconds_per_photo(extractor: Extractor) -> float:
    """Return the seconds that an extractor takes on this machine per photo of 640 x 480 pixels."""
    import numpy as np

    from ..photos.find import find_photos

    first, *others = find_photos([np.zeros((480, 640, 3), np.uint8)] * (1 + _TIMED_PHOTOS))
    list(extractor.stream([first]))  # the first call of a network allocates its memory
    start = time.perf_counter()
    list(extractor.stream(others))
    return (time.perf_counter() - start) / len(others)


def _table(listed: list[ListedNetwork], columns: int) -> list[str]:
    """Return the table of networks; in a narrow terminal, long cells have several lines."""
    from rich.console import Console
    from rich.table import Table

    table = Table("network", "here", "size", "features", "stride", "licence", "from", box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    for network in listed:
        size = "?" if network.megabytes is None else f"{network.megabytes:,.0f} MB"
        numbers = ("?" if number is None else str(number) for number in (network.features, network.stride))
        cells = network.name, "yes" if network.at_hand else "no", size, *numbers, network.licence or "?", network.origin
        table.add_row(*map(printable, cells))
    console = Console(file=io.StringIO(), width=columns, color_system=None, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]
