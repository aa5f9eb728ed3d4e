"""What happens inside: drops per stage, batch waits and consumed budgets (PARD, Figs. 2c, 6, 11b and 12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from agents.bench.pard import paper
from agents.bench.pard.applications import application
from agents.bench.pard.cases import Case, good_of, set_up, simulated
from agents.bench.pard.output import MISSING, Table
from agents.bench.pard.sections import ALL, Result, Setting
from agents.sim.observe import Observer
from agents.sim.ways import visits_of, whole_waits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.spec import PipelineSpec

APP = "lv"
BINS = 60


def measure(setting: Setting) -> Result:
    """Observe lv on the tweet-like trace under every policy, and under pard on the wiki-like one for the waits."""
    seen = {name: _observe(Case(APP, "tweet-like", name, seconds=setting.seconds)) for name in setting.policies()}
    waits = _waits(Case(APP, "wiki-like", "pard", seconds=setting.seconds))
    return {"stages": [stage.name for stage in application(APP).spec.stages], "policies": seen, "waits": waits}


def _observe(case: Case) -> dict[str, Any]:
    setup, observer = set_up(case), Observer()
    result = simulated(case, setup, observer)
    good = good_of(result)
    spans = {}
    for name, log in observer.stages.items():
        visits = visits_of(log)
        kept = good[visits.index]
        spans[name] = _consumed(visits.arrived[kept], visits.consumed[kept], case.seconds) | {
            "queue": _quantiles(visits.queued[kept]),
            "wait": _quantiles(visits.waited[kept]),
            "run": _quantiles(visits.executed[kept]),
        }
    return {
        "drops": {name: len(log.drops) for name, log in observer.stages.items()},
        "late": int(((result.kind == 1) & ~good).sum()),
        "consumed": spans,
    }


def _quantiles(values: NDArray[np.float64]) -> list[float]:
    return [round(float(each), 6) for each in np.quantile(values, (0.05, 0.5, 0.95))] if len(values) else [0.0] * 3


def _consumed(at: NDArray[np.float64], consumed: NDArray[np.float64], seconds: int) -> dict[str, Any]:
    """The mean budget consumed in each second; 0 where no good request came to the stage in it."""
    second = np.minimum(at.astype(np.int64), seconds)
    counts = np.bincount(second, minlength=seconds + 1)[:seconds]
    sums = np.bincount(second, consumed, minlength=seconds + 1)[:seconds]
    means = np.divide(sums, counts, out=np.zeros(seconds), where=counts > 0)
    return {"all": _quantiles(consumed), "seconds": [round(float(mean), 5) for mean in means]}


def _waits(case: Case) -> dict[str, Any]:
    """Densities of the summed batch waits from each stage on, and their .1 quantile in parts of the sum of d."""
    setup, observer = set_up(case), Observer()
    simulated(case, setup, observer)
    durations = planned(application(case.app).spec)
    left = np.cumsum(list(durations.values())[::-1])[::-1]
    found = {}
    for (name, sums), total in zip(whole_waits(observer, len(setup.arrivals)).items(), left, strict=True):
        share = sums / total
        density, edges = np.histogram(share, bins=BINS, range=(0.0, 1.0), density=True)
        found[name] = {
            "density": [round(float(each), 4) for each in density],
            "at": [round(float(each), 4) for each in (edges[:-1] + edges[1:]) / 2],
            "tenth": round(float(np.quantile(share, 0.1)), 4),
            "mean": round(float(share.mean()), 4),
        }
    return found


def planned(spec: PipelineSpec) -> dict[str, float]:
    return {stage.name: stage.emulated.duration(stage.batch_size) for stage in spec.stages if stage.emulated}


def tables(result: Result) -> list[Table]:
    names: list[str] = result["stages"]
    return [_drops(result, names), _wait_table(result, names), _budgets(result, names)]


def _drops(result: Result, names: list[str]) -> Table:
    rows = []
    for policy in ALL:
        each = result["policies"].get(policy)
        if each is None:
            rows.append((policy, *[MISSING] * (len(names) + 2)))
            continue
        counts = [each["drops"][name] for name in names]
        total = sum(counts) + each["late"]
        shares = [f"{100 * count / total:.1f}" if total else "-" for count in (*counts, each["late"])]
        rows.append((policy, *shares, f"{100 * sum(counts[:2]) / total:.0f} %" if total else "-"))
    note = (
        f"Paper: {100 * paper.FIRST_TWO:.0f} % of PARD's drops are in the first two modules; of the reactive policies' "
        "57 to 97 % in the latter half."
    )
    columns = ("policy", *names, "late", "first two")
    return Table("lv, tweet-like: where requests are lost, in % of all that are", columns, rows, (note,))


def _wait_table(result: Result, names: list[str]) -> Table:
    waits = result["waits"]
    rows = [(f"from {name} on", f"{waits[name]['tenth']:.2f}", f"{waits[name]['mean']:.2f}") for name in names]
    note = (
        "In parts of the sum of d over the same stages. The paper, four modules of equal d with full batches: .31, "
        ".28, .22 and .10 at lambda = .1, and means of .5. Ours are lower: idle workers let nothing wait."
    )
    return Table("lv, wiki-like, pard: summed batch waits", ("", "quantile .1", "mean"), rows, (note,))


def _budgets(result: Result, names: list[str]) -> Table:
    rows = []
    for policy in ALL:
        each = result["policies"].get(policy)
        if each is None:
            rows.append((policy, *[MISSING] * len(names)))
            continue
        cells = []
        for name in names:
            low, middle, high = (1000 * value for value in each["consumed"][name]["all"])
            cells.append(f"{middle:.0f} ({low:.0f} to {high:.0f})")
        rows.append((policy, *cells))
    title = "lv, tweet-like: budget that good requests consume in each stage, ms: median (5 % to 95 %)"
    return Table(title, ("policy", *names), rows)
