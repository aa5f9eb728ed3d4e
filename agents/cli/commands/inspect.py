"""`spillway inspect`: what became of one query, or where it was seen last."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.options import json_option
from spillway.agents.cli.waterfall import lines
from spillway.agents.live.operator.inspection import ANSWERED, describe
from spillway.agents.live.operator.sightings import search
from spillway.lineage.errors import UsageError
from spillway.lineage.ids import MAX_REQUEST_ID, is_request_id
from spillway.topology import quantities


def _moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Read a time: as ISO 8601 (UTC, if it names no zone), or as so long ago."""
    if value is None:
        return None
    try:
        return time.time() - quantities.duration(value)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a time as 2026-01-31T12:00 nor so long ago as 5min") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


@click.command()
@from_source
@click.argument("request_id", metavar="ID")
@click.option(
    "--at", callback=_moment, metavar="TIME", help="Search from there on: 2026-01-31T12:00 (UTC) or 5min ago."
)
@click.option("--key", metavar="TEXT", help="The query's key: only that key's partition is searched.")
@json_option
def inspect(source: Source, request_id: str, at: float | None, key: str | None, *, as_json: bool) -> int:
    """Show what became of one query, by its request id.

    Of an answered query: its outcome and the reason in numbers; what each stage did and when, against the deadline; the
    model and batch, and what the stages' flags say (reconstructed or default answers, tables' versions). Of another
    one: where it was seen last, and who has it to do.

    An id made by a client of Spillway says when its query was sent, and a minute of records is searched from then on.
    Another one needs --at, a moment of the minute before it was answered, or --key, with which all records of the key's
    partition are searched. There is as much as the topics' retention (a day) has left. The exit code is 1 if no outcome
    was found.

    \b
    Examples:
      spillway inspect pipeline.yaml 0195d3a0c1f27c4a9f1e-17
      spillway inspect pipeline.yaml order-4711 --at 10min
    """  # noqa: D301 - click's own marks
    if not is_request_id(request_id):
        raise UsageError(f"a request id has 1 to {MAX_REQUEST_ID} visible ASCII characters: {request_id!r:.200}")
    told = describe(search(source.settings, source.spec, request_id, at=at, key=key), source.spec)
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
    else:
        for line in lines(told, shutil.get_terminal_size().columns):
            click.echo(line)
    return 0 if told["state"] == ANSWERED else 1
