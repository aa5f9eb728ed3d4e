"""What comes to the gate, what leaves it, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lineage.message import PREDICTION, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.core.request import Delivery
    from lineage.message import OutcomeKind, StageTiming, Value


class Report(Protocol):
    """What the payload of a delivery to the gate has; the rest of it is the driver's."""

    @property
    def outcome(self) -> Outcome:
        """The report, decoded."""


@dataclass(slots=True)
class Release:
    """One query's outcome, to be written to the egress."""

    request_id: str
    partition: int
    outcome: Outcome
    source: Delivery  # the report that decided it: its headers go on, and its very value unless `own`
    own: bool  # the outcome is the gate's making (merged, or the gate's failure): encode it
    parts: tuple[Delivery, ...]
    offsets: tuple[int, ...]  # the input records that it settles
    latency: float = 0.0  # from the query's sending to its release, seconds
    good: bool = False  # a prediction within its deadline
    case: Any = None  # what waits for the versions that it rests on (`agents.core.speculation`)


@dataclass(slots=True)
class GateStats:
    """What a gate's core counted since it began."""

    received: int = 0
    duplicates: int = 0  # repetitions, and reports of queries that were decided before
    stray: int = 0
    dead: int = 0  # reports that rest on a state which no recovery reproduces, whenever that was found
    outcomes: dict[tuple[OutcomeKind, str], int] = field(default_factory=dict)  # by kind and reason
    good: int = 0
    late: int = 0  # predictions after their deadline

    def score(self, now: float, release: Release) -> None:
        source, outcome = release.source, release.outcome
        release.latency = now - source.sent
        key = (outcome.kind, outcome.reason)
        self.outcomes[key] = self.outcomes.get(key, 0) + 1
        if outcome.kind == PREDICTION:
            release.good = now <= source.deadline
            self.good += release.good
            self.late += not release.good


def merged(reports: Sequence[tuple[str, Outcome]]) -> Outcome:
    """Join the predictions of several sinks: each output is called `<sink>.<name>`, each flag likewise.

    Timings are those of all branches; a stage before the branches parted counts once. The order of the sinks' names
    decides the order of outputs, whatever came first.
    """
    outputs: dict[str, Value] = {}
    flags: dict[str, Value] = {}
    timings: list[StageTiming] = []
    seen: set[str] = set()
    for sink, outcome in sorted(reports, key=lambda report: report[0]):
        outputs |= {f"{sink}.{name}": value for name, value in outcome.outputs.items()}
        flags |= {f"{sink}.{name}": value for name, value in outcome.flags.items()}
        timings += [timing for timing in outcome.timings if timing.stage not in seen]
        seen.update(timing.stage for timing in outcome.timings)
    return Outcome(PREDICTION, outputs=outputs, timings=timings, flags=flags)
