"""Who may write and read which topic of a pipeline: what each role needs of Kafka's ACLs, and no more.

Nothing that a client may write is obeyed (docs/security.md): clients write queries and truths, and read outcomes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from spillway.topology import topics
from spillway.topology.topics import topic_plan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from spillway.topology.load import Pipeline
    from spillway.topology.spec import PipelineSpec

Role = Literal["client", "stage", "gate", "learner", "supervisor", "operator"]
ROLES: Final[tuple[Role, ...]] = ("client", "stage", "gate", "learner", "supervisor", "operator")


class Access(NamedTuple):
    """Who writes, and who reads, a kind of topic."""

    write: tuple[Role, ...]
    read: tuple[Role, ...]


# By kind of topic, as its name ends. Of a learner's pipeline the stage is a learner, and stages read what it publishes.
ACCESS: Final = {
    "ingress": Access(("client", "supervisor", "operator"), ("stage", "operator")),
    "STAGE": Access(("stage",), ("stage", "operator")),
    "outcomes": Access(("stage",), ("gate", "operator")),
    "egress": Access(("gate",), ("client", "gate", "supervisor", "operator")),
    "dead": Access(("stage", "gate", "operator"), ("operator",)),
    "versions": Access(("stage", "operator"), ("stage", "gate", "supervisor", "operator")),
    "state": Access(("stage", "operator"), ("stage", "supervisor", "operator")),
    "table": Access(("stage",), ("stage", "supervisor", "operator")),
    "generations": Access(("supervisor", "operator"), ("stage", "supervisor", "operator")),
    "control": Access(("stage", "operator"), ("stage", "gate", "supervisor", "operator")),
    "beat": Access(("stage", "supervisor", "operator"), ("stage", "supervisor", "operator")),
    "schemas": Access(("stage", "gate", "supervisor", "operator"), ROLES),
    "plan": Access(("stage", "gate"), ("stage", "gate", "supervisor", "operator")),
    "owners": Access(("stage", "gate", "supervisor", "operator"), ("stage", "gate", "supervisor", "operator")),
    "sizes": Access(("stage", "supervisor", "operator"), ("stage", "learner", "supervisor", "operator")),
    "models": Access(("operator",), ("stage", "supervisor", "operator")),
}
_TOOL: Final = 'kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config "$ADMIN" --add'


class Grant(NamedTuple):
    """What a role may do; `prefixed`: with all whose names begin so."""

    role: Role
    operations: tuple[str, ...]
    resource: Literal["topic", "group", "transactional-id"]
    name: str
    prefixed: bool = False

    def command(self, principals: str) -> str:
        """The line for Kafka's own tool; principals are called `principals`-ROLE."""
        told = [f"--operation {operation}" for operation in self.operations]
        told += [f"--{self.resource} {self.name}", *["--resource-pattern-type prefixed"] * self.prefixed]
        return f"{_TOOL} --allow-principal User:{principals}-{self.role} {' '.join(told)}"


def kind_of(spec: PipelineSpec, topic: str) -> str:
    """The kind of one of a pipeline's topics, as `ACCESS` has it."""
    if topic == topics.MODELS:
        return "models"
    inputs = {topics.stage_input(spec.name, stage.name) for stage in spec.stages}
    return "STAGE" if topic in inputs else topic.rpartition(".")[2]


def grants(pipeline: Pipeline) -> Iterator[Grant]:
    """What each role needs for a pipeline and its learners."""
    yield from _of_one(pipeline.spec, "stage")
    for learner in pipeline.learners:
        yield from _of_one(learner.spec, "learner")
    if any(stage.variants is not None and stage.variants.registered for stage in pipeline.spec.stages):
        yield from _of_topic(topics.MODELS, *ACCESS["models"])
        yield Grant("operator", ("Create",), "topic", topics.MODELS)


def _of_one(spec: PipelineSpec, stage: Role) -> Iterator[Grant]:
    """`stage`: the role of its stages."""
    for topic in topic_plan(spec):
        kind = kind_of(spec, topic.name)
        write, read = ({stage if role == "stage" else role for role in told} for told in ACCESS[kind])
        yield from _of_topic(topic.name, write, read | ({"stage"} if kind in {"table", "generations"} else set()))
    yield Grant("client", ("Read",), "group", topics.replies(spec.name))  # for shared replies
    prefix = f"{spec.name}."
    for role in (stage, "gate", "supervisor", "operator"):
        yield Grant(role, ("DescribeConfigs",), "topic", prefix, prefixed=True)
        yield Grant(role, ("Read", *["Delete"] * (role == "operator")), "group", prefix, prefixed=True)
    for role in ("supervisor", "operator"):
        yield Grant(role, ("Create", *["Delete"] * (role == "operator")), "topic", prefix, prefixed=True)
    for role in (stage, "gate"):
        yield Grant(role, ("Write",), "transactional-id", prefix, prefixed=True)


def _of_topic(name: str, write: Collection[Role], read: Collection[Role]) -> Iterator[Grant]:
    for role in ROLES:
        if role in write or role in read:
            yield Grant(role, ("Write",) * (role in write) + ("Read",) * (role in read), "topic", name)
