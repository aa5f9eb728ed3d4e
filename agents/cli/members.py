"""What the commands that change a served ensemble share: what is served, the claim under which it changes, the wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from spillway.agents.live.sizes import Sizes, writer
from spillway.agents.supervise.ownership import OwnedError, Ownership
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import scrape
from spillway.lineage.errors import SpillwayError, UsageError
from spillway.topology.capacity.served import file_digest
from spillway.topology.ensembles import differing, record_key
from spillway.topology.sizes import claimed_as

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.cli.cluster import Source
    from spillway.agents.supervise.scrape import Ensemble, Snapshot
    from spillway.topology.ensembles import Served
    from spillway.topology.spec import StageSpec

_POLL: Final = 0.2


def change(
    source: Source, stage: StageSpec, timeout: float, follow: Callable[[Served, str, float, int], Served | None]
) -> int:
    """Have another ensemble served from now on, and wait until it is; returns the exit code.

    `follow` makes the record that follows one, of its writer, the time and an epoch; None where nothing changes.
    """
    with Sizes(source.settings, source.spec.name) as table:
        table.require()
        old = _standing(source, stage.name, table)
        if follow(old, "", 0.0, old.epoch) is None:
            click.echo(f"{stage.name}: nothing changes: {old.text}")
            return 0
        owned = Ownership(source.settings, source.spec.name, [claimed_as(stage.name)], say=click.echo)
        try:
            owned.claim(above=old.epoch)
            old = _standing(source, stage.name, table)  # whoever had the claim may have changed it
            new = follow(old, writer(), time.time(), max(owned.epoch, old.epoch + 1))
            if new is None:
                raise SpillwayError(f"somebody else has changed {stage.name!r} meanwhile: {old.text}")
            table.write({record_key(stage.name): new})
        except OwnedError as error:
            raise UsageError(f"{error.claim.owner.name} changes stage {stage.name!r} just now: try again") from error
        finally:
            owned.leave()
        click.echo(f"{stage.name}: was {old.text}")
        click.echo(f"{stage.name}: is to be {new.text}")
        return _await(source, stage, table, new, timeout)


def _standing(source: Source, stage: str, table: Sizes) -> Served:
    """What is served of a stage. Raises UsageError where it is not of this file, its ensembles aside."""
    old = table.ensembles().get(record_key(stage))
    if old is None:
        raise UsageError(f"{source.spec.name} was never served with an ensemble {stage!r}: serve it first")
    if file_digest(old.digest) != source.pipeline.frame:
        raise UsageError(
            f"{source.pipeline.path} differs from what is served in more than its ensembles: "
            f"{', '.join(differing(old, source.pipeline))}; undo that, or serve it anew from this file"
        )
    return old


def _await(source: Source, stage: StageSpec, table: Sizes, new: Served, timeout: float) -> int:
    """Wait until the stage's fronts on this machine have what was ordered."""

    def look(fronts: list[Snapshot]) -> int | str:
        stands = table.ensembles(0.0).get(record_key(stage.name))
        if stands is not None and stands.epoch >= new.epoch and stands != new:
            raise SpillwayError(f"somebody else has changed {stage.name!r} meanwhile: {stands.text}")
        found = [each.ensemble for each in fronts if each.ensemble.at == new.at]
        troubles = {name: why for each in found for name, why in each.troubles.items()}
        for name, why in troubles.items():
            click.echo(f"{stage.name}: member {name} does not serve, and is tried again: {why}", err=True)
        if troubles:
            return 1
        if len(found) == stage.fronts and all(_has(each, new) for each in found):
            click.echo(f"{stage.name}: {', '.join(new.section.members)} serve")
            return 0
        return "not there"

    return follow_fronts(source, stage, timeout, look)


def _has(front: Ensemble, new: Served) -> bool:
    return front.members.keys() == new.section.members.keys() and all(
        ready == wanted for ready, wanted in front.members.values()
    )


def follow_fronts(source: Source, stage: StageSpec, timeout: float, look: Callable[[list[Snapshot]], int | str]) -> int:
    """Look at what a stage's fronts on this machine tell, until there is an exit code; before, `look` says how far."""
    until = time.monotonic() + timeout
    told = f"see 'spillway status {source.spec.name}' where it is served"
    if not any(entry.alive() for entry in entries(source.run_dir, source.spec.name) if entry.stage == stage.name):
        click.echo(f"no process of {stage.name} is registered under {source.run_dir}: {told}")
        return 0
    while isinstance(found := look(_fronts(source, stage.name)), str):
        if time.monotonic() >= until:
            click.echo(f"{stage.name}: {found} after {timeout:g} s; {told}", err=True)
            return 1
        time.sleep(_POLL)
    return found


def _fronts(source: Source, stage: str) -> list[Snapshot]:
    return [
        snapshot
        for entry in entries(source.run_dir, source.spec.name)
        if entry.stage == stage and entry.role == "stage" and entry.alive()
        if (snapshot := scrape(entry, time.monotonic())) is not None
    ]
