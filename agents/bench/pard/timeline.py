"""The course of one run: losses, latency, mu, the switches of the order, single requests (PARD, Figs. 10 and 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from agents.bench.pard.applications import application, throughput
from agents.bench.pard.cases import Case, good_of, set_up, simulated
from agents.bench.pard.output import MISSING, Table
from agents.bench.pard.sections import ALL, Result, Setting
from agents.sim.observe import Observer
from agents.sim.ways import way_of
from producers.report import DROPPED, PREDICTION

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agents.bench.pard.cases import Setup
    from agents.sim.result import SimulationResult

APP, TRACE = "lv", "tweet-like"
SWITCHING = ("pard", "instant", "spillway")
_LATENCY_POINTS = 200


def measure(setting: Setting) -> Result:
    """Observe lv on the tweet-like trace under every policy; keep two requests of pard's run."""
    names = dict.fromkeys((*setting.policies(), *setting.policies(SWITCHING)))
    return {
        "slo": application(APP).spec.slo,
        "runs": {name: _run(Case(APP, TRACE, name, seconds=setting.seconds)) for name in names},
    }


def _run(case: Case) -> dict[str, Any]:
    setup, observer = set_up(case), Observer()
    result = simulated(case, setup, observer)
    good = good_of(result)
    second = result.due.astype(np.int64)
    answered = np.sort((result.finished - result.due)[result.kind == PREDICTION])
    picks = np.linspace(0, len(answered) - 1, min(_LATENCY_POINTS, len(answered))).astype(np.int64)
    return {
        "requests": np.bincount(second, minlength=case.seconds).tolist(),
        "good": np.bincount(second[good], minlength=case.seconds).tolist(),
        "latency": [round(float(each), 6) for each in answered[picks]],
        "answered": len(answered) / len(second),
        "capacity": setup.capacity,
        "pressure": _pressure(observer, setup),
        "ways": {what: _way(observer, index) for what, index in _picked(result, good).items()},
    }


def _pressure(observer: Observer, setup: Setup) -> dict[str, dict[str, list[float]]]:
    """By stage, at each synchronisation: mu = T_in / T_m, and the share of replicas that serve high budgets first."""
    spec = application(APP).spec
    each = throughput(spec, setup.batches)
    capacity = {stage.name: n * each[stage.name] for stage, n in zip(spec.stages, setup.workers, strict=True)}
    found: dict[str, dict[str, list[float]]] = {}
    for tick in observer.ticks:
        course = found.setdefault(tick.stage, {"at": [], "mu": [], "hbf": []})
        course["at"].append(round(tick.at, 3))
        course["mu"].append(round(tick.arrival_rate / capacity[tick.stage], 4))
        course["hbf"].append(tick.hbf)
    return found


def _picked(result: SimulationResult, good: NDArray[np.bool_]) -> dict[str, int]:
    """A good request of median latency, the slowest good one, and a dropped one of the busiest second."""
    picked: dict[str, int] = {}
    latency = result.finished - result.due
    answered = np.flatnonzero(good)
    if len(answered):
        ordered = answered[np.argsort(latency[answered])]
        picked |= {"median": int(ordered[len(ordered) // 2]), "slowest in time": int(ordered[-1])}
    lost = np.flatnonzero(result.kind == DROPPED)
    if len(lost):
        seconds = np.bincount(result.due[lost].astype(np.int64))
        busiest = lost[result.due[lost].astype(np.int64) == seconds.argmax()]
        picked["dropped"] = int(busiest[len(busiest) // 2])
    return picked


def _way(observer: Observer, index: int) -> list[list[Any]]:
    return [[step.stage, *(round(at, 6) for at in step[1:5]), step.dropped] for step in way_of(observer, index)]


def switches(course: dict[str, list[float]]) -> int:
    """How often the order changed in one stage: the replicas of a stage change together."""
    high = np.array(course["hbf"]) > 0.5  # noqa: PLR2004
    return int((high[1:] != high[:-1]).sum())


def tables(result: Result) -> list[Table]:
    rows = []
    for name in SWITCHING:
        run = result["runs"].get(name)
        if run is None:
            rows.append((name, MISSING, "", "", ""))
            continue
        for stage, course in run["pressure"].items():
            mu = course["mu"]
            high = 100 * sum(course["hbf"]) / len(mu)
            rows.append((name, stage, f"{np.mean(mu):.2f}, {max(mu):.2f}", f"{high:.0f} %", str(switches(course))))
    found = [Table("lv, tweet-like: mu and the order", ("policy", "stage", "mu: mean, most", "HBF", "switches"), rows)]
    for policy in ("pard", "spillway"):
        if policy in result["runs"]:
            found += [_way_table(policy, what, way) for what, way in result["runs"][policy]["ways"].items()]
    latencies: list[tuple[str, ...]] = []
    for name in ALL:
        run = result["runs"].get(name)
        if run is None:
            latencies.append((name, MISSING, "", ""))
            continue
        quantiles = [f"{1000 * float(np.quantile(run['latency'], q)):.0f}" for q in (0.5, 0.9, 0.99)]
        latencies.append((name, *quantiles))
    found.append(Table("lv, tweet-like: latency of what was answered, ms", ("policy", "p50", "p90", "p99"), latencies))
    return found


def _way_table(policy: str, what: str, way: list[list[Any]]) -> Table:
    rows = []
    for stage, arrived, entered, started, ended, dropped in way:
        parts = [entered - arrived, started - entered, ended - started]
        cells = [f"{1000 * part:.1f}" for part in parts]
        rows.append((stage, f"{1000 * (arrived - way[0][1]):.1f}", *cells, "dropped" if dropped else ""))
    return Table(f"{policy}: a request ({what}), ms", ("stage", "came at", "queue", "wait", "run", ""), rows)
