"""Addresses that commands listen on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spillway.agents.live.registry import Address

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\s]+):(?P<port>\d{1,5})")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def address(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Address | None:
    """Read HOST:PORT; port 0 is any that is free. A callback for click."""
    from spillway.agents.live.registry import Address  # noqa: PLC0415 - imports what help does without

    if value is None:
        return None
    found = _ADDRESS.fullmatch(value)
    if found is None or int(found["port"]) > 65535:  # noqa: PLR2004
        raise click.BadParameter(f"{value!r} is not HOST:PORT, as 127.0.0.1:8080")
    return Address(found["host"].strip("[]"), int(found["port"]))


def refuse_open(listening: Address, tokens: Path | None, names: Sequence[str] = ()) -> None:
    """Raise UsageError for an address that other machines reach, and where nothing says who may ask."""
    if tokens is None and not names and listening.host not in _LOOPBACK:
        raise UsageError(
            f"{listening.host}:{listening.port} is open to other machines: name --tokens, or say with the gateway's "
            "--allow-host by which name clients ask"
        )
