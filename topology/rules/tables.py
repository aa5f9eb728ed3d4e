"""What has to fit together in what a stage publishes, in the tables that it is given, and in a pipeline's learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topology import names
from topology.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.reading.fields import PipelineFields, StageFields

_UNPUBLISHED: Final = ("lineage-stash", "none")
_NOT_OF_LEARNERS: Final = {
    "after": "reads the feedback that clients send, and comes after no stage",
    "policy": "takes every observation, by 'policy: naive'",
}


def check_tables(fields: PipelineFields, stage: StageFields, problems: list[Problem]) -> None:
    """Add what does not fit together in what this stage publishes, and in the tables that it is given."""
    if stage.spec.publish and stage.usable("publish", "state"):
        problems += [Problem(stage.path("publish"), text, on_key=True) for text in _unpublished(stage)]
    if not stage.spec.tables or not stage.usable("tables"):
        return
    if stage.spec.state is not None and stage.usable("state"):
        text = (
            "a state must be the same when its batches are computed again, as under lineage-stash, and tables are not; "
            "have a stage without a state before it look them up"
        )
        problems.append(Problem(stage.path("tables"), text, on_key=True))
    if stage.spec.cache is not None and stage.usable("cache"):
        text = "what is looked up changes, so no answer may be remembered; drop 'cache' or 'tables'"
        problems.append(Problem(stage.path("cache"), text, on_key=True))
    publishing = [each.spec.name for each in (*fields.learners, *fields.stages) if each.spec.publish]
    for name, table in stage.spec.tables.items():
        if table.of not in publishing:
            text = f"{table.of!r:.80} is no learner or stage with 'publish: true'; {names.meant(table.of, publishing)}"
            problems.append(Problem(stage.path("tables", name, "of"), text))


def _unpublished(stage: StageFields) -> Iterator[str]:
    state = stage.spec.state
    if state is None or state.kind != "keyed":
        yield "what is published is the state of keys; say 'state: {kind: keyed}', or drop 'publish'"
    elif state.replication in _UNPUBLISHED:
        yield (
            f"what is published is a version's copy of the state, and 'replication: {state.replication}' does not make "
            "one of each; use nspb, or drop 'publish'"
        )


def check_learners(fields: PipelineFields, problems: list[Problem]) -> None:
    """Add what learners cannot be; each is checked as the one stage of a pipeline beside."""
    taken = {stage.name for stage in fields.stages}
    for learner in fields.learners:
        if learner.name is not None and learner.name in taken:
            text = f"an earlier stage or learner is called {learner.name!r} too; give each a name of its own"
            problems.append(Problem(learner.path("name"), text))
        elif learner.name is not None and fields.usable("name"):
            try:
                names.pipeline_name(names.learner(fields.head.name, learner.name))
            except ValueError as error:
                problems.append(Problem(learner.path("name"), f"its pipeline's name: {error}"))
        taken.add(learner.name)
        _check_learner(learner, problems)


def _check_learner(learner: StageFields, problems: list[Problem]) -> None:
    for field, why in _NOT_OF_LEARNERS.items():
        if field in learner.given and learner.usable(field) and getattr(learner.spec, field):
            problems.append(Problem(learner.path(field), f"a learner {why}; drop {field!r}", on_key=True))
    state = learner.spec.state
    if not learner.usable("state"):
        return
    if state is None:
        problems.append(Problem(learner.path(), "a learner keeps what it learns; add 'state: {kind: keyed}'"))
    elif state.replication != "nspb" and learner.usable("state.replication"):
        text = f"a learner's state is replicated by nspb; drop 'replication: {state.replication}'"
        problems.append(Problem(learner.path("state", "replication"), text))
