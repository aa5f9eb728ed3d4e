"""`spillway change scale`: more workers, or fewer, for a stage of a pipeline that is served."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.members import change, follow_fronts
from spillway.agents.cli.options import timeout_option, why_option
from spillway.agents.live.sizes import Sizes, writer
from spillway.agents.supervise.ownership import OwnedError, Ownership
from spillway.lineage import metric_names as names
from spillway.lineage.errors import SpillwayError, UsageError
from spillway.topology.capacity.served import file_digest
from spillway.topology.names import meant
from spillway.topology.sizes import Size, claimed_as, key_of

if TYPE_CHECKING:
    from spillway.agents.supervise.scrape import Snapshot
    from spillway.topology.ensembles import Served
    from spillway.topology.spec import StageSpec


@click.command()
@from_source
@click.argument("stage")
@click.argument("count", metavar="N", type=click.IntRange(1, 1_000_000))
@why_option
@timeout_option("60s")
@click.option("--hold", is_flag=True, help="Take the stage's sizes over from a tuner, which no longer changes them.")
def scale(source: Source, stage: str, count: int, why: str, timeout: float, *, hold: bool) -> int:
    """Set the number of workers of a stage (over all its fronts), or of an ensemble's member, while it is served.

    Workers are copies of the model: threads or processes, as the pipeline file says. New workers get batches once they
    are loaded; surplus workers finish their batch first. The count survives restarts of the stage's processes, and the
    next `serve` of the same file; a changed file brings its own count. If the processes run on this machine, the
    command waits for the workers; the exit code is 1 if that takes longer than --timeout.

    A stage that a tuner sizes (`serve --tune`) is refused, except with --hold: then the tuner leaves that stage alone,
    even after restarts, until it is scaled again without --hold.

    \b
    Examples:
      spillway change scale pipeline.yaml detect 4 --why "the evening's load"
      spillway change scale pipeline.yaml kind/forest 2
    """  # noqa: D301 - click's own marks
    stage, slash, member = stage.partition("/")
    spec = source.spec.stage(stage)
    if slash:
        return _scale_member(source, spec, member, count, why, timeout, hold=hold)
    _refuse(spec, count)
    key = key_of(stage)
    with Sizes(source.settings, source.spec.name) as table:
        old = table.require().get(key)
        if old is None:
            raise UsageError(f"{source.spec.name} was never served with a stage {stage!r}: serve it first")
        if file_digest(old.digest) != source.pipeline.frame:
            raise UsageError(
                f"{source.spec.name} is served from another version of {source.pipeline.path}: use the served "
                "version, or restart it from this file, whose sizes then apply"
            )
        owned = Ownership(source.settings, source.spec.name, [claimed_as(stage)], take_over=hold, say=click.echo)
        try:
            owned.claim(above=old.epoch)
            new = Size(count, writer(), why, time.time(), owned.epoch, old.digest, hold)
            table.write({key: new})
        except OwnedError as error:
            raise UsageError(
                f"tuner {error.claim.owner.name} sizes stage {stage!r} of {source.spec.name}: leave the stage to the "
                "tuner, or take it over with --hold"
            ) from error
        finally:
            owned.leave()
        click.echo(f"{stage}: was {old.text}")
        click.echo(f"{stage}: now ordered: {new.text}")
        return _await(source, spec, table, new, timeout)


def _scale_member(
    source: Source, stage: StageSpec, member: str, count: int, why: str, timeout: float, *, hold: bool
) -> int:
    if stage.ensemble is None:
        raise UsageError(f"stage {stage.name!r} has no members; scale the whole stage, or leave it to its controller")
    if hold:
        raise UsageError("--hold takes a stage over from a tuner, but tuners do not size members; leave it out")
    if count < stage.fronts:
        raise UsageError(
            f"stage {stage.name!r} has {stage.fronts} fronts, and each needs at least one worker of it: {count} are "
            "too few"
        )

    def follow(old: Served, who: str, now: float, epoch: int) -> Served | None:
        if member not in old.section.members:
            raise UsageError(f"stage {stage.name!r} has no member {member!r}; {meant(member, old.section.members)}")
        text = f"{member}: {count} workers" + (f", {why}" if why else "")
        counts = {**old.counts, member: count}
        if counts == old.counts:
            return None
        return replace(old, counts=counts, who=who, why=text, at=now, epoch=epoch)

    return change(source, stage, timeout, follow)


def _refuse(stage: StageSpec, count: int) -> None:
    """Raise UsageError for what no stage can have."""
    if stage.state is not None:
        raise UsageError(
            f"stage {stage.name!r} keeps a state: each of its shards ({stage.shards}) has one worker; set more shards "
            "in the pipeline file"
        )
    if stage.ensemble is not None:
        raise UsageError(
            f"stage {stage.name!r} has members with their own workers: name one, as in '{stage.name}/{stage.lanes[0]}'"
        )
    if stage.variants is not None:
        raise UsageError(
            f"stage {stage.name!r} has variants with their own workers: set their number in the pipeline file, as in "
            "'workers: {count: 2}' of a variant"
        )
    if count < stage.fronts:
        raise UsageError(
            f"stage {stage.name!r} has {stage.fronts} fronts, and each needs at least one worker: {count} are too few"
        )


_COUNTED: Final = (names.MODEL_INSTANCES, names.MODEL_INSTANCES_WANTED)


def _await(source: Source, stage: StageSpec, table: Sizes, new: Size, timeout: float) -> int:
    """Wait until the stage's processes on this machine have as many workers; returns the exit code."""

    def look(fronts: list[Snapshot]) -> int | str:
        stands = table.newest(0.0).get(key_of(stage.name))
        if stands is not None and stands.epoch >= new.epoch and stands != new:
            raise SpillwayError(f"another order has scaled {stage.name!r} meanwhile: {stands.text}")
        ready, wanted = (int(sum(each.value(name) for each in fronts)) for name in _COUNTED)
        if ready == wanted == new.count and len(fronts) == stage.fronts:
            click.echo(f"{stage.name}: {ready} ready")
            return 0
        return f"{ready} of {new.count} ready"

    return follow_fronts(source, stage, timeout, look)
