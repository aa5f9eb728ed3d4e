"""The generations of a Velox model's features: commands of `spillway models` and `spillway train`."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.options import json_option, timeout_option, why_option
from spillway.agents.cli.state_telling import Grid
from spillway.agents.live.sizes import writer
from spillway.agents.supervise.model_manager import Shards
from spillway.lineage.errors import SpillwayError, UsageError
from spillway.producers.client import Client
from spillway.producers.generations import ASKED, CURRENT, Followed
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.producers.generations import Generations
    from spillway.topology.load import Pipeline

_POLL: Final = 0.2
_CONNECT: Final = 5.0
_MEANS: Final = ("error", "recent", "pool")

_learner = click.argument("learner")


def _of(source: Source, learner: str) -> Pipeline:
    """The learner's pipeline. Raises UsageError for one that has no generations."""
    found = source.pipeline.learner(learner)
    if not found.spec.stages[0].has_generations:
        raise UsageError(f"learner {learner!r} does not learn a Velox model: write its model as velox:module:Class")
    return found


def _followed(source: Source, learner: Pipeline) -> Followed:
    return Followed(source.settings, topics.generations(learner.spec.name))


@click.command()
@from_source
@_learner
@json_option
def generations(source: Source, learner: str, *, as_json: bool) -> None:
    """List the generations of a Velox model's features that are kept, with their users and errors.

    Generation 0 is the class's own. Users' weights are kept for two: the current one, and the one to roll back or
    switch to. Both continue to learn. docs/velox.md says how a generation is made.

    `error` is the mean loss since the generation began, `recent` that of the last observations. Each loss is taken
    before the observation is learned.

    \b
    Example: spillway models generations pipeline.yaml taste --json
    """  # noqa: D301
    found = _of(source, learner)
    with _followed(source, found) as log, Client(found, source.settings, timeout=_CONNECT) as client:
        known, told = log.require(), Shards(found, client).report()
    rows = [_row(known, number, told.get(str(number), {})) for number in known.held]
    if as_json:
        click.echo(json.dumps({"current": known.current, "generations": rows}))
        return
    Grid(
        f"{found.spec.name}: generation {known.current} is current",
        ("generation", "features", "users", "observations", "error", "recent", "on random items"),
        [
            (
                f"{row['generation']}{' *' if row['current'] else ''}", row["theta"], str(row["users"]),
                str(row["observations"]), *("-" if row[each] is None else f"{row[each]:.4g}" for each in _MEANS),
            )
            for row in rows
        ],
        right=(0, 2, 3, 4, 5, 6),
    ).show()  # fmt: skip


def _row(known: Generations, number: int, told: dict[str, Any]) -> dict[str, Any]:
    count, total, recent, _ = told.get("errors", (0, 0, 0, 0))
    pool = told.get("pool", (0, 0, 0, 0))
    return {
        "generation": number,
        "current": number == known.current,
        "theta": told.get("theta", known.known[number].theta),
        "users": told.get("users", 0),
        "observations": int(count),
        "error": total / count if count else None,
        "recent": recent if count else None,
        "pool": pool[1] / pool[0] if pool[0] else None,
    }


@click.command()
@from_source
@_learner
@json_option
def history(source: Source, learner: str, *, as_json: bool) -> None:
    """Show the history of each generation: who requested it, why, and the result on held-out observations.

    \b
    Example: spillway models history pipeline.yaml taste
    """  # noqa: D301
    with _followed(source, _of(source, learner)) as log:
        known = log.require()
    events = [{**event, "generation": each.number} for each in known.known.values() for event in each.events]
    events.sort(key=lambda event: float(event.get("at", 0.0)))
    if as_json:
        click.echo(json.dumps(events))
        return
    for event in events:
        when = datetime.fromtimestamp(event["at"]).astimezone()
        click.echo(f"{when:%Y-%m-%d %H:%M:%S}  generation {event['generation']}  {event['event']:9}{_told(event)}")
    click.echo(f"generation {known.current} is current")


def _told(event: Mapping[str, Any]) -> str:
    words = [str(event[name]) for name in ("by", "why") if event.get(name)]
    if "new" in event:
        words.append(f"{event['new']:.4g} on {event['held']} held-out observations, was {event['old']:.4g}")
    return "  " + ": ".join(words)


@click.command()
@from_source
@_learner
@why_option
@timeout_option("600s")
def features(source: Source, learner: str, why: str, timeout: float) -> int:
    """Retrain features from the observations, switch to them if they are better, and wait for it.

    The served learner does it, without delaying queries or observations. A request during a retraining waits for that
    one. The exit code is 1 if it fails, or takes longer than --timeout.

    \b
    Example: spillway train features pipeline.yaml taste --why "a new catalogue"
    """  # noqa: D301
    until = time.monotonic() + timeout
    with _followed(source, _of(source, learner)) as log:
        log.require()
        if not log.append(ASKED, by=writer(), why=why):
            click.echo("a generation is already being trained; waiting for it", err=True)
        number = max(log.now.known)
        while not log.now.known[number].end:
            if time.monotonic() > until:
                click.echo(
                    f"generation {number} has not ended after {timeout:g} s; check that the learner is served", err=True
                )
                return 1
            time.sleep(_POLL)
        made = log.now.known[number]
    result = next((_told(event) for event in reversed(made.events) if "new" in event or "why" in event), "")
    click.echo(f"generation {number}: {made.end}{result}")
    return 1 if made.end == "failed" else 0


@click.command()
@from_source
@_learner
@click.argument("generation", type=click.IntRange(0))
@why_option
def switch(source: Source, learner: str, generation: int, why: str) -> None:
    """Switch at once to another generation that is kept.

    \b
    Example: spillway models switch pipeline.yaml taste 3
    """  # noqa: D301
    _switch(source, learner, why, generation)


@click.command()
@from_source
@_learner
@why_option
def rollback(source: Source, learner: str, why: str) -> None:
    """Go back to the other generation that is kept.

    It has learned all later observations too, so none is lost.

    \b
    Example: spillway models rollback pipeline.yaml taste --why "complaints"
    """  # noqa: D301
    _switch(source, learner, why or "rolled back", None)


def _switch(source: Source, learner: str, why: str, generation: int | None) -> None:
    """Switch to a generation; None: to the other one that is kept."""
    with _followed(source, _of(source, learner)) as log:
        known = log.require()
        before, others = known.current, [each for each in known.held if each != known.current]
        if generation is None and not others:
            raise UsageError(f"generation {before} is the only one kept: there is none to roll back to")
        number = others[0] if generation is None else generation
        if number == before:
            raise UsageError(f"generation {number} is already current")
        if not log.append(CURRENT, number, by=writer(), why=why):
            opened = f", and {known.open.number} is still being made" if known.open is not None else ""
            raise SpillwayError(
                f"generation {number} cannot be switched to: the kept generations are {list(known.held)}{opened}"
            )
    click.echo(f"generation {number} is current, {before} is held")
