"""The pipelines that faults are done to: two or three small stages, most of which keep a state."""

from dataclasses import dataclass, field
from typing import Any

MODELS = "tests.torture.models"
BATCH = 8


@dataclass(frozen=True)
class Shape:
    """A pipeline: stages as the file has them, and which of their models have chance in them."""

    stages: tuple[dict[str, Any], ...]
    random: frozenset[str] = frozenset()
    refusing: frozenset[str] = frozenset()  # the stages whose models refuse some queries
    more: dict[str, Any] = field(default_factory=dict)  # of the pipeline
    front: dict[str, Any] = field(default_factory=dict)  # the stage of a pipeline whose learner this is


def stateful(name: str, model: str, *after: str, **more: Any) -> dict[str, Any]:
    kind = "keyed" if model == "Users" else "shared"
    state = {field: more.pop(field) for field in ("shards", "replication") if field in more}
    return {**stateless(name, *after, **more), "model": f"{MODELS}:{model}", "state": {"kind": kind, **state}}


def stateless(name: str, *after: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "model": f"{MODELS}:Through", "after": list(after), "batching": {"size": BATCH}, **more}


def meet(**more: Any) -> dict[str, Any]:
    """A join whose result tells which parts have come."""
    return {"mode": "all", "function": f"{MODELS}:meet", **more}


SHAPES = {
    "pair": Shape((stateful("a", "Chain"), stateful("b", "Chain", "a"))),
    "keyed": Shape((stateful("a", "Users"), stateful("b", "Chain", "a"))),
    "dice": Shape((stateful("a", "Dice"), stateful("b", "Dice", "a")), frozenset("ab")),
    "single": Shape((stateful("a", "Chain"),)),
    "between": Shape((stateful("a", "Chain"), stateless("t", "a"), stateful("b", "Users", "t"))),
    "before": Shape((stateless("t"), stateful("a", "Dice", "t")), frozenset("a")),
    "behind": Shape((stateful("a", "Chain"), stateless("t", "a"))),
    "four": Shape(
        (stateless("t"), stateful("a", "Users", "t"), stateful("b", "Chain", "a"), stateless("u", "b")),
    ),
    "join": Shape((stateful("a", "Chain"), stateful("c", "Users"), stateful("b", "Chain", "a", "c", join=meet()))),
    "partial": Shape(
        (
            stateful("a", "Chain"),
            stateful("c", "Chain", arguments={"fails": 7}),
            stateful("b", "Chain", "a", "c", join=meet(on_loss="partial")),
        ),
        refusing=frozenset("c"),
    ),
    "choice": Shape(
        (
            stateful("a", "Chain", choose=f"{MODELS}:by_parity"),
            stateful("b", "Chain", "a"),
            stateful("c", "Users", "a"),
        ),
        more={"sinks": "any"},
    ),
    "sinks": Shape(
        (stateful("a", "Chain"), stateful("b", "Chain", "a"), stateful("c", "Users", "a")), more={"sinks": "all"}
    ),
    "learner": Shape((stateful("a", "Users", publish=True),), front=stateless("rank", tables={"user": {"of": "a"}})),
    "shards": Shape((stateful("a", "Users", shards=2), stateful("b", "Chain", "a", shards=2))),
}

# The ways to replicate that HAMS is compared with promise the same of models without chance.
SHAPES |= {
    mode: Shape((stateful("a", "Chain", replication=mode), stateful("b", "Chain", "a", replication=mode)))
    for mode in ("remus", "s1", "s2", "lineage-stash", "kafka-eos")
}
