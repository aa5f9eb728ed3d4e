"""What every hop took in a live run, read off the timestamps of its topics afterwards.

A stage's hop, of one query: from its last part's message (a root: from when the query was due) to the message that the
stage made of it, less what the query spent there queued, waiting and executing, and its instance's hand-overs. So it
holds the way through Kafka into the stage. The gate's hop: from the last message to it to the sender's hearing of the
outcome. What is not known of a query, which was dropped before, is taken from the query nearest to it in time.

Timestamps are whole milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.agents.live.admin import Admin
from spillway.agents.live.spans import bounds, read_spans
from spillway.agents.whatif.traffic import filled
from spillway.lineage import headers
from spillway.lineage.errors import BrokerError
from spillway.lineage.message import PREDICTION
from spillway.lineage.metric_names import GATE
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from spillway.lineage.message import Outcome
    from spillway.producers.connection import ClientSettings
    from spillway.producers.load.tally import LoadResult
    from spillway.topology.load import Pipeline

_READ_SECONDS = 60.0


@dataclass(slots=True)
class Way:
    """When the messages of one query were said, in unix seconds."""

    sent: float  # was due to be
    to_stages: dict[str, float] = field(default_factory=dict)  # by stage, the last message to it
    to_gate: float = 0.0  # likewise
    said: dict[str, float] = field(default_factory=dict)  # by the stage that said it


def read_ways(settings: ClientSettings, pipeline: Pipeline) -> list[Way]:
    """Read the topics of a pipeline that has come to rest; the ways in the order in which queries were due."""
    ways: dict[str, Way] = {}
    spec = pipeline.spec

    def way(head: headers.Headers) -> Way:
        return ways.setdefault(head.request_id, Way(head.sent_us / 1e6))

    for head, _ in records(settings, topics.ingress(spec.name), spec.partitions):
        way(head)
    for stage in pipeline.graph.order:
        if not pipeline.graph.predecessors[stage]:
            continue
        for head, at in records(settings, topics.stage_input(spec.name, stage), spec.partitions):
            _note(way(head), head, at)
            way(head).to_stages[stage] = max(at, way(head).to_stages.get(stage, 0.0))
    for head, at in records(settings, topics.outcomes(spec.name), spec.partitions):
        _note(way(head), head, at)
        way(head).to_gate = max(at, way(head).to_gate)
    return sorted(ways.values(), key=lambda each: each.sent)


def measured_hops(
    ways: list[Way],
    outcomes: Mapping[int, Outcome],
    result: LoadResult,
    pipeline: Pipeline,
    overheads: Mapping[str, float],
) -> dict[str, NDArray[np.float64]]:
    """Give seconds by stage, and of the gate, one for each query.

    `outcomes` by the query's number; `overheads` by stage, what a batch takes beyond its model, seconds. It is no part
    of the hop: it takes the instance up.
    """
    if len(ways) != len(result.due):
        raise BrokerError(f"{pipeline.spec.name}: {len(ways)} queries in the ingress, and {len(result.due)} were sent")
    hops = {place: np.full(len(ways), np.nan) for place in (*pipeline.graph.order, GATE)}
    for number, way in enumerate(ways):
        outcome = outcomes.get(number)
        if outcome is None:
            continue
        for timing in outcome.timings:
            if timing.batch and timing.stage in way.said:  # it ran there
                begun = way.to_stages.get(timing.stage, way.sent)
                spent = timing.queued + timing.waited + timing.executed + overheads[timing.stage]
                hops[timing.stage][number] = max(0.0, way.said[timing.stage] - begun - spent)
        if outcome.kind == PREDICTION and way.to_gate:
            heard = way.sent + result.finished[number] - result.due[number]
            hops[GATE][number] = max(0.0, heard - way.to_gate)
    known = {place: filled(result.due, values) for place, values in hops.items()}
    return {place: np.zeros(len(ways)) if values is None else values for place, values in known.items()}


def _note(way: Way, head: headers.Headers, at: float) -> None:
    if head.hop is not None and not head.lost:
        way.said[head.hop.stage] = at


def messages(settings: ClientSettings, topic: str, partitions: int) -> Iterator[Any]:
    """Yield all that a topic has."""
    options: dict[str, Any] = settings.confluent()
    spans = bounds(Admin(options), topic, range(partitions), _READ_SECONDS)
    yield from read_spans(options, topic, spans, _READ_SECONDS)


def records(settings: ClientSettings, topic: str, partitions: int) -> Iterator[tuple[headers.Headers, float]]:
    """Yield the headers of what a topic has, and when it was said, in unix seconds."""
    for message in messages(settings, topic, partitions):
        yield headers.decode(message.headers()), message.timestamp()[1] / 1000
