"""`spillway train feedback`: truths for a learner of a pipeline, each of a key or of an outcome that was predicted."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Final, TextIO

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.lineage.errors import SpillwayError, UsageError, WireError
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.values.json_text import read_inputs, read_outcome, read_value
from spillway.producers.client import Client
from spillway.producers.client.feedback import Truth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway.lineage.message import Outcome

_CONNECT_SECONDS = 10.0
_AT_ONCE: Final = 1_000  # lines
_OF_A_LINE: Final = frozenset({"key", "outcome", "truth", "id"})


@click.command()
@from_source
@click.argument("learner")
@click.argument("truth", required=False)
@click.option("--key", metavar="TEXT", help="The learner's key that the true answer is about.")
@click.option("--outcome", "file", type=click.File(encoding="utf-8"), help="An outcome that 'predict' has printed.")
@click.option("--lines", type=click.File(encoding="utf-8"), help="Many truths in place of TRUTH, a JSON object a line.")
@click.option("--id", "feedback_id", metavar="ID", help="Feedback with the same id counts once.  [default: see above]")
@click.option("--wait", is_flag=True, help="Wait until the learner has applied it, and print its token.")
def feedback(
    source: Source,
    learner: str,
    truth: str | None,
    key: str | None,
    file: TextIO | None,
    lines: TextIO | None,
    feedback_id: str | None,
    *,
    wait: bool,
) -> int:
    """Send feedback (a true answer) to a learner of a running pipeline, and print its id once the broker has it.

    TRUTH is JSON: a number, a text, or a tensor as in 'predict'. It belongs to a key, or to an outcome, which names the
    key of its lookup. Feedback on an outcome has the id REQUEST/LEARNER and counts once, however often it is sent;
    feedback on a key gets a new id each time.

    A line of --lines is {"truth": .., "key": text}, or {"truth": .., "outcome": {..}}, and may have an "id". What is
    printed of each is its id, or what is wrong with it; the command fails if anything is.

    \b
    Example:
      spillway train feedback pipeline.yaml taste 1.0 --key ada --wait
      spillway train feedback pipeline.yaml taste --lines truths.jsonl
    """  # noqa: D301 - click's own marks
    if lines is not None:
        if any(each is not None for each in (truth, key, file, feedback_id)):
            raise UsageError("--lines names truths, keys, outcomes and ids itself; drop the others")
        with Client(source.spec, source.settings, timeout=_CONNECT_SECONDS) as client:
            return _send(client, learner, lines, wait=wait)
    if truth is None:
        raise UsageError("name the true answer: give TRUTH, or --lines with many")
    if (key is None) == (file is None):
        raise UsageError("name the subject of the true answer: give --key or --outcome")
    try:
        value = read_inputs(f'{{"truth": {truth}}}'.encode())["truth"]
    except WireError as error:
        raise UsageError(f"the true answer must be JSON (put text in quotes): {error}") from error
    of: Outcome | str = key or ""
    if file is not None:
        of = read_outcome(file.read().encode())
    with Client(source.spec, source.settings, timeout=_CONNECT_SECONDS) as client:
        sent = client.feedback(learner, of, value, feedback_id=feedback_id)
        told = {"id": sent.id, **({"token": str(sent.token())} if wait else {})}
    click.echo(json.dumps(told))
    return 0


def _send(client: Client, learner: str, lines: Iterable[str], *, wait: bool) -> int:
    """Send truths a line each, and print what came of each; return how the command ends."""
    numbered, code = enumerate(lines, 1), 0
    while some := dict(islice(numbered, _AT_ONCE)):
        read, wrong = {}, {}
        for number, line in some.items():
            try:
                read[number] = _read(line)
            except (SpillwayError, ValueError) as error:
                wrong[number] = str(error)
        sent = dict(zip(read, client.feedback_many(learner, read.values()), strict=True))
        for number in some:
            try:
                if number in wrong:
                    raise UsageError(wrong[number])
                sent[number].accepted()
                told = {"id": sent[number].id, **({"token": str(sent[number].token())} if wait else {})}
            except SpillwayError as error:
                told, code = {"error": f"line {number}: {error}"}, 1
            click.echo(json.dumps(told))
    return code


def _read(line: str) -> Truth:
    """Raise SpillwayError, or ValueError for what is no JSON."""
    told = json.loads(line)
    if not isinstance(told, dict) or "truth" not in told or told.keys() - _OF_A_LINE:
        raise UsageError('a line must be {"truth": .., "key": text} or {"truth": .., "outcome": {..}}, maybe with "id"')
    key, outcome = told.get("key"), told.get("outcome")
    if (key is None) == (outcome is None) or not isinstance(key, str | None):
        raise UsageError("name the subject of the true answer: give a key, which is a text, or an outcome")
    of = read_outcome(json.dumps(outcome).encode()) if key is None else key
    return Truth(of, read_value(told["truth"], "truth", DEFAULT_LIMITS), None, told.get("id"))
