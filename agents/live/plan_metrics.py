"""What a stage process knows of all replicas' states, for its metrics."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from agents.core.board import Board, Heard
    from agents.core.policy import StageFacts
    from agents.live.families import Families

QUEUEING, BATCH, RECENT_BATCH = "queueing", "batch", "recent-batch"
PROFILE, DURATION, LOAD, HBF, AGE = "profile", "duration", "load", "hbf", "age"
ARRIVALS, COMPLETIONS, DROPS, BACKLOG, TRANSFER = "arrivals", "completions", "drops", "backlog", "transfer"

_REPLICA = (names.OF_STAGE, names.OF_REPLICA)


def plan_families(make: Families, board: Board, facts: Mapping[str, StageFacts], now: float) -> Iterator[Metric]:
    """Give the metric families of a board."""
    heard = board.heard(now)
    loads = _loads(heard, facts)
    words: dict[tuple[str, ...], float] = {}
    silent: dict[tuple[str, ...], float] = {}
    for one in heard:
        whose = (one.state.stage, str(one.state.replica))
        silent[whose] = float(one.silent)
        words.update({(*whose, what): value for what, value in _told(one, facts, loads).items()})
    yield make.gauges(names.PLAN_WORD, "What a replica last said of itself", (*_REPLICA, names.WHAT), words)
    yield make.gauges(names.PLAN_SILENT, "Whether a replica's word has aged out", _REPLICA, silent)
    yield make.counter(names.PLAN_WORDS_TOTAL, "Words of replicas that were taken", board.words)
    refused: dict[tuple[str, ...], float] = {(reason,): count for reason, count in board.refused.copy().items()}
    yield make.counters(names.PLAN_REFUSED_TOTAL, "Words of replicas that were refused", (names.REASON,), refused)


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
