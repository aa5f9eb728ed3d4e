"""`spillway feedback`: one truth for a learner of a pipeline, of a key or of an outcome that was predicted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TextIO

import click

from agents.cli.cluster import Source, from_source
from agents.cli.options import pipeline_argument
from lineage.errors import UsageError, WireError
from lineage.values.json_text import read_inputs, read_outcome
from producers.client import Client

if TYPE_CHECKING:
    from lineage.message import Outcome

_CONNECT_SECONDS = 10.0


@click.command()
@pipeline_argument
@click.argument("learner")
@click.argument("truth")
@from_source
@click.option("--key", metavar="TEXT", help="The learner's key that the truth is about.")
@click.option("--outcome", "file", type=click.File(encoding="utf-8"), help="An outcome that 'predict' has printed.")
@click.option("--id", "feedback_id", metavar="ID", help="A truth with the same id counts once.  [default: see above]")
@click.option("--wait", is_flag=True, help="Wait until the learner has taken it, and print the token of that.")
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
    """Send a learner of a running pipeline a truth, and print its id when the broker has it.

    TRUTH is JSON: a number, a text, a tensor as of 'predict'. It is about a key, or about an outcome, which names the
    key that it was looked up by. An outcome's truth has the id REQUEST/LEARNER, and counts once, however often it is
    sent; a key's has a new one.

    \b
    Example:
      spillway feedback pipeline.yaml taste 1.0 --key ada --wait
    """  # noqa: D301 - click's own marks
    if (key is None) == (file is None):
        raise UsageError("say what the truth is about: give --key or --outcome")
    try:
        value = read_inputs(f'{{"truth": {truth}}}'.encode())["truth"]
    except WireError as error:
        raise UsageError(f"the truth must be JSON, a text in quotes: {error}") from error
    of: Outcome | str = key or ""
    if file is not None:
        of = read_outcome(file.read().encode())
    with Client(source.spec, source.settings, timeout=_CONNECT_SECONDS) as client:
        sent = client.feedback(learner, of, value, feedback_id=feedback_id)
        told = {"id": sent.id, **({"token": str(sent.token())} if wait else {})}
    click.echo(json.dumps(told))
    return 0
