"""`spillway worker`: one copy of a stage's model, on another host than the stage's front."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from spillway.agents import log
from spillway.agents.cli.options import log_format, pipeline_argument
from spillway.agents.models.loading import TORCH_THREADS
from spillway.agents.workers.identity import model_hash
from spillway.agents.workers.processes import BLAS_THREADS, job_of
from spillway.lineage.errors import UsageError
from spillway.topology.load import load
from spillway.topology.names import host_and_port


@click.command()
@pipeline_argument
@click.argument("stage")
@click.option("--connect", required=True, metavar="HOST:PORT", help="Address at which the stage's front listens.")
@click.option(
    "--tls",
    required=True,
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder with ca.pem, cert.pem and key.pem of this host.",
)
@log_format
def worker(pipeline: Path, stage: str, connect: str, tls: Path, log_format: str) -> None:
    """Run one worker of a stage whose workers are remote, and connect it to the stage's front.

    It loads the model and works until SIGTERM, which lets it finish its batch. If it loses the front, it reconnects.

    \b
    Example: spillway worker pipeline.yaml detect --connect front:7443 --tls certs
    """  # noqa: D301 - click's own marks
    spec = load(pipeline).spec.stage(stage)
    if spec.workers.where != "remote" or spec.model is None:
        raise UsageError(
            f"stage {stage!r} of {pipeline} has no remote workers; write 'workers: {{where: remote, listen: ..., tls: "
            "...}' there"
        )
    try:
        host, port = host_and_port(connect)
    except ValueError as error:
        raise UsageError(f"--connect {error}") from error
    told = model_hash(spec.model, spec.arguments)
    if told is None:
        raise UsageError(
            f"stage {stage!r}: there is no module for {spec.model!r} in {Path.cwd()}, beside {pipeline} or on sys.path"
        )
    job = job_of(spec, TORCH_THREADS) | {"host": host, "port": port, "tls": str(tls.absolute()), "hash": told}
    environment = {**os.environ, **log.environment(log_format, stage, None)}
    if spec.workers.threads is not None:
        environment |= dict.fromkeys(BLAS_THREADS, str(spec.workers.threads))
    start = [sys.executable, "-P", "-m", "spillway.agents.workers.remote", json.dumps(job)]
    os.execve(sys.executable, start, environment)  # noqa: S606 - a BLAS reads its threads when it is loaded
