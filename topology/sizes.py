"""The wanted number of workers of each stage: the records of the table `<p>.sizes`, and which of two records counts.

A record's key is `stage/pool`. The pool of a stage's own workers is `main`; a variant's pool has the variant's name
and may have no workers; `host:KIND` is the number of emulated hosts of a kind (`spillway.topology.variants.hosts`). A
value is JSON: the count for the whole stage, who wants it, why, since when, an epoch, a digest of the pipeline file
(without its ensembles) and of the plan, and whether the count is held. One owner at a time writes a stage's sizes, a
tuner or a person. It has claimed `claimed_as` in `<p>.owners`, and the epoch of that claim stands in each of its
records (`spillway.checkpoint.owners`). A variant's record with an epoch below an earlier one of its stage is void, so a
slow writer changes nothing. No tuner changes a held count; it is released by the next record that is not held. The
members of an ensemble have a record of their own (`spillway.topology.ensembles`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.topology.load import Pipeline
    from spillway.topology.spec import PipelineSpec

MAIN: Final = "main"
FROM_FILE: Final = "the pipeline file"  # why a size is that of the file
_LARGEST: Final = 1_000_000  # as a pipeline file may say
MOST_TEXT: Final = 1_000  # characters of `who` and of `why`
_KINDS: Final[dict[str, type[Any]]] = {"count": int, "who": str, "why": str, "at": float, "epoch": int, "digest": str}


@dataclass(frozen=True, slots=True)
class Size:
    """How many workers a stage is to have, over all its fronts; `at` is in unix seconds."""

    count: int
    who: str
    why: str
    at: float
    epoch: int
    digest: str
    held: bool = False

    @property
    def text(self) -> str:
        since = datetime.fromtimestamp(self.at).astimezone()
        why = f": {self.why}" if self.why else ""
        held = ", held" if self.held else ""
        return f"{self.count} (epoch {self.epoch}, {self.who}, {since:%Y-%m-%d %H:%M:%S %z}{held}{why})"


def claimed_as(stage: str) -> str:
    """What the owner of a stage's sizes claims; no process has such a name."""
    return f"sizes/{stage}"


def key_of(stage: str, pool: str = MAIN) -> bytes:
    return f"{stage}/{pool}".encode()


def host_pool(kind: str) -> str:
    """The pool of a stage's emulated hosts of a kind. No variant has such a name."""
    return f"host:{kind}"


def encode(size: Size) -> bytes:
    return json.dumps(asdict(size)).encode()


def record_fields(value: bytes, kinds: Mapping[str, type]) -> tuple[dict[str, Any], dict[str, Any]]:
    """All fields of a record's value, and those of `kinds` once their types are checked and their texts cut.

    Raises CheckpointError that says what is wrong with them.
    """
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise CheckpointError("it is not a JSON object")
    checked: dict[str, Any] = {}
    for name, kind in kinds.items():
        given = fields.get(name)
        if kind is float and type(given) is int:
            given = float(given)
        if type(given) is not kind:
            raise CheckpointError(f"{name!r} must be {kind.__name__}, not {given!r:.80}")
        checked[name] = given[:MOST_TEXT] if isinstance(given, str) else given
    return fields, checked


def decode(value: bytes) -> Size:
    """Read a record's value. Raises CheckpointError that says what is wrong with it."""
    fields, told = record_fields(value, _KINDS)
    held = fields.get("held", False)
    if type(held) is not bool:
        raise CheckpointError(f"'held' must be bool, not {held!r:.80}")
    size = Size(**told, held=held)
    if not 0 <= size.count <= _LARGEST or size.epoch < 1 or not 0 <= size.at < float(1 << 33):
        raise CheckpointError(
            f"count {size.count}, epoch {size.epoch}, at {size.at}: a count is 0 to {_LARGEST}, an epoch at least 1, "
            "a time in unix seconds"
        )
    return size


def from_file(
    pipeline: Pipeline, there: dict[bytes, Size], who: str, now: float, epoch: int, stage: str = ""
) -> dict[bytes, Size]:
    """What is to be written when `pipeline` begins to be served: its file's sizes, unless the table's are of it.

    `epoch` is that of the claim of whoever serves.

    With a `stage` of this one alone. Stages with a state have none: each of their shards has one worker.
    """
    return {
        key: Size(each.worker_count, who, FROM_FILE, now, max(epoch, old.epoch + 1 if old else 1), pipeline.frame)
        for each in pipeline.spec.stages
        if each.state is None and stage in {"", each.name}
        for key in [key_of(each.name)]
        for old in [there.get(key)]
        if old is None or old.digest != pipeline.frame
    }


def sized(spec: PipelineSpec, sizes: dict[bytes, Size]) -> PipelineSpec:
    """The pipeline with as many workers as the table says; what it does not say, or a front cannot have, is left."""
    stages = []
    for stage in spec.stages:
        size = sizes.get(key_of(stage.name))
        fits = size is not None and stage.state is None and size.count >= stage.fronts
        stages.append(stage.with_workers(count=size.count) if size is not None and fits else stage)
    return spec.model_copy(update={"stages": tuple(stages)})
