"""`spillway train feedback`: one truth for a learner of a pipeline, of a key or of an outcome that was predicted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TextIO

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.options import pipeline_argument
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.values.json_text import read_inputs, read_outcome
from spillway.producers.client import Client

if TYPE_CHECKING:
    from spillway.lineage.message import Outcome

_CONNECT_SECONDS = 10.0


@click.command()
@pipeline_argument
@click.argument("learner")
@click.argument("truth")
@from_source
@click.option("--key", metavar="TEXT", help="The learner's key that the true answer is about.")
@click.option("--outcome", "file", type=click.File(encoding="utf-8"), help="An outcome that 'predict' has printed.")
@click.option("--id", "feedback_id", metavar="ID", help="Feedback with the same id counts once.  [default: see above]")
@click.option("--wait", is_flag=True, help="Wait until the learner has applied it, and print its token.")
def feedback(
    source: Source,
    learner: str,
    truth: str,
    key: str | None,
    file: TextIO | None,
    feedback_id: str | None,
    *,
    wait: bool,
) -> int:
    """Send feedback (a true answer) to a learner of a running pipeline, and print its id once the broker has it.

    TRUTH is JSON: a number, a text, or a tensor as in 'predict'. It belongs to a key, or to an outcome, which names the
    key of its lookup. Feedback on an outcome has the id REQUEST/LEARNER and counts once, however often it is sent;
    feedback on a key gets a new id each time.

    \b
    Example:
      spillway train feedback pipeline.yaml taste 1.0 --key ada --wait
    """  # noqa: D301 - click's own marks
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
