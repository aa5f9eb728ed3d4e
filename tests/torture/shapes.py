"""The pipelines that faults are done to: two or three small stages, most of which keep a state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MODELS = "tests.torture.models"


@dataclass(frozen=True)
class Shape:
    """A pipeline: stages as the file has them, and which of their models have chance in them."""

    stages: tuple[dict[str, Any], ...]
    random: frozenset[str] = frozenset()


def stateful(name: str, model: str, *after: str, **more: Any) -> dict[str, Any]:
    """One stateful stage."""
    kind = "keyed" if model == "Users" else "shared"
    return {"name": name, "model": f"{MODELS}:{model}", "after": list(after), "state": kind, "batch": 8, **more}


def stateless(name: str, *after: str, **more: Any) -> dict[str, Any]:
    """One stateless stage."""
    return {"name": name, "model": f"{MODELS}:Through", "after": list(after), "batch": 8, **more}


SHAPES = {
    "pair": Shape((stateful("a", "Chain"), stateful("b", "Chain", "a"))),
    "keyed": Shape((stateful("a", "Users"), stateful("b", "Chain", "a"))),
    "dice": Shape((stateful("a", "Dice"), stateful("b", "Dice", "a")), frozenset("ab")),
    "single": Shape((stateful("a", "Chain"),)),
    "between": Shape((stateful("a", "Chain"), stateless("t", "a"), stateful("b", "Users", "t"))),
    "before": Shape((stateless("t"), stateful("a", "Dice", "t")), frozenset("a")),
}

# The ways to replicate that HAMS is compared with promise the same of models without chance.
SHAPES |= {
    mode: Shape((stateful("a", "Chain", replication=mode), stateful("b", "Chain", "a", replication=mode)))
    for mode in ("remus", "s1", "s2", "lineage-stash", "kafka-eos")
}
