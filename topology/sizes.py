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
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import PipelineSpec

MAIN: Final = "main"
FROM_FILE: Final = "the pipeline file"  # why a size is that of the file
MOST_TEXT: Final = 1_000  # characters of `who` and of `why`

_Record = TypeVar("_Record")
Words = Annotated[str, AfterValidator(lambda text: text[:MOST_TEXT])]
Moment = Annotated[float, Field(ge=0, lt=1 << 33, allow_inf_nan=False)]
Epoch = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Size:
    """How many workers a stage is to have, over all its fronts; `at` is in unix seconds."""

    count: Annotated[int, Field(ge=0, le=1_000_000)]
    who: Words
    why: Words
    at: Moment
    epoch: Epoch
    digest: str
    held: bool = False

    @property
    def text(self) -> str:
        return f"{self.count} {ordered_text(self.epoch, self.who, self.at, self.why, held=self.held)}"


def ordered_text(epoch: int, who: str, at: float, why: str, *, held: bool = False) -> str:
    """Return who wanted what a record says, since when, and why, for people."""
    since = datetime.fromtimestamp(at).astimezone()
    words = f"{', held' if held else ''}{f': {why}' if why else ''}"
    return f"(epoch {epoch}, {who}, {since:%Y-%m-%d %H:%M:%S %z}{words})"


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


def decoded(kind: TypeAdapter[_Record], value: bytes) -> _Record:
    """Read a record's value. Raises CheckpointError that says what is wrong with it."""
    try:
        return kind.validate_json(value, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the record"
        raise CheckpointError(f"{where}: {first['msg']}, not {first['input']!r:.80}") from error


_SIZE: Final = TypeAdapter(Size)


def decode(value: bytes) -> Size:
    return decoded(_SIZE, value)


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
