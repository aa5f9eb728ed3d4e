"""`spillway predict`: one query from a file or the standard input, and its outcome."""

from __future__ import annotations

import json
from typing import Any, TextIO

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.options import pipeline_argument, positive
from spillway.agents.supervise.serving import require_served
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.ids import new_request_id
from spillway.lineage.message import FAILED
from spillway.lineage.tokens import Token
from spillway.lineage.values.json_text import read_inputs, show_outcome
from spillway.producers.client import Client, OutcomeTimeoutError
from spillway.producers.client.needs import asked

_AFTER_DEADLINE = 10.0
_CONNECT_SECONDS = 10.0


@click.command()
@pipeline_argument
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@from_source
@click.option(
    "--deadline",
    callback=positive,
    metavar="SECONDS",
    help="Time from now until the answer is no longer useful, as 0.4 or 400ms.  [default: the SLO]",
)
@click.option("--key", metavar="TEXT", help="Session or user: queries with the same key stay in order.")
@click.option(
    "--request-id", metavar="ID", help="A repeated id within ten minutes is the same query.  [default: a new one]"
)
@click.option("--after", metavar="TOKEN", help="Token of 'train feedback --wait': answer with that feedback applied.")
@click.option("--app", metavar="NAME", help="For a stage with variants: the application.  [default: the stage's]")
@click.option(
    "--latency", metavar="TIME", help="For a stage with variants: latency, as in 50ms; also sets the deadline."
)
@click.option("--accuracy", metavar="SHARE", help="For a stage with variants: least accuracy, as in .95 or 95%.")
@click.option("--model", metavar="NAME", help="For a stage with variants: answer with this architecture.")
@click.option("--variant", metavar="NAME", help="For a stage with variants: answer with this variant.")
@click.option("--parameters", metavar="JSON", help="Parameters of the query, as a JSON object.")
@click.option(
    "--timeout",
    callback=positive,
    metavar="SECONDS",
    help=f"How long to wait for the outcome.  [default: {_AFTER_DEADLINE:g} after the deadline]",
)
def predict(
    source: Source,
    file: TextIO,
    deadline: float | None,
    key: str | None,
    request_id: str | None,
    after: str | None,
    parameters: str | None,
    timeout: float | None,
    **needs: str | None,
) -> int:
    """Send one query to a running pipeline and print its outcome as JSON.

    FILE (default: standard input) holds the inputs as a JSON object. A tensor is {"dtype": "float32", "shape": [2],
    "data": [1, 2]}, bytes are {"base64": "..."}. The outcome says how long it took, and whether it came after its
    deadline ("late": true). The exit code is 1 if the query failed or had no outcome in time.

    \b
    Example:
      echo '{"name": "Ada"}' | spillway predict examples/hello/pipeline.yaml
      spillway predict examples/hello/pipeline.yaml query.json --deadline 0.2 --key ada
    """  # noqa: D301 - click's own marks
    spec = source.spec
    inputs = _object(file.read(), file.name)
    given = _object(parameters, "--parameters") if parameters is not None else None
    told, latency = asked(**needs)
    if told:
        given = (given or {}) | told
    seconds = deadline or latency or spec.slo
    grace = _AFTER_DEADLINE if timeout is None else max(0.0, timeout - seconds)
    token = None if after is None else Token.parse(after)
    identity = request_id or new_request_id()
    missing = require_served(source.settings, source.pipeline, source.run_dir)
    if missing:
        click.echo(missing, err=True)
    with Client(spec, source.settings, grace=grace, timeout=_CONNECT_SECONDS) as client:
        try:
            sent = client.submit(inputs, given, deadline=seconds, request_id=identity, key=key, after=token)
        except WireError as error:
            raise UsageError(f"this query cannot be sent: {error}") from error
        try:
            outcome = sent.result()
        except OutcomeTimeoutError as error:
            if request_id is not None:
                raise
            raise OutcomeTimeoutError(f"no outcome came within {seconds + grace:g} s: see 'spillway status'") from error
    told = show_outcome(outcome, identity, outcome.latency or 0.0, late=outcome.late)
    click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    return 1 if outcome.kind == FAILED else 0


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        return read_inputs(text)
    except WireError as error:
        raise UsageError(f"{where}: {error}") from error
