"""What has to fit together in what a stage publishes, in the tables that it is given, and in a pipeline's learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spillway.topology import names
from spillway.topology.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.topology.reading.fields import PipelineFields, StageFields

_UNPUBLISHED: Final = ("lineage-stash", "none")
_NOT_OF_LEARNERS: Final = {
    "after": "reads the feedback that clients send, and cannot come after a stage",
    "policy": "takes every observation ('policy: naive')",
}


def check_tables(fields: PipelineFields, stage: StageFields) -> Iterator[Problem]:
    """Find what does not fit together in what this stage publishes, and in the tables that it is given."""
    if stage.spec.publish and stage.usable("publish", "state"):
        for text in _unpublished(stage):
            yield Problem(stage.path("publish"), text, on_key=True)
    publishing = [each.spec.name for each in (*fields.learners, *fields.stages) if each.spec.publish]
    for name, table in (stage.read("tables") or {}).items():
        if table.of not in publishing:
            meant = names.meant(table.of, publishing)
            text = f"{table.of!r:.80} is not a learner or stage with 'publish: true'; {meant}"
            yield Problem(stage.path("tables", name, "of"), text)


def _unpublished(stage: StageFields) -> Iterator[str]:
    state = stage.spec.state
    if state is None or state.kind != "keyed":
        yield "only a keyed state can be published; write 'state: {kind: keyed}', or drop 'publish'"
    elif state.replication in _UNPUBLISHED:
        yield (
            f"publishing needs a copy of the state for each version, which 'replication: {state.replication}' does "
            "not make; use nspb, or drop 'publish'"
        )


def check_learners(fields: PipelineFields) -> Iterator[Problem]:
    """Find what learners cannot be; each is checked as the one stage of a pipeline beside."""
    taken = {stage.name for stage in fields.stages}
    for learner in fields.learners:
        if learner.name is not None and learner.name in taken:
            text = f"an earlier stage or learner is also called {learner.name!r}; give each its own name"
            yield Problem(learner.path("name"), text)
        elif learner.name is not None and fields.usable("name"):
            try:
                names.pipeline_name(names.learner(fields.head.name, learner.name))
            except ValueError as error:
                yield Problem(learner.path("name"), f"its pipeline's name: {error}")
        taken.add(learner.name)
        yield from _check_learner(learner)


def _check_learner(learner: StageFields) -> Iterator[Problem]:
    for field, why in _NOT_OF_LEARNERS.items():
        if field in learner.given and learner.usable(field) and getattr(learner.spec, field):
            yield Problem(learner.path(field), f"a learner {why}; drop {field!r}", on_key=True)
    state = learner.spec.state
    if not learner.usable("state"):
        return
    if state is None:
        yield Problem(learner.path(), "a learner needs a state to keep what it learns; add 'state: {kind: keyed}'")
    elif state.replication != "nspb" and learner.usable("state.replication"):
        text = f"a learner's state is replicated by nspb; drop 'replication: {state.replication}'"
        yield Problem(learner.path("state", "replication"), text)
