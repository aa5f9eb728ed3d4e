"""`spillway state`: the versions of stateful stages, as an operator looks at them and decides about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from spillway.agents.cli.cluster import Source, from_source
from spillway.agents.cli.options import FILE, FOUND_FILE, LazyGroup, json_option
from spillway.agents.cli.state_telling import (
    contents_facts,
    facts_of,
    shard_facts,
    size,
    tell_change,
    tell_json,
    tell_version,
    versions_grid,
    warn_of_replays,
    when,
)
from spillway.agents.live.operator import changes
from spillway.agents.live.operator.histories import kept_version, place_of, read_histories, stage_of
from spillway.agents.live.operator.stored import Store, import_torch, read_file, write_file
from spillway.agents.models.loading import load_stateful_model
from spillway.agents.models.placement import listed, misfits
from spillway.agents.models.state import check_state
from spillway.agents.models.stateful import SHARED, first_state
from spillway.checkpoint.damage import DamageError
from spillway.checkpoint.state import flatten
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from spillway.agents.live.operator.histories import Histories, Kept
    from spillway.lineage.marks import Place
    from spillway.lineage.replication import Contents
    from spillway.topology.spec import StageSpec


# Whether a state is one that a stage's model can go on from: its entries are those that `initialize()` makes.
#
# Names, kinds, dtypes and shapes are compared, not values. A model whose states grow (a list of tensors, a mapping that
# learns names) makes others than it begins with, and may; so the question is asked only where an operator wants it.


def refuse_misfit(stage: StageSpec, state: Mapping[Any, Any], keyed: Mapping[str, Mapping[Any, Any]] | None) -> None:
    """Raise UsageError for a state with other entries than the stage's model makes; ModelError where it has none."""
    if stage.model is None:
        raise UsageError(f"stage {stage.name!r} names no model to check the state against; leave out --check")
    model = load_stateful_model(stage.name, stage.model, stage.arguments)
    initial = first_state(model)
    check_state(f"stage {stage.name!r}: initialize", initial)
    wanted = flatten(initial).entries
    names = {entry.name for entry in wanted}
    parts = (
        {"the state": state}
        if keyed is None
        else {f"the state of key {key!r}": each for key, each in keyed.items() if key != SHARED}
    )
    for what, part in parts.items():
        found = {entry.name: entry for entry in flatten(part).entries}
        wrong = misfits(wanted, found) + [f"{name!r:.80} is not an entry of it" for name in found if name not in names]
        if wrong:
            raise UsageError(f"{what} does not fit the model {stage.model}: {listed(wrong)}")


def _contents(source: Source, kept: Kept, histories: Histories) -> Contents:
    return Store(source.settings, source.spec.name, kept.place).contents(kept.manifest, histories.decoder)


_stage = click.argument("stage")
_shard = click.option("--shard", type=int, metavar="N", help="Which shard, if the stage has several.")


@click.group(cls=LazyGroup)
def state() -> None:
    """List, show, export, import and rewind the states of stateful stages.

    Everything is read from the logs on Kafka, so the pipeline need not be served. A version is written e5.v17: the 17th
    version of its shard, made in epoch 5. docs/states.md says what each command means.

    \b
    Example:
      spillway state list pipeline.yaml
      spillway state export pipeline.yaml learn learn.safetensors
    """  # noqa: D301 - click's own marks


@state.command("list")
@from_source
@click.argument("stage", required=False)
@json_option
def list_(source: Source, stage: str | None, *, as_json: bool) -> None:
    """List the versions of every shard: when, whether durable, how large.

    A version is durable if no failure can take it back; open while it waits for versions of other stages; dead if a
    failover discarded it, or a version that it depends on.

    \b
    Example: spillway state list pipeline.yaml learn --json
    """  # noqa: D301
    wanted = None if stage is None else stage_of(source.spec, stage)
    if not source.spec.places:
        raise UsageError(f"no stage of pipeline {source.spec.name!r} has a state in a log")
    histories = read_histories(source.settings, source.spec)
    places = [place for place in source.spec.places if wanted in {None, place[0]}]
    if as_json:
        tell_json({"pipeline": source.spec.name, "shards": [shard_facts(histories, place) for place in places]})
        return
    for place in places:
        versions_grid(histories, place).show()
        if (damage := histories.logs.damage(place)) is not None:
            click.echo(f"{place[0]}/{place[1]}: {DamageError(damage)}", err=True)


