"""What `spillway state` says in words: the versions of a shard, one of them, what an operator has changed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spillway.agents.cli.columns import columns
from spillway.checkpoint import arrays
from spillway.checkpoint.small_values import unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.agents.live.operator.changes import Changed
    from spillway.agents.live.operator.histories import Histories, Kept
    from spillway.lineage.marks import Place
    from spillway.lineage.replication import Contents
    from spillway.topology.spec import StageSpec


VERSIONS: Final = ("version", "when", "standing", "batches", "requests", "state", "written", "digest", "primary")
ENTRIES: Final = ("entry", "kind", "dtype", "shape", "bytes")
_SHORT: Final = 8  # hexadecimal digits of a digest
_STYLES: Final = {"durable": "green", "open": "yellow", "dead": "red"}


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: a title, headings, rows of texts; what is in `right` are numbers."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()

    def show(self) -> None:
        """Print it: a table on a terminal, aligned columns elsewhere, the title alone where there are no rows."""
        console = Console(soft_wrap=True, highlight=False)
        if not self.rows:
            console.print(self.title, markup=False)
            return
        if not console.is_terminal:
            print(self.title)
            for line in columns((self.headings, *self.rows), self.right):
                print(f"  {line}")
            return
        made = Table(title=self.title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
        for at, heading in enumerate(self.headings):
            made.add_column(heading, justify="right" if at in self.right else "left", overflow="fold")
        for row in self.rows:
            made.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
        console.print(made)


def versions_grid(histories: Histories, place: Place) -> Grid:
    facts = shard_facts(histories, place)
    if facts["epoch"]:
        title = (
            f"{place[0]}/{place[1]}: epoch {facts['epoch']} of {facts['primary']}, newest durable {facts['durable']}"
        )
    else:
        title = f"{place[0]}/{place[1]}: nothing there yet"
    every = list(histories.kept(place))
    rows = [
        (
            str(kept.version),
            when(kept.manifest.at_us).partition("-")[2],  # the year is seldom in doubt
            kept.standing.value,
            str(kept.manifest.batches),
            str(kept.manifest.requests),
            size(kept.manifest.state_bytes),
            size(kept.manifest.written_bytes),
            kept.manifest.digest.hex()[:_SHORT],
            kept.manifest.claimant,
        )
        for kept in every
    ]
    shown = len(VERSIONS)
    if all(kept.manifest.claimant == facts["primary"] for kept in every):
        shown -= 1  # the title names who has made them all
    return Grid(title, VERSIONS[:shown], [row[:shown] for row in rows], (3, 4, 5, 6))


def shard_facts(histories: Histories, place: Place) -> dict[str, Any]:
    log = histories.logs.log(place)
    return {
        "stage": place[0],
        "shard": place[1],
        "epoch": log.epoch,
        "primary": log.claimant,
        "durable": str(histories.logs.newest_durable(place)),
        "starts_from": str(histories.logs.candidate(place)),
        "void": {void.name.lower(): count for void, count in log.void.items()},
        "versions": [version_facts(kept) for kept in histories.kept(place)],
    }


def version_facts(kept: Kept) -> dict[str, Any]:
    manifest = kept.manifest
    return {
        "version": str(kept.version),
        "epoch": kept.version.epoch,
        "n": kept.version.n,
        "at": manifest.at_us / 1e6,
        "standing": kept.standing.value,
        "batches": manifest.batches,
        "requests": manifest.requests,
        "state_bytes": manifest.state_bytes,
        "written_bytes": manifest.written_bytes,
        "digest": manifest.digest.hex(),
        "primary": manifest.claimant,
        "chain": [{"epoch": epoch, "base": str(base)} for epoch, base in manifest.chain],
        "requires": [str(mark) for mark in manifest.requires],
    }


def contents_facts(contents: Contents) -> dict[str, Any]:
    return {
        "entries": [
            {"name": entry.name, "kind": entry.kind, "dtype": entry.dtype, "shape": entry.shape}
            | (
                {"bytes": arrays.nbytes(entry)}
                if entry.dtype
                else {"value": _json(unpack(contents.values[entry.name]))}
            )
            for entry in contents.entries
        ],
        "inputs": [dict(zip(place._fields, place, strict=True)) for place in contents.inputs],
    }


def entries_grid(contents: Contents) -> Grid:
    rows = [
        (
            entry.name,
            entry.kind,
            entry.dtype or "-",
            str(list(entry.shape)) if entry.dtype else _brief(unpack(contents.values[entry.name])),
            str(arrays.nbytes(entry)) if entry.dtype else "-",
        )
        for entry in contents.entries
    ]
    return Grid(counted(len(rows), "entry", "entries"), ENTRIES, rows, (4,))


def size(count: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def when(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S") if at_us else "-"


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."  # noqa: PLR2004 - a column's width


def _json(value: Any) -> Any:
    """A small value as JSON shows it: bytes, keys, and floats that JSON lacks, as texts."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _json(each) for name, each in value.items()}
    return value


def tell_json(facts: Any) -> None:
    click.echo(json.dumps(facts, ensure_ascii=False))


def tell_version(kept: Kept, contents: Contents) -> None:
    manifest = kept.manifest
    click.echo(f"{kept.place[0]}/{kept.place[1]} {kept.version}, {kept.standing.value}")
    facts = {
        "written": f"{when(manifest.at_us)} by {manifest.claimant}",
        "state": f"{size(manifest.state_bytes)}, {size(manifest.written_bytes)} new",
        "requires": ", ".join(map(str, manifest.requires)) or "nothing",
    }
    if contents.pages:
        facts["keyed"] = f"{size(sum(contents.pages))} in {counted(len(contents.pages), 'page', 'pages')}"
    for place in contents.inputs:
        above = sum(end - start for start, end in place.covered)
        covered = f" and {above} above" if above else ""
        facts[f"input {place.partition}"] = f"covered below offset {place.position}{covered}"
    width = max(map(len, facts))
    for name, text in facts.items():
        click.echo(f"  {name.ljust(width)}  {text}")
    if contents.entries:
        entries_grid(contents).show()


def tell_change(changed: Changed, what: str, *, as_json: bool) -> None:
    if as_json:
        facts = {"version": str(changed.version), "base": str(changed.base), "durable": changed.durable}
        manifest = changed.manifest
        facts |= {"state_bytes": manifest.state_bytes, "digest": manifest.digest.hex()}
        tell_json({"stage": changed.place[0], "shard": changed.place[1], **facts})
        return
    click.echo(f"{changed.place[0]}/{changed.place[1]} {changed.version}, after {changed.base}, is {what}")
    if not changed.durable:
        click.echo("it is open because the previous version is open: both become durable together", err=True)


def warn_of_replays(stage: StageSpec) -> None:
    """Say it where the chunks of a version are not all of its state."""
    state = stage.required_state
    if state.replication == "lineage-stash":
        click.echo(
            f"note: {stage.name} copies its state every {state.checkpoint_every} requests; a version in between uses "
            "the chunks of the previous copy, and recovery (not this command) replays its batches",
            err=True,
        )


def facts_of(kept: Kept) -> dict[str, Any]:
    return {"stage": kept.place[0], "shard": kept.place[1], **version_facts(kept)}
