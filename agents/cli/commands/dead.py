"""`spillway dead`: the queries that a pipeline could not serve, why, and another try for them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.columns import columns
from spillway.agents.cli.options import LazyGroup, json_option, positive
from spillway.agents.live.operator.dead_letters import DeadLetters, Letter
from spillway.agents.live.operator.dead_letters import retried as retried_of
from spillway.agents.supervise.serving import require_served
from spillway.lineage.errors import SpillwayError, UsageError, WireError
from spillway.lineage.message import PREDICTION
from spillway.lineage.values.json_text import show_outcome, show_value
from spillway.producers.client import Client

_NEWEST = 50
_TEXT = 200


@click.group(cls=LazyGroup)
def dead() -> None:
    """List, show and retry the queries that a pipeline could not serve.

    A query that a stage or the gate cannot read, or that the model fails on, is answered as failed and kept unchanged
    on the topic <pipeline>.dead.

    \b
    Example: spillway dead retry pipeline.yaml --reason model-raised
    """  # noqa: D301 - click's own marks


_REASON = click.option("--reason", metavar="CODE", help="Only letters with this reason, such as model-raised.")
_STAGE = click.option("--stage", metavar="NAME", help="Only letters of this stage, or of the gate.")
_RETRIED = click.option("--retried", is_flag=True, help="Also show letters that were retried.")


@dead.command("list")
@from_source
@json_option
@_REASON
@_STAGE
@_RETRIED
@click.option("--newest", type=click.IntRange(1), default=_NEWEST, show_default=True, help="Number of letters to list.")
def list_letters(
    source: Source, reason: str | None, stage: str | None, newest: int, *, retried: bool, as_json: bool
) -> None:
    """List dead letters, the newest last: place, time (UTC), stage, reason and request id, and the error below.

    Retried letters are not listed: their queries got a prediction, or have a newer letter.

    \b
    Example: spillway dead list pipeline.yaml --reason model-raised
    """  # noqa: D301 - click's own marks
    letters = DeadLetters(source.settings, source.spec)
    found, hidden = _wanted(letters, reason, stage, retried=retried)
    if as_json:
        click.echo(json.dumps([_facts(letter) for letter in found[-newest:]], ensure_ascii=False))
        return
    _tell_list(found, found[-newest:], hidden, letters.unreadable)


@dead.command()
@from_source
@json_option
@click.argument("place", metavar="PARTITION/OFFSET")
def show(source: Source, place: str, *, as_json: bool) -> None:
    """Show one dead letter in full: the error, the record's place and headers, and its inputs if readable.

    \b
    Example: spillway dead show pipeline.yaml 3/17
    """  # noqa: D301 - click's own marks
    letters = DeadLetters(source.settings, source.spec)
    (letter,) = letters.picked([place])
    facts = {**_facts(letter), "key": _bytes(letter.content.key)}
    facts["headers"] = [[name, _bytes(value)] for name, value in letter.headers]
    try:
        query = letters.query(letter)
        facts |= {"inputs": show_value(query.inputs), "parameters": show_value(query.parameters)}
    except WireError as error:
        facts |= {"unreadable": str(error), "value": show_value(letter.content.value)}
    click.echo(json.dumps(facts, indent=None if as_json else 2, ensure_ascii=False))


@dead.command()
@from_source
@json_option
@click.argument("places", metavar="[PARTITION/OFFSET]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of them, or all with --reason or of --stage.")
@_REASON
@_STAGE
@_RETRIED
@click.option("--deadline", callback=positive, metavar="TIME", help="[default: the SLO]")
def retry(
    source: Source,
    places: tuple[str, ...],
    reason: str | None,
    stage: str | None,
    deadline: float | None,
    *,
    everything: bool,
    retried: bool,
    as_json: bool,
) -> int:
    """Send the queries of dead letters again, from the ingress on, and print the outcome of each.

    Each gets a new request id, derived from the old one; its headers name the original query (x-retry-of) and the
    attempt (x-attempt). The letters stay on the topic and count as retried. The exit code is 1 unless all get
    predictions.

    \b
    Examples:
      spillway dead retry pipeline.yaml 3/17 4/2
      spillway dead retry pipeline.yaml --all --reason model-raised
    """  # noqa: D301 - click's own marks
    if bool(places) == (everything or reason is not None or stage is not None):
        raise UsageError("name the letters to retry, as PARTITION/OFFSET, or give --all, --reason or --stage")
    letters = DeadLetters(source.settings, source.spec)
    chosen = letters.picked(places) if places else _wanted(letters, reason, stage, retried=retried)[0]
    missing = require_served(source.settings, source.pipeline, source.run_dir) if chosen else ""
    if missing:
        click.echo(missing, err=True)
    good: list[Letter] = []
    try:
        with Client(source.spec, source.settings) as client:
            for letter in chosen:
                told = _retried(letters, client, letter, deadline)
                if told.get("kind") == PREDICTION:
                    good.append(letter)
                click.echo(json.dumps(told, ensure_ascii=False) if as_json else _line(letter, told))
    finally:  # also where somebody interrupts it
        letters.note_predicted(good)
    if not as_json:
        click.echo(f"{len(good)} of {len(chosen)} got a prediction")
    return 0 if len(good) == len(chosen) else 1


def _wanted(letters: DeadLetters, reason: str | None, stage: str | None, *, retried: bool) -> tuple[list[Letter], int]:
    """The letters, oldest first, and how many more were left out because they were retried."""
    every = list(letters.read())
    over = set() if retried else retried_of(every, letters.noted)
    found = [
        letter for letter in every if reason in (None, letter.content.reason) and stage in (None, letter.content.stage)
    ]
    kept = [letter for letter in found if letter.place not in over]
    return sorted(kept, key=lambda letter: letter.content.at_us), len(found) - len(kept)


def _retried(letters: DeadLetters, client: Client, letter: Letter, deadline: float | None) -> dict[str, Any]:
    """Ask one query again; what it came to, or why it could not be asked."""
    told: dict[str, Any] = {"letter": letter.place, "retry_of": letter.request_id}
    try:
        again = letters.retry(letter)
        outcome = client.predict(
            again.query.inputs,
            again.query.parameters,
            deadline=deadline,
            request_id=again.request_id,
            key=again.key,
            headers=again.headers,
        )
    except SpillwayError as error:
        return {**told, "error": str(error)}
    return {**told, **show_outcome(outcome, again.request_id, outcome.latency or 0.0, late=outcome.late)}


def _line(letter: Letter, told: dict[str, Any]) -> str:
    if "error" in told:
        return f"{letter.place}  {told['error']}"
    why = f" ({told['reason']}: {told['text'][:_TEXT]})" if told["kind"] != PREDICTION else ""
    return f"{letter.place}  {letter.request_id} -> {told['request_id']}: {told['kind']}{why}"


def _tell_list(found: list[Letter], shown: list[Letter], hidden: int, unreadable: int) -> None:
    for letter, line in zip(shown, columns([_row(letter) for letter in shown]), strict=True):
        click.echo(line)
        click.echo(f"    {' '.join(letter.content.text.split())[:_TEXT]}")
    counts = Counter((letter.content.stage, letter.content.reason) for letter in found)
    each = ", ".join(f"{number} {stage} {reason}" for (stage, reason), number in counts.most_common())
    click.echo(f"{len(found)} letter{'' if len(found) == 1 else 's'}{f': {each}' if each else ''}")
    if hidden:
        click.echo(f"{hidden} more {'was' if hidden == 1 else 'were'} retried (--retried shows them)")
    if unreadable:
        click.echo(f"{unreadable} records on the topic cannot be read by this version")


def _row(letter: Letter) -> tuple[str, ...]:
    content = letter.content
    when = _when(content.at_us).partition("-")[2]  # the year is seldom in doubt
    attempt = f"attempt {letter.attempt}" if letter.attempt > 1 else ""
    return letter.place, when, content.stage, content.reason, letter.request_id or "-", attempt


def _facts(letter: Letter) -> dict[str, Any]:
    content = letter.content
    return {
        "letter": letter.place,
        "at": _when(content.at_us),
        "stage": content.stage,
        "reason": content.reason,
        "text": content.text,
        "request_id": letter.request_id,
        "attempt": letter.attempt,
        "record": {"topic": content.topic, "partition": content.partition, "offset": content.offset},
    }


def _when(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")


def _bytes(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return show_value(value)
