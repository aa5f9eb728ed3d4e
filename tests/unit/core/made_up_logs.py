"""A predecessor's messages, made up: with the repetitions that its restarts cause."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agents.core.request import Delivery
from lineage.hops import Hop

if TYPE_CHECKING:
    from random import Random

NOW = 1_000.0


@dataclass(frozen=True)
class Record:
    request_id: str
    hop: Hop
    body: Any

    def delivery(self, offset: int) -> Delivery:
        return Delivery(self.request_id, 0, offset, NOW, NOW + 1e6, self.hop.stage, self.hop, {}, (), NOW, self.body)


def messages(random: Random, stage: str, requests: int) -> list[Record]:
    """It repeats what it had not committed."""
    made: list[Record] = []
    committed = 0
    for number in range(requests):
        if random.random() < 0.3:
            committed = number
        made.append(Record(f"q{number}", Hop(stage, 1, 0, number, committed), f"{stage}.{number}"))
        if random.random() < 0.2:
            made += [replace(r, hop=replace(r.hop, committed=committed)) for r in made if r.hop.sequence >= committed]
    return made
