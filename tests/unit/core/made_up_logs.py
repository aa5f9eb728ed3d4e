"""A predecessor's messages, made up: with the repetitions that its restarts cause."""

from dataclasses import dataclass, replace
from typing import Any

from agents.core.request import Delivery
from lineage.hops import Hop

NOW = 1_000.0


@dataclass(frozen=True)
class Record:
    request_id: str
    hop: Hop
    body: Any

    def delivery(self, offset):
        return Delivery(self.request_id, 0, offset, NOW, NOW + 1e6, self.hop.stage, self.hop, {}, (), NOW, self.body)


def messages(random, stage, requests):
    """It repeats what it had not committed."""
    made = []
    committed = 0
    for number in range(requests):
        if random.random() < 0.3:
            committed = number
        made.append(Record(f"q{number}", Hop(stage, 1, 0, number, committed), f"{stage}.{number}"))
        if random.random() < 0.2:
            made += [replace(r, hop=replace(r.hop, committed=committed)) for r in made if r.hop.sequence >= committed]
    return made
