"""A stage's ensemble as it is served: a record in the table `<p>.sizes`, which may differ from the pipeline file.

The record's key is `stage/.ensemble`. Its value is JSON: the whole section, the counts that members were scaled to, who
wants it, why, since when, an epoch, and digests. A writer has claimed the stage's sizes (`spillway.topology.sizes`).
The record with the higher epoch counts; of two with the same epoch, the later one. `digest` is of the file without its
ensembles (`Pipeline.frame`): a record with another digest is of another file and is ignored; `parts` says which parts
differ. `file` is of the section with which serving began: a file with the same section continues with the record, a
file with another section replaces it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, TypeAdapter

from spillway.topology.load import without_ensembles
from spillway.topology.sections import EnsembleSpec, selection_family, with_counts
from spillway.topology.sizes import FROM_FILE, Epoch, Moment, Words, decoded, key_of, ordered_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.topology.load import Pipeline
    from spillway.topology.spec import PipelineSpec

POOL: Final = ".ensemble"  # no member can be called so
_SHORT: Final = 8  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class Served:
    """An ensemble from some moment on; `at` is in unix seconds."""

    section: EnsembleSpec
    who: Words
    why: Words
    at: Moment
    epoch: Epoch
    digest: str
    file: str
    parts: dict[str, str] = field(default_factory=dict)
    """Short digests of what else the file says (`parts_of`)."""
    counts: dict[str, Annotated[int, Field(ge=1)]] = field(default_factory=dict)
    """Workers of members that were scaled, over all fronts."""

    @property
    def changed(self) -> bool:
        return section_digest(self.section) != self.file

    @property
    def effective(self) -> EnsembleSpec:
        """The section with as many workers as members were scaled to."""
        return self.section.model_copy(update={"members": with_counts(self.section.members, self.counts)})

    @property
    def text(self) -> str:
        told = f"{self.section.selection['name']} of {', '.join(self.section.members)}"
        return f"{told} {ordered_text(self.epoch, self.who, self.at, self.why)}"


def record_key(stage: str) -> bytes:
    return key_of(stage, POOL)


def is_record(key: bytes) -> bool:
    return key.endswith(f"/{POOL}".encode())


def encode(served: Served) -> bytes:
    told = {name: each for name, each in asdict(replace(served, section=None)).items() if name != "section"}  # type: ignore[arg-type]
    return json.dumps({"section": _said(served.section), **told}).encode()


_SERVED: Final = TypeAdapter(Served)


def decode(value: bytes) -> Served:
    """Read a record's value. Raises CheckpointError that says what is wrong with it."""
    return decoded(_SERVED, value)


def section_digest(section: EnsembleSpec) -> str:
    return hashlib.sha256(json.dumps(_said(section), sort_keys=True).encode()).hexdigest()


def _said(section: EnsembleSpec) -> dict[str, Any]:
    return section.model_dump(mode="json", exclude_defaults=True)


def from_file(
    pipeline: Pipeline, there: Mapping[bytes, Served], who: str, now: float, epoch: int, stage: str = ""
) -> dict[bytes, Served]:
    """What is to be written when `pipeline` begins to be served: its sections, unless the table's stand for them.

    `epoch` is that of the claim of whoever serves. With a `stage` of this one alone.
    """
    made = {}
    for each in pipeline.spec.stages:
        old = there.get(record_key(each.name))
        if each.ensemble is None or stage not in {"", each.name}:
            continue
        own = section_digest(each.ensemble)
        if old is None or old.digest != pipeline.frame or old.file != own:
            above = max(epoch, old.epoch + 1 if old else 1)
            parts = parts_of(pipeline)
            made[record_key(each.name)] = Served(each.ensemble, who, FROM_FILE, now, above, pipeline.frame, own, parts)
    return made


def in_effect(spec: PipelineSpec, frame: str, records: Mapping[bytes, Served]) -> PipelineSpec:
    """The pipeline with its ensembles as the table says, where that is of the same file."""
    stages = []
    for stage in spec.stages:
        record = records.get(record_key(stage.name))
        if stage.ensemble is not None and record is not None and record.digest == frame:
            stages.append(stage.model_copy(update={"ensemble": record.effective}))
        else:
            stages.append(stage)
    return spec.model_copy(update={"stages": tuple(stages)})


def parts_of(pipeline: Pipeline) -> dict[str, str]:
    """Short digests of what a file says but for its ensembles, by where it stands."""
    told = without_ensembles(pipeline.written).model_dump(mode="json", exclude_defaults=True)
    lists = {"stage": told.pop("stages", ()), "learner": told.pop("learners", ())}
    parts = dict(told)
    for kind, listed in lists.items():
        for each in listed:
            parts |= {f"{kind} {each['name']!r}: {name}": value for name, value in each.items()}
    return {
        name: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_SHORT]
        for name, value in parts.items()
    }


def differing(served: Served, pipeline: Pipeline) -> list[str]:
    """What a file says otherwise than the one that is served, its ensembles aside."""
    now = parts_of(pipeline)
    return sorted(name for name in now.keys() | served.parts.keys() if now.get(name) != served.parts.get(name))


# What may change while it serves ------------------------------------------------------------------------------------


def follow(old: Served, new: EnsembleSpec, who: str, why: str, now: float, epoch: int) -> Served:
    """The record that follows. A member that was scaled stays so, where the file says the same of it as before."""
    counts = {name: n for name, n in old.counts.items() if new.members.get(name) == old.section.members.get(name)}
    return replace(old, section=new, counts=counts, who=who, why=why, at=now, epoch=epoch)


def refusals(old: EnsembleSpec, new: EnsembleSpec) -> Iterator[str]:
    """Why one section cannot follow another while the stage serves, if it cannot."""
    for name, why in (
        ("answer", "it is the stage's output"),
        ("context", "weights are kept by it"),
        ("loss", "the learner has it"),
        ("learn", "a learner comes, or goes, with it"),
    ):
        if getattr(old, name) != getattr(new, name):
            yield f"{name!r} is {getattr(new, name)!r}, and it was {getattr(old, name)!r}: {why}"
    yield from _of_selections(old, new)
    for name in old.members.keys() & new.members.keys():
        was, now = (each.members[name].model_copy(update={"workers": None}) for each in (old, new))
        if was != now or _bare(old, name) != _bare(new, name):
            yield (
                f"member {name!r} has other fields than 'workers: {{count: ...}}' changed: what is learned of a member "
                "goes with its name, so give another model another name, or take the member out first"
            )


def _bare(section: EnsembleSpec, name: str) -> Any:
    return section.members[name].workers.model_copy(update={"count": None})


def _of_selections(old: EnsembleSpec, new: EnsembleSpec) -> Iterator[str]:
    was, now = str(old.selection.get("name")), str(new.selection.get("name"))
    if old.learns != new.learns and old.learn == new.learn:
        yield f"'selection' is {now!r}, and it was {was!r}: a learner comes, or goes, with it"
    elif new.learns and selection_family(was) != selection_family(now):
        yield (
            f"'selection' is {now!r}, and it was {was!r}, which keeps other numbers of each member: only exp3 and exp4 "
            "may follow one another, and epsilon and thompson"
        )
