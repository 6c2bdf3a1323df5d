"""The command that lists networks: what is at hand, what can be downloaded, licences, and what each costs here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.terminal import show, show_json
from .common import Device, Jobs, Json

if TYPE_CHECKING:
    from ..backbones.at_hand import ListedNetwork


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
    from ..backbones.at_hand import list_networks

    listed = list_networks()
    costs = {network.name: _cost(network, device, jobs) for network in listed if network.at_hand} if measure else {}
    if as_json:
        records = [dataclasses.asdict(network) | costs.get(network.name, {}) for network in listed]
        show_json({"networks": records})
        return
    show(*_lines(listed))
    for name, cost in costs.items():
        seconds, problem = cost.get("seconds_per_photo"), cost.get("problem")
        show(f"  {name}: {problem or f'{seconds:.3f} s per photo of 640 x 480 pixels'}")


def _cost(network: ListedNetwork, device: str, jobs: int | None) -> dict[str, float | str]:
    """Return the seconds per photo, or why they cannot be measured."""
    from ..bags.extract import Extractor
    from ..errors import NetworkError, first_line
    from ..models.photo_cost import example_photos, seconds_per_photo

    if network.is_engine:
        return {"problem": "an engine, which is measured with the rest of its name: fit --network auto does not try it"}
    try:
        extractor = Extractor(network.name, jobs=jobs, device=device)
        return {"seconds_per_photo": seconds_per_photo(extractor, example_photos())}
    except NetworkError as error:
        return {"problem": f"cannot be used: {first_line(error)}"}


def _lines(listed: list[ListedNetwork]) -> list[str]:
    """Return the table of networks, a line each."""
    rows: list[tuple[str, ...]] = [("network", "here", "size", "features", "stride", "licence", "from")]
    for network in listed:
        size = "?" if network.megabytes is None else f"{network.megabytes:,.0f} MB"
        numbers = ("?" if number is None else str(number) for number in (network.features, network.stride))
        here = "yes" if network.at_hand else "no"
        rows.append((network.name, here, size, *numbers, network.licence or "?", network.origin))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    notes = [f"  {network.name}: {network.note}" for network in listed if network.note]
    return [*lines, *(["notes:", *notes] if notes else [])]
