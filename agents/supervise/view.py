"""What the processes of served pipelines do, gathered from this machine: for `spillway status`, and for the page."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.supervise.child import STANDBY
from spillway.agents.supervise.registry import Entry, ServeEntry, entries, with_learners
from spillway.agents.supervise.scrape import Figures, Snapshot, figures, recent, scrape
from spillway.agents.supervise.table import PlanRow, Row, StateRow, VariantRow, plan_rows, state_rows, variant_rows
from spillway.lineage.errors import UsageError
from spillway.lineage.message import DROPPED
from spillway.lineage.metric_names import PLACE, PLACE_FLAPPING, UNANSWERED_SECONDS
from spillway.producers.cluster import answers
from spillway.producers.connection import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ANSWER_SECONDS = 2.0  # that Kafka is given
_ASK_EVERY_SECONDS: Final = 5.0
_UNANSWERED_SECONDS = 3.0  # for which queries wait before it is said
_STALE_SECONDS: Final = 10.0  # after which a reading says nothing of the last moments
_MOST_RECENT: Final = 50
_GONE, _SILENT, _GATE = "gone", "not answering", "gate"
_Whose = tuple[str, str, int]
_AT_WORK: Final = frozenset({"stage", "member", _GATE})


class View:
    """The entries of a run directory, each with its last two readings."""

    def __init__(self, run_dir: Path, pipelines: Iterable[str] | None) -> None:
        """Of these pipelines and their learners; None: of all that are served from there."""
        self.found: list[Entry] = []
        self._run_dir = run_dir
        self._pipelines = None if pipelines is None else tuple(pipelines)
        self._now: dict[_Whose, Snapshot | None] = {}
        self._before: dict[_Whose, Snapshot | None] = {}
        self._known: dict[_Whose, Figures | None] = {}
        self._flapping: frozenset[tuple[str, str]] = frozenset()  # pipelines, and names of their places
        self._gone: dict[str, str] = {}  # by pipeline whose Kafka does not answer: what to say
        self._unanswered: dict[str, float] = {}  # by pipeline, seconds
        self._recent: dict[_Whose, list[dict[str, Any]]] = {}  # of gates
        self._asked = -math.inf  # when Kafka was

    def gather(self) -> dict[str, Any]:
        """Read everything, now and then ask Kafka, and tell. Rates are since the last call; by one caller at a time."""
        self.read()
        if time.monotonic() - self._asked >= _ASK_EVERY_SECONDS:
            self.ask_kafka()
            self._asked = time.monotonic()
        return self.as_json()

    @property
    def healthy(self) -> bool:
        """Whether Kafka and every process answer, none has stopped a partition, and none dies again and again."""
        return (
            not self._flapping
            and not self._gone
            and all(
                self._state(entry) not in {_GONE, _SILENT}
                and not ((now := self._now.get(_whose(entry))) and now.stopped)
                for entry in self.found
            )
        )

    def read(self) -> None:
        which: Iterable[str | None] = [None]
        if self._pipelines is not None:
            which = dict.fromkeys(each for name in self._pipelines for each in with_learners(self._run_dir, name))
        self.found = [entry for each in which for entry in entries(self._run_dir, each)]
        self._before = self._now
        self._now = {
            _whose(entry): scrape(entry, time.monotonic()) if entry.alive() and entry.role != STANDBY else None
            for entry in self.found
        }
        self._known = {_whose(entry): self._judge(entry) for entry in self.found}
        served = {name: self._served(name) for name in {entry.pipeline for entry in self.found}}
        told = {name: scrape(each, time.monotonic()) for name, each in served.items() if each is not None and each.port}
        self._flapping = frozenset(
            (name, place) for name, seen in told.items() if seen for place in seen.marked(PLACE_FLAPPING, PLACE)
        )
        self._unanswered = {name: seen.value(UNANSWERED_SECONDS) for name, seen in told.items() if seen}
        self._recent = {
            _whose(entry): recent(entry) for entry in self.found if entry.role == _GATE and self._now.get(_whose(entry))
        }

    def ask_kafka(self) -> None:
        pipelines = {entry.pipeline for entry in self.found}
        self._gone = {name: text for name in pipelines if (text := _silent_kafka(self._served(name)))}

    def troubles(self, pipeline: str) -> list[str]:
        """What to say of a pipeline as a whole."""
        said = [self._gone[pipeline]] if pipeline in self._gone else []
        waited = self._unanswered.get(pipeline, 0.0)
        if waited >= _UNANSWERED_SECONDS:
            said.append(f"nothing was answered for {waited:.0f} s while queries wait")
        return said

    def rows(self) -> dict[str, list[Row]]:
        made: dict[str, list[Row]] = {}
        for entry in self.found:
            flaps = (entry.pipeline, entry.name) in self._flapping
            state = self._state(entry) + (", flaps" if flaps else "")
            made.setdefault(entry.pipeline, []).append(Row(entry.name, state, self._figures(entry)))
        return made

    def flapping(self, pipeline: str) -> list[str]:
        return sorted(place for name, place in self._flapping if name == pipeline)

    def plan(self, pipeline: str) -> list[PlanRow]:
        of = (self._now.get(_whose(entry)) for entry in self.found if entry.pipeline == pipeline)
        return plan_rows(snapshot for snapshot in of if snapshot is not None)

    def states(self, pipeline: str) -> list[StateRow]:
        of = ((entry.name, self._now.get(_whose(entry))) for entry in self.found if entry.pipeline == pipeline)
        return state_rows((name, snapshot) for name, snapshot in of if snapshot is not None)

    def variants(self, pipeline: str) -> list[VariantRow]:
        of = ((entry.stage, self._now.get(_whose(entry))) for entry in self.found if entry.pipeline == pipeline)
        return variant_rows((stage, snapshot) for stage, snapshot in of if snapshot is not None)

    def period(self, pipeline: str) -> float | None:
        """Seconds between two words of a replica, as the pipeline is served; None where nobody says."""
        served = self._served(pipeline)
        return None if served is None else served.plan_period

    def policies(self, pipeline: str) -> str:
        """What the stages of a pipeline run with, in words; empty where nobody says."""
        served = self._served(pipeline)
        return "" if served is None else served.policies

    def as_json(self) -> dict[str, Any]:
        """Return all of it. A number that is not known is None."""
        names = dict.fromkeys(entry.pipeline for entry in self.found)
        return {"pipelines": {name: finite(self._pipeline(name)) for name in names}}

    def _pipeline(self, name: str) -> dict[str, Any]:
        served = self._served(name)
        mine = [entry for entry in self.found if entry.pipeline == name]
        gates = [known for entry in mine if entry.role == _GATE and (known := self._figures(entry)) is not None]
        recent = [each for entry in mine for each in self._recent.get(_whose(entry), ())]
        learners = with_learners(self._run_dir, name)[1:]
        return {
            "bootstrap": None if served is None else served.bootstrap,
            "policies": None if served is None else served.policies,
            "plan_period": None if served is None else served.plan_period,
            "processes": {entry.name: self._process(entry) for entry in mine},
            "flapping": self.flapping(name),
            "kafka": self._gone.get(name),
            "unanswered_seconds": self._unanswered.get(name),
            "states": {row.name: asdict(row) for row in self.states(name)},
            "variants": [asdict(row) for row in self.variants(name)],
            "plan": {f"{row.stage}.{row.replica}": asdict(row) for row in self.plan(name)},
            "unseen": self.unseen(name),
            "learners": learners,
            "stages": self._stages(mine),
            "outcomes": counted(gates),
            "goodput": total(known.goodput for known in gates),
            "latency": mean((known.latency, known.rate) for known in gates),
            "latency_p99": max((known.latency_p99 for known in gates), default=math.nan),
            "recent": sorted(recent, key=lambda each: -each["at"])[:_MOST_RECENT],
        }

    def _process(self, entry: Entry) -> dict[str, Any]:
        known = self._figures(entry)
        return {
            "stage": entry.stage,
            "replica": entry.replica,
            "pid": entry.pid,
            "port": entry.port,
            "metrics": f"http://{entry.host}:{entry.port}/metrics" if entry.port else None,
            "state": self._state(entry),
            "figures": asdict(known) if known is not None else None,
        }

    def _stages(self, mine: Sequence[Entry]) -> dict[str, dict[str, Any]]:
        """What each stage does, and the gate, over all their processes on this machine."""
        by: dict[str, list[Figures]] = {}
        for entry in mine:
            if entry.role in _AT_WORK and (known := self._figures(entry)) is not None:
                by.setdefault(entry.stage, []).append(known)
        return {stage: together(known) for stage, known in by.items()}

    def unseen(self, pipeline: str) -> list[str]:
        """The replicas whose status others have and that have no process here: those of other machines, or gone."""
        here = {(entry.stage, entry.replica) for entry in self.found if entry.pipeline == pipeline}
        there = (row for row in self.plan(pipeline) if (row.stage, row.replica) not in here)
        return [f"{row.stage}.{row.replica}" for row in there]

    def _served(self, pipeline: str) -> ServeEntry | None:
        return ServeEntry.running(self._run_dir, pipeline)

    def _state(self, entry: Entry) -> str:
        if not entry.alive():
            return _GONE
        if entry.role == STANDBY:  # it counts nothing yet
            return STANDBY if entry.ready else "starting"
        if self._now.get(_whose(entry)) is None:
            return _SILENT
        return "running" if entry.ready else "starting"

    def _figures(self, entry: Entry) -> Figures | None:
        return self._known.get(_whose(entry))

    def _judge(self, entry: Entry) -> Figures | None:
        now, before = self._now.get(_whose(entry)), self._before.get(_whose(entry))
        if now is None:
            return None
        return figures(entry, now, before if before is not None and now.at - before.at < _STALE_SECONDS else None)


def _whose(entry: Entry) -> _Whose:
    """Return what identifies a process, whoever had its name before; a gateway has several names."""
    return entry.pipeline, entry.name, entry.pid


def together(known: Sequence[Figures]) -> dict[str, Any]:
    """Sum up the processes of one stage. Means are weighted by rates; orders are those of any of its processes."""
    versions: Counter[str] = Counter()
    for each in known:
        versions.update(each.versions)
    return {
        "processes": len(known),
        "rate": total(each.rate for each in known),
        "queue": sum(each.queue for each in known),
        "queue_limit": sum(each.queue_limit for each in known),
        "batch": mean((each.batch, each.rate) for each in known),
        "latency": mean((each.latency, each.rate) for each in known),
        "drops": total(each.drops for each in known),
        "dropped": sum(each.count(DROPPED) for each in known),
        "workers": sum(each.workers for each in known),
        "wanted": sum(each.wanted for each in known),
        "orders": sorted({order for each in known for order in (each.order, each.ensemble) if order}),
        "versions": {version: count for version, count in sorted(versions.items()) if count},
    }


def counted(known: Iterable[Figures]) -> dict[str, dict[str, int]]:
    """Sum up outcomes by kind and reason."""
    sums: dict[str, Counter[str]] = {}
    for each in known:
        for kind, reasons in each.outcomes.items():
            sums.setdefault(kind, Counter()).update(reasons)
    return {kind: dict(reasons) for kind, reasons in sums.items()}


def total(values: Iterable[float]) -> float:
    """Sum up what is known; NaN where nothing is."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) if known else math.nan


def mean(pairs: Iterable[tuple[float, float]]) -> float:
    """Average the values that are known, by their weights; NaN where nothing is."""
    known = [(value, weight) for value, weight in pairs if value == value and weight > 0]  # noqa: PLR0124 - NaN
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else math.nan


def finite(value: Any) -> Any:
    """Put None in place of what JSON has no number for."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _silent_kafka(served: ServeEntry | None) -> str:
    """Return a line if the Kafka of a served pipeline does not answer; empty where it does, or is not known."""
    if served is None:
        return ""
    file = None if served.client_config is None else Path(served.client_config)
    try:
        settings = ClientSettings.load(served.bootstrap, file)
    except UsageError as error:
        return f"cannot ask Kafka: {error}"
    where = f"Kafka at {served.bootstrap} does not answer: no query can come in or be answered"
    return "" if answers(settings, _ANSWER_SECONDS) else where
