"""`spillway ensemble`: other members, or another selection, for a stage of a pipeline that is served."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from agents.cli.cluster import Source, from_source
from agents.cli.members import change
from agents.cli.options import pipeline_argument, seconds
from agents.cli.policies import ensemble_findings
from lineage.errors import UsageError
from topology.ensembles import follow, refusals
from topology.problems import InvalidPipelineError

if TYPE_CHECKING:
    from topology.ensembles import Served
    from topology.sections import EnsembleSpec


@click.command()
@pipeline_argument
@click.argument("stage")
@click.option("--why", default="", metavar="TEXT", help="Reason, stored with the change.")
@click.option("--timeout", default="60s", callback=seconds, metavar="TIME", help="How long to wait.  [default: 60s]")
@from_source
def ensemble(source: Source, stage: str, why: str, timeout: float) -> int:
    """Apply an edited ensemble of a pipeline file to a stage while the pipeline is served.

    PIPELINE is the edited file. Members may be added and removed; members' 'workers: {count: ...}', 'selection',
    'wait', 'missing' and 'threshold' may change. A file with any other difference from the served one is refused. A new
    member loads while the others serve, and gets queries once it has a worker. A removed member gets no more queries,
    and finishes those it has. A query keeps the selection, wait and threshold under which it arrived. Weights of
    members that stay are kept; a new member starts at their mean.

    The change survives restarts of the stage's processes, and the next 'serve' of the same file, edited or not. If the
    processes run on this machine, the command waits for the change. The exit code is 1 if that takes longer than
    --timeout, or a member does not load: the others then continue, and loading is retried.

    \b
    Example: spillway ensemble pipeline.yaml kind --why "the new net"
    """  # noqa: D301 - click's own marks
    spec = source.spec.stage(stage)
    if spec.ensemble is None:
        raise UsageError(f"stage {stage!r} of {source.pipeline.path} has no 'ensemble', so it has no members to change")
    findings = list(ensemble_findings(source.pipeline))
    if findings:
        raise InvalidPipelineError(str(source.pipeline.path), findings)
    return change(source, spec, timeout, partial(_follow, spec.ensemble, stage, why))


def _follow(
    section: EnsembleSpec, stage: str, why: str, old: Served, who: str, now: float, epoch: int
) -> Served | None:
    refused = list(refusals(old.section, section))
    if refused:
        raise UsageError(f"stage {stage!r} cannot make this change while it serves: " + "; ".join(refused))
    if section == old.section:
        return None
    return follow(old, section, who, why, now, epoch)
