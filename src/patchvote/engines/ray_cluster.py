"""Connect to a running Ray cluster, or start one on this machine that nobody else can reach.

A cluster runs any code that it is sent. By default Ray listens on all network interfaces, and writes the token that it
asks for into the user's home, where others may be able to read it. A cluster that is started here listens on 127.0.0.1
alone, and its token is in the environment of its processes, for as long as it lives.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants

from ..errors import PatchvoteError, first_line

_MODE, _TOKEN, _TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_PATIENCE = 20.0  # seconds until a machine that says nothing is given up


@contextlib.contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Connect to a cluster until the end of the block; one that is started for it ends with it.

    Parameters
    ----------
    address : str, optional
        Address of a running cluster; by default the one that `RAY_ADDRESS` names, or a new one on this machine.

    Raises
    ------
    PatchvoteError
        The cluster cannot be reached, or one that was started listens to the network.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    statistics = "RAY_USAGE_STATS_ENABLED"
    variables = {statistics: os.environ.get(statistics, "0")}  # patchvote sends nothing anywhere
    with contextlib.ExitStack() as stack:
        if address == "local":
            # Ray has no setting for the address to listen on, but a mode for Windows and macOS that does what is wanted
            # here; it was read from the environment when Ray was imported.
            stack.enter_context(_set(vars(ray_constants), {"ENABLE_RAY_CLUSTER": False}))
            variables |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"} | _new_token()
        # Ray itself sets the mode of authentication, which would hold for the next cluster as well.
        stack.enter_context(_set(os.environ, variables | {_MODE: os.environ.get(_MODE)}))
        _forget_token()
        stack.callback(_forget_token)
        stack.callback(ray.shutdown)
        _check_reachable(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises errors of many kinds, and plain exceptions
            raise PatchvoteError(
                f"the Ray cluster {address!r} cannot be used: {first_line(error)}. `ray status` shows more."
            ) from error
        if address == "local":
            _check_private()
        yield


@contextlib.contextmanager
def _set(where: Any, values: dict[str, Any]) -> Iterator[None]:
    """Set some items of a mapping, and restore them at the end; None leaves an item out."""
    before = {name: where.get(name) for name in values}
    _assign(where, values)
    try:
        yield
    finally:
        _assign(where, before)


def _assign(where: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            where.pop(name, None)
        else:
            where[name] = value


def _new_token() -> dict[str, str]:
    """Return a token for a new cluster, if the user has none: Ray would write one to the home."""
    chosen = any(name in os.environ for name in (_MODE, _TOKEN, _TOKEN_FILE))
    return {} if chosen or (Path.home() / ".ray" / "auth_token").exists() else {_TOKEN: secrets.token_hex(32)}


def _forget_token() -> None:
    """Have Ray look for its token again: it keeps the one of an earlier cluster of this process."""
    with contextlib.suppress(ImportError, AttributeError):  # earlier versions know no tokens
        from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

        AuthenticationTokenLoader.instance().reset_cache()


def _check_reachable(address: str) -> None:
    """Refuse an address at which nothing listens; Ray would try it for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not (colon and port.isascii() and port.isdigit()):  # "local", "auto", or something that Ray explains
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE):
            return
    except (OSError, OverflowError, UnicodeError) as error:
        raise PatchvoteError(
            f"nothing answers at the address {address!r} of a Ray cluster ({first_line(error)}). Is it running, and is "
            "this what `ray start --head` printed there? Without --address, workers start on this machine."
        ) from error


def _check_private() -> None:
    """Refuse a cluster that listens to the network."""
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        listens = node["NodeManagerAddress"]
        if not ipaddress.ip_address(listens).is_loopback:
            raise PatchvoteError(
                f"Ray {ray.__version__} has started a cluster that listens on {listens}, where others may reach it. "
                "Start one yourself (`ray start --head`), and pass its address."
            )
