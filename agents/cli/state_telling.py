"""What `spillway state` says in words: one version in full, the keys that differ, what an operator has changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from agents.cli.state_views import counted, differences_grid, entries_grid, size, version_facts, when

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.live.operator.changes import Changed
    from agents.live.operator.histories import Kept
    from checkpoint.differences import Difference, KeyDifferences
    from lineage.replication import Batch, Contents, Record
    from topology.spec import StageSpec

FIRST_BATCHES: Final = 5
_FIRST_KEYS: Final = 10
_FIRST_RECORDS: Final = 8


def tell_json(facts: Any) -> None:
    click.echo(json.dumps(facts, ensure_ascii=False))


def tell_version(kept: Kept, contents: Contents, keys: int | None, *, everything: bool) -> None:
    manifest = kept.manifest
    click.echo(f"{kept.place[0]}/{kept.place[1]} {kept.version}, {kept.standing.value}")
    chunks = counted(len(contents.chunks), "chunk", "chunks")
    chain = ", ".join(f"e{epoch} from {base}" for epoch, base in manifest.chain)
    facts = {
        "written": f"{when(manifest.at_us)} by {manifest.claimant}",
        "state": f"{size(manifest.state_bytes)} in {chunks}, {size(manifest.written_bytes)} new",
        "digest": manifest.digest.hex(),
        "chain": chain or "-",
        "requires": ", ".join(map(str, manifest.requires)) or "nothing",
        "holds": counted(len(contents.outputs), "output", "outputs"),
    }
    if contents.pages:
        count = "an unknown number of keys" if keys is None else counted(keys, "key", "keys")
        facts["keyed"] = f"{count} on {counted(len(contents.pages), 'page', 'pages')}, {size(sum(contents.pages))}"
    for place in contents.inputs:
        above = sum(end - start for start, end in place.covered)
        covered = f" and {above} above" if above else ""
        facts[f"input {place.partition}"] = f"covered below offset {place.position}{covered}"
    width = max(map(len, facts))
    for name, text in facts.items():
        click.echo(f"  {name.ljust(width)}  {text}")
    if contents.entries:
        entries_grid(contents).show()
    _tell_batches(contents, everything=everything)


def tell_differences(place: str, versions: str, differences: Sequence[Difference], keys: KeyDifferences | None) -> None:
    head = f"{place}, {versions}"
    if differences:
        differences_grid(f"{head}: {counted(len(differences), 'entry differs', 'entries differ')}", differences).show()
    elif keys is None:
        click.echo(f"{head}: the same")
    if keys is None:
        return
    counts = f"{len(keys.added)} added, {len(keys.removed)} removed, {len(keys.changed)} changed, {keys.same} the same"
    click.echo(f"{head}: keys: {counts}")
    for what, names in (("added", keys.added), ("removed", keys.removed)):
        if names:
            click.echo(f"  {what}: {', '.join(names[:_FIRST_KEYS])}{_more(len(names), _FIRST_KEYS)}")
    for key in list(keys.changed)[:_FIRST_KEYS]:
        differences_grid(f"key {key}", keys.changed[key]).show()
    if len(keys.changed) > _FIRST_KEYS:
        click.echo(f"and {len(keys.changed) - _FIRST_KEYS} more keys; --json has all")


def tell_change(changed: Changed, what: str, *, as_json: bool) -> None:
    if as_json:
        facts = {"version": str(changed.version), "base": str(changed.base), "durable": changed.durable}
        manifest = changed.manifest
        facts |= {"state_bytes": manifest.state_bytes, "digest": manifest.digest.hex()}
        tell_json({"stage": changed.place[0], "shard": changed.place[1], **facts})
        return
    click.echo(f"{changed.place[0]}/{changed.place[1]} {changed.version}, after {changed.base}, is {what}")
    if not changed.durable:
        click.echo("it is open, as the version before it is: it becomes durable with what that one waits for", err=True)


def warn_of_replays(stage: StageSpec) -> None:
    """Say it where the chunks of a version are not all of its state."""
    state = stage.required_state
    if state.replication == "lineage-stash":
        click.echo(
            f"note: {stage.name} copies its state every {state.checkpoint_every} requests; a version in between has "
            "the chunks of the copy before it, and its batches are replayed when it is recovered, not here",
            err=True,
        )


def facts_of(kept: Kept) -> dict[str, Any]:
    return {"stage": kept.place[0], "shard": kept.place[1], **version_facts(kept)}


def _tell_batches(contents: Contents, *, everything: bool) -> None:
    shown = contents.batches if everything else contents.batches[:FIRST_BATCHES]
    click.echo(f"{counted(len(contents.batches), 'batch', 'batches')} since the version before")
    for batch in shown:
        for line in _lines(batch, everything=everything):
            click.echo(f"  {line}")
    if len(shown) < len(contents.batches):
        click.echo(f"  and {len(contents.batches) - len(shown)} more; --all shows them")


def _lines(batch: Batch, *, everything: bool) -> list[str]:
    lines = []
    for what, records in (("took", batch.taken), ("dropped", batch.dropped)):
        if records:
            shown = records if everything else records[:_FIRST_RECORDS]
            listed = ", ".join(map(_record, shown))
            lines.append(f"v{batch.n} {what} {len(records)}: {listed}{_more(len(records), len(shown))}")
    return lines or [f"v{batch.n} took nothing"]


def _record(record: Record) -> str:
    return f"{record.request} ({record.partition}:{record.offset})"


def _more(count: int, shown: int) -> str:
    return f" and {count - shown} more" if count > shown else ""
