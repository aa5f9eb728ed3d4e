"""Durations on the command line: seconds, or as in a pipeline file."""

from __future__ import annotations

import math

import click

from topology import quantities

FACTOR = click.FloatRange(0, min_open=True)  # so many times as much, or as fast


def seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Read a duration such as 2s or 400ms; a bare number is seconds. A callback for click."""
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        try:
            return quantities.duration(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{value} is no duration: give 0 or more seconds")
    return number


def positive(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Read a duration above 0, as `seconds` does."""
    number = seconds(context, parameter, value)
    if number == 0:
        raise click.BadParameter("must be above 0")
    return number
