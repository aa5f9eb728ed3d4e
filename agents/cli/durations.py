"""Durations on the command line: seconds, or as in a pipeline file."""

from __future__ import annotations

import click

from topology import quantities


def seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Read a duration such as 2s or 400ms; a bare number is seconds. A callback for click."""
    if value is None:
        return None
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return quantities.duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
