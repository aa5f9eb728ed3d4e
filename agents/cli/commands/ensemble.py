"""`spillway change ensemble`: other members, or another selection, for a stage of a pipeline that is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.members import change
from spillway.agents.cli.options import timeout_option, why_option
from spillway.agents.cli.policies import ensemble_findings
from spillway.agents.learning.chosen import selection_of
from spillway.agents.live.sizes import Sizes
from spillway.agents.models.model_errors import words_of
from spillway.lineage.errors import UsageError
from spillway.lineage.values.codec import Decoder
from spillway.producers.published import SHARED, decode_row
from spillway.producers.table import Table
from spillway.topology import topics
from spillway.topology.ensembles import follow, record_key, refusals
from spillway.topology.problems import InvalidPipelineError

if TYPE_CHECKING:
    from spillway.topology.ensembles import Served
    from spillway.topology.sections import EnsembleSpec
    from spillway.topology.spec import StageSpec


@click.command()
@from_source
@click.argument("stage")
@click.option("--weights", "shown", is_flag=True, help="Only print the learned weights of the members, by context.")
@why_option
@timeout_option("60s")
def ensemble(source: Source, stage: str, why: str, timeout: float, *, shown: bool) -> int:
    """Apply an edited ensemble of a pipeline file to a stage while the pipeline is served.

    PIPELINE is the edited file. Members may be added and removed; members' 'workers: {count: ...}', 'selection',
    'wait', 'missing' and 'threshold' may change. A file with any other difference from the served one is refused. A new
    member loads while the others serve, and gets queries once it has a worker. A removed member gets no more queries,
    and finishes those it has. A query keeps the selection, wait and threshold under which it arrived. Weights of
    members that stay are kept; a new member starts at their mean.

    The change survives restarts of the stage's processes, and the next 'serve' of the same file, edited or not. If the
    processes run on this machine, the command waits for the change. The exit code is 1 if that takes longer than
    --timeout, or a member does not load: the others then continue, and loading is retried.

    With --weights nothing changes.

    \b
    Examples:
      spillway change ensemble pipeline.yaml kind --why "the new net"
      spillway change ensemble pipeline.yaml kind --weights
    """  # noqa: D301 - click's own marks
    spec = source.spec.stage(stage)
    if spec.ensemble is None:
        raise UsageError(f"stage {stage!r} of {source.pipeline.path} has no 'ensemble', so it has no members to change")
    if shown:
        return _show_weights(source, spec, spec.ensemble)
    findings = list(ensemble_findings(source.pipeline))
    if findings:
        raise InvalidPipelineError(str(source.pipeline.path), findings)
    section = spec.ensemble

    def followed(old: Served, who: str, now: float, epoch: int) -> Served | None:
        if refused := list(refusals(old.section, section)):
            raise UsageError(f"stage {stage!r} cannot make this change while it serves: " + "; ".join(refused))
        return None if section == old.section else follow(old, section, who, why, now, epoch)

    return change(source, spec, timeout, followed)


def _show_weights(source: Source, stage: StageSpec, section: EnsembleSpec) -> int:
    """Print what the stage's learner has published, as the selection that is served reads it."""
    if stage.learner is None:
        raise UsageError(f"stage {stage.name!r} learns no weights: its selection is {section.selection['name']}")
    with Sizes(source.settings, source.spec.name) as sizes:
        sizes.require()
        served = sizes.ensembles().get(record_key(stage.name))
    section = section if served is None else served.section
    selection, decoder = selection_of(stage.name, section.selection), Decoder(source.spec.limits.merged())
    topic = topics.table_of(source.spec, stage.learner.name)
    with Table(source.settings, topic, partitions=range(source.spec.partitions)) as table:
        found = {key: decode_row(value, decoder) for key, value in table.require().items()}
    rows = {key.decode(): row for key, row in found.items() if not key.startswith(SHARED)}
    for context, row in sorted(rows.items()):
        try:
            weights = selection.weights(row.value, list(section.members))
            told = ", ".join(f"{member} {weight:.4f}" for member, weight in weights.items())
        except Exception as error:  # noqa: BLE001 - of another selection, say; a front goes by the first weights then
            told = f"cannot be used ({words_of(error)})"
        click.echo(f"{context}: {told} (version e{row.epoch}.v{row.n})")
    if not rows:
        click.echo("nothing was learned yet")
    return 0
