"""What an operator may name: a stage with a state, one of its shards, a version that is retained.

Every error says what there is instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from agents.live.operator.histories import Standing
from lineage.errors import UsageError
from lineage.marks import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.live.operator.histories import Histories, Kept
    from lineage.marks import Place
    from topology.spec import PipelineSpec

_VERSION: Final = re.compile(r"e?(\d{1,18})\.v?(\d{1,18})", re.ASCII)
_SHOWN: Final = 20


def stage_of(spec: PipelineSpec, name: str) -> str:
    """`name`, if it is a stage whose state is in a log. Raises UsageError."""
    kept = [stage.name for stage in spec.stages if stage.replicated]
    there = f"; those with a state in a log are: {', '.join(kept)}" if kept else "; no stage of this pipeline has one"
    found = [stage for stage in spec.stages if stage.name == name]
    if not found:
        raise UsageError(f"pipeline {spec.name!r} has no stage {name!r}{there}")
    if not found[0].stateful:
        raise UsageError(f"stage {name!r} keeps no state{there}")
    if not found[0].replicated:
        raise UsageError(f"stage {name!r} keeps its state in its process only (replication: none){there}")
    return name


def place_of(spec: PipelineSpec, name: str, shard: int | None) -> Place:
    """The shard that is meant. Raises UsageError where several could be."""
    count = spec.stage(stage_of(spec, name)).shards
    if shard is None:
        if count > 1:
            raise UsageError(f"stage {name!r} has {count} shards: say which with --shard, 0 to {count - 1}")
        return name, 0
    if not 0 <= shard < count:
        raise UsageError(f"stage {name!r} has no shard {shard}; it has 0 to {count - 1}")
    return name, shard


def version_of(text: str) -> Version:
    """A version as it is shown, `e5.v17`, or as `5.17`. Raises UsageError."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r:.40} is no version: write it as e5.v17, epoch and number, as 'state list' shows it")
    return Version(int(match[1]), int(match[2]))


def kept_version(histories: Histories, place: Place, text: str | None) -> Kept:
    """The version that is named; without a name, the newest durable one. Raises UsageError that lists what there is."""
    kept = histories.kept(place)
    where = f"{place[0]}/{place[1]}"
    if not kept:
        raise UsageError(f"{where} has no version yet: its state is still what the model's initialize() gives")
    if text is None:
        durable = [each for each in kept if each.standing is Standing.DURABLE]
        if not durable:
            raise UsageError(f"{where} has no durable version yet; name one of {_listed(kept)}")
        return max(durable, key=lambda each: each.version.n)
    version = version_of(text)
    for each in kept:
        if each.version == version:
            return each
    raise UsageError(f"{where} does not retain {version}; it has {_listed(kept)}")


def _listed(kept: Sequence[Kept]) -> str:
    """The newest of them."""
    shown = [f"{each.version} ({each.standing.value})" for each in kept[-_SHOWN:]]
    return ", ".join(shown) + (f" and {len(kept) - _SHOWN} older" if len(kept) > _SHOWN else "")
