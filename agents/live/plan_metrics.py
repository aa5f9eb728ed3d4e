"""What a stage process knows of all replicas' states, for its metrics."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from agents.core.board import Board, Heard
    from agents.core.policy import StageFacts

QUEUEING, BATCH, RECENT_BATCH = "queueing", "batch", "recent-batch"
PROFILE, DURATION, LOAD, HBF, AGE = "profile", "duration", "load", "hbf", "age"
ARRIVALS, COMPLETIONS, DROPS, BACKLOG, TRANSFER = "arrivals", "completions", "drops", "backlog", "transfer"
TOLD: Final = (
    *(QUEUEING, BATCH, RECENT_BATCH, PROFILE, DURATION, LOAD, HBF, AGE),
    *(ARRIVALS, COMPLETIONS, DROPS, BACKLOG, TRANSFER),
)

_REPLICA = (names.OF_STAGE, names.OF_REPLICA)


def plan_families(labels: Sequence[str], board: Board, facts: Mapping[str, StageFacts], now: float) -> Iterator[Metric]:
    """Give the metric families of a board; `labels` are the values of `names.LABELS`."""
    words = GaugeMetricFamily(
        names.PLAN_WORD, "What a replica last said of itself", labels=(*names.LABELS, *_REPLICA, names.WHAT)
    )
    silent = GaugeMetricFamily(
        names.PLAN_SILENT, "Whether a replica's word has aged out", labels=(*names.LABELS, *_REPLICA)
    )
    heard = board.heard(now)
    loads = _loads(heard, facts)
    for one in heard:
        whose = (*labels, one.state.stage, str(one.state.replica))
        silent.add_metric(whose, float(one.silent))
        for what, value in _told(one, facts, loads).items():
            words.add_metric((*whose, what), value)
    yield words
    yield silent
    yield _counter(names.PLAN_WORDS_TOTAL, "Words of replicas that were taken", labels, board.words)
    refused = CounterMetricFamily(
        names.PLAN_REFUSED_TOTAL.removesuffix("_total"),
        "Words of replicas that were refused",
        labels=(*names.LABELS, names.REASON),
    )
    for reason, count in sorted(board.refused.copy().items()):
        refused.add_metric((*labels, reason), count)
    yield refused


def _counter(name: str, text: str, labels: Sequence[str], value: float) -> Metric:
    family = CounterMetricFamily(name.removesuffix("_total"), text, labels=names.LABELS)
    family.add_metric(labels, value)
    return family


def _told(one: Heard, facts: Mapping[str, StageFacts], loads: Mapping[str, float]) -> dict[str, float]:
    state = one.state
    planned = facts.get(state.stage)
    return {
        QUEUEING: state.queueing,
        BATCH: state.batch,
        RECENT_BATCH: state.recent_batch,
        PROFILE: planned.duration(planned.batch) if planned is not None else 0.0,
        DURATION: state.duration,
        LOAD: loads.get(state.stage, 0.0),
        HBF: float(state.hbf),
        AGE: one.age,
        ARRIVALS: state.arrival_rate,
        COMPLETIONS: state.completion_rate,
        DROPS: state.drop_rate,
        BACKLOG: state.backlog,
        TRANSFER: median(state.hops) if state.hops else 0.0,
    }


def _loads(heard: Sequence[Heard], facts: Mapping[str, StageFacts]) -> dict[str, float]:
    """By stage, mu of the last period: what arrived at its replicas by what its workers can take (T_in / T_m)."""
    arrivals: defaultdict[str, float] = defaultdict(float)
    durations: dict[str, float] = {}
    for one in heard:
        if not one.silent:
            arrivals[one.state.stage] += one.state.arrival_rate
            durations[one.state.stage] = max(one.state.duration, durations.get(one.state.stage, 0.0))
    loads = {}
    for stage, rate in arrivals.items():
        planned = facts.get(stage)
        if planned is not None:
            seconds = durations[stage] or planned.duration(planned.batch)
            loads[stage] = rate * seconds / (planned.workers * planned.batch)
    return loads