@state.command()
@from_source
@_stage
@click.argument("version", required=False)
@_shard
@json_option
def show(source: Source, stage: str, version: str | None, shard: int | None, *, as_json: bool) -> None:
    """Show one version: its entries and input positions.

    VERSION is one of 'state list'; without it, the newest durable one.

    \b
    Example: spillway state show pipeline.yaml learn e5.v17
    """  # noqa: D301
    place = place_of(source.spec, stage, shard)
    histories = read_histories(source.settings, source.spec)
    kept = kept_version(histories, place, version)
    contents = _contents(source, kept, histories)
    if as_json:
        tell_json(facts_of(kept) | contents_facts(contents))
    else:
        tell_version(kept, contents)
    warn_of_replays(source.spec.stage(stage))


@state.command()
@from_source
@_stage
@click.argument("file", type=FILE)
@click.option("--version", metavar="VERSION", help="Which one.  [default: the newest durable one]")
@_shard
@json_option
def export(source: Source, stage: str, file: Path, version: str | None, shard: int | None, *, as_json: bool) -> None:
    """Write a version's state to a new safetensors file.

    Every chunk is verified. Other tools find the tensors by their names; 'state import' restores everything.

    \b
    Example: spillway state export pipeline.yaml learn learn.safetensors --version e5.v17
    """  # noqa: D301
    place = place_of(source.spec, stage, shard)
    histories = read_histories(source.settings, source.spec)
    kept = kept_version(histories, place, version)
    contents = _contents(source, kept, histories)
    import_torch(contents)
    stored = Store(source.settings, source.spec.name, place).state(contents)
    written = write_file(file, stored, kept, source.spec.name)
    if as_json:
        tell_json(facts_of(kept) | {"file": str(file), "bytes": written})
    else:
        click.echo(f"{stage}/{place[1]} {kept.version} is in {file}, {size(written)}")
    warn_of_replays(source.spec.stage(stage))


@state.command("import")
@from_source
@_stage
@click.argument("file", type=FOUND_FILE)
@_shard
@click.option("--check", is_flag=True, help="Refuse a state whose entries do not match the model's.")
@json_option
def import_(source: Source, stage: str, file: Path, shard: int | None, *, check: bool, as_json: bool) -> None:
    """Make the state in a file the newest version of a shard that no process serves.

    The pipeline then starts from it. Only the state changes, not the shard's input positions. Missing topics are
    created, so this also prepares a pipeline that was never served.

    \b
    Example: spillway state import pipeline.yaml learn learn.safetensors --check
    """  # noqa: D301
    place = place_of(source.spec, stage, shard)
    shared, keyed, _ = read_file(file)
    if check:
        refuse_misfit(source.spec.stage(stage), shared, keyed)
    reason = f"import of {file.name}"
    tell_change(
        changes.import_state(source.settings, source.spec, place, shared, keyed, reason),
        f"the state of {file}",
        as_json=as_json,
    )


@state.command()
@from_source
@_stage
@click.argument("version")
@_shard
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def rewind(source: Source, stage: str, version: str, shard: int | None, *, yes: bool, as_json: bool) -> int:
    """Go back to a retained version of a shard that no process serves.

    The state becomes that of VERSION: later updates are lost. Everything else stays. Released outcomes stay released,
    even if they depend on the lost updates, and no query runs again. The result is a new version; you can also rewind
    to the old ones until the next primary deletes them.

    \b
    Example: spillway state rewind pipeline.yaml learn e5.v17
    """  # noqa: D301
    place = place_of(source.spec, stage, shard)
    histories = read_histories(source.settings, source.spec)
    kept = kept_version(histories, place, version)
    changes.check_rewind(histories, kept)
    question = (
        f"{newest_of(histories, place)} Its state becomes that of {kept.version} of {when(kept.manifest.at_us)}; "
        "later updates are lost, released outcomes stay released, and no query runs again. Rewind?"
    )
    if not yes and not click.confirm(question, err=True):
        click.echo("nothing was changed", err=True)
        return 1
    warn_of_replays(source.spec.stage(stage))
    reason = f"rewind to {kept.version}"
    changed = changes.rewind(source.settings, source.spec, histories, kept, reason)
    tell_change(changed, f"the state of {kept.version}", as_json=as_json)
    return 0


def newest_of(histories: Histories, place: Place) -> str:
    """What a shard would start from, in a sentence; of a damaged version log, what going back loses."""
    damage = histories.logs.damage(place)
    if damage is not None:
        return f"{damage.where} is damaged: its contents, and all later versions of {place[0]}/{place[1]}, are lost."
    return f"{place[0]}/{place[1]} is at {histories.logs.candidate(place)}."
