"""`spillway predict`: one query from a file or the standard input, and its outcome; or a file of them, offline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.offline import answer
from spillway.agents.cli.options import FILE, given, positive
from spillway.agents.supervise.serving import require_served
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.ids import new_request_id
from spillway.lineage.message import FAILED
from spillway.lineage.tokens import Token
from spillway.lineage.values.json_text import read_inputs, show_outcome
from spillway.producers.client import Client, OutcomeTimeoutError
from spillway.producers.client.queries import asked
from spillway.producers.offline.job import CHUNK

_AFTER_DEADLINE = 10.0
_ONLINE = ("deadline", "key", "request_id", "after", "parameters", "timeout")  # what offline queries cannot have
_CONNECT_SECONDS = 10.0


@click.command()
@from_source
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@click.argument("outputs", type=FILE, required=False)
@click.option(
    "--deadline",
    callback=positive,
    metavar="TIME",
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
@click.option("--offline", is_flag=True, help="Answer the queries of FILE into OUTPUTS when no others wait.")
@click.option(
    "--chunk", type=click.IntRange(1, 256), default=CHUNK, show_default=True, help="With --offline: queries at a time."
)
@click.option("--parameters", metavar="JSON", help="Parameters of the query, as a JSON object.")
@click.option(
    "--timeout",
    callback=positive,
    metavar="TIME",
    help=f"How long to wait for the outcome.  [default: {_AFTER_DEADLINE:g} after the deadline]",
)
def predict(
    source: Source,
    file: TextIO,
    outputs: Path | None,
    deadline: float | None,
    key: str | None,
    request_id: str | None,
    after: str | None,
    parameters: str | None,
    timeout: float | None,
    chunk: int,
    *,
    offline: bool,
    **needs: str | None,
) -> int:
    """Send one query to a running pipeline and print its outcome as JSON.

    FILE (default: standard input) holds the inputs as a JSON object. A tensor is {"dtype": "float32", "shape": [2],
    "data": [1, 2]}, bytes are {"base64": "..."}. The outcome says how long it took, and whether it came after its
    deadline ("late": true). The exit code is 1 if the query failed or had no outcome in time.

    With --offline, FILE has a query's inputs a line, or is an .npz, whose arrays are cut along their first axis.
    OUTPUTS gets a line for each, in their order: {"row": 0, "outputs": ..} or {"row": 0, "error": ..}. A stage starts
    these queries only while no online one waits. The job pauses while online queries take more than 40 % of the time of
    a stage's workers, or their batches 1.2 times what the profile says, and tells so. What was stopped or killed goes
    on where it was when the same command is given again; OUTPUTS.job has what it needs for that. The exit code is 1 if
    any row that was written has an error.

    \b
    Example:
      echo '{"name": "Ada"}' | spillway predict examples/hello/pipeline.yaml
      spillway predict examples/hello/pipeline.yaml query.json --deadline 0.2 --key ada
      spillway predict pipeline.yaml images.jsonl labels.jsonl --offline --app digits --accuracy .9
    """  # noqa: D301 - click's own marks
    if offline != (outputs is not None):
        raise UsageError("a file of queries is answered into another: give PIPELINE FILE OUTPUTS with --offline")
    if outputs is not None:
        return _offline(source, file, outputs, chunk, **needs)
    spec = source.spec
    inputs = _object(file.read(), file.name)
    asking = _object(parameters, "--parameters") if parameters is not None else None
    told, latency = asked(**needs)
    if told:
        asking = (asking or {}) | told
    seconds = deadline or latency or spec.slo
    grace = _AFTER_DEADLINE if timeout is None else max(0.0, timeout - seconds)
    token = None if after is None else Token.parse(after)
    identity = request_id or new_request_id()
    missing = require_served(source.settings, source.pipeline, source.run_dir)
    if missing:
        click.echo(missing, err=True)
    with Client(spec, source.settings, grace=grace, timeout=_CONNECT_SECONDS) as client:
        try:
            sent = client.submit(inputs, asking, deadline=seconds, request_id=identity, key=key, after=token)
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


def _offline(source: Source, file: TextIO, outputs: Path, chunk: int, latency: str | None, **needs: str | None) -> int:
    online = [option for option in _ONLINE if given(option)]
    if online or latency is not None:
        named = (online or ["latency"])[0].replace("_", "-")
        raise UsageError(f"--{named} is for one query; offline queries have no deadline and no options of their own")
    if file is sys.stdin:
        raise UsageError("offline queries come from a file that can be read again: name it in place of -")
    return answer(source, Path(file.name), outputs, chunk, **needs)


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        return read_inputs(text)
    except WireError as error:
        raise UsageError(f"{where}: {error}") from error
