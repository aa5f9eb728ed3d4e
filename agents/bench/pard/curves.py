"""What changes along one quantity: the SLO, the load, and PARD's own parameters (PARD, section 5.4, Fig. 14)."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from agents.bench.pard import paper
from agents.bench.pard.cases import STEADY, Case
from agents.bench.pard.output import MISSING, Table, percent, ratio, spread, times
from agents.bench.pard.sections import ALL, OURS, Result, Setting, over_seeds
from producers.load.shapes import RATE, SHAPES

SLOS = (0.2, 0.3, 0.4, 0.5, 0.6)
LOADS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
STRESS_SECONDS = 60
QUANTILES = (0.0, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75, 0.9, 1.0)
WINDOWS = (1, 2, 3, 5, 7, 10)
PERIODS = (0.1, 0.5, 1.0, 2.0, 5.0)
SEEDS = 2  # of the sensitivities, which are many runs
CVS = (0.25, 0.5, 1.0, 1.5, 2.0)


# Tight SLOs ---------------------------------------------------------------------------------------------------------


def measure_slo(setting: Setting) -> Result:
    """Run lv under SLOs from 200 to 600 ms; batches are planned anew for each, and with them the workers."""
    cases = {
        f"{slo:g} {policy}": Case("lv", "tweet-like", policy, seconds=setting.seconds, slo=slo, replan=True)
        for slo in setting.some(SLOS)
        for policy in setting.policies()
    }
    found = over_seeds(setting, cases)
    return {
        "slos": [f"{slo:g}" for slo in setting.some(SLOS)],
        "drop": {key: [each.drop for each in figures] for key, figures in found.items()},
        "workers": {key: figures[0].workers for key, figures in found.items()},
    }


def slo_tables(result: Result) -> list[Table]:
    rows = []
    for slo in result["slos"]:
        drops = {each: result["drop"].get(f"{slo} {each}") for each in ALL}
        own = statistics.fmean(drops["pard"] or [0.0])
        others = [ratio(statistics.fmean(drops[each] or [0.0]), own) for each in ("nexus", "clipper++")]
        row = [f"{1000 * float(slo):.0f} ms", *(spread(figures or []) for figures in drops.values())]
        rows.append((*row, ", ".join(times(each) for each in others)))
    note = (
        f"Paper: PARD drops {percent(paper.SLO_DROP.low)} to {percent(paper.SLO_DROP.high)} %, the baselines "
        f"{paper.SLO_RATIO} times as much."
    )
    columns = ("SLO", *ALL, "nexus, clipper++ over pard")
    return [
        Table("lv, tweet-like: drop rate in % under other SLOs, batches planned anew for each", columns, rows, (note,))
    ]


# Stress ------------------------------------------------------------------------------------------------------------


def measure_stress(setting: Setting) -> Result:
    seconds = 8 if setting.quick else STRESS_SECONDS
    cases = {
        (load, policy): Case("lv", STEADY, policy, seconds=seconds, load=load)
        for load in setting.some(LOADS, 3)
        for policy in setting.policies()
    }
    found = over_seeds(setting, cases)
    curves: dict[str, list[dict[str, Any]]] = {}
    for (load, policy), figures in found.items():
        rates = [each.requests / seconds for each in figures]
        best = [min(rate, each.capacity) for rate, each in zip(rates, figures, strict=True)]
        point = {
            "load": load,
            "goodput": [each.goodput for each in figures],
            "optimum": statistics.fmean(best),
            "gap": statistics.fmean(b - each.goodput for b, each in zip(best, figures, strict=True)),
        }
        curves.setdefault(policy, []).append(point)
    return {"seconds": seconds, "curves": curves}


def stress_tables(result: Result) -> list[Table]:
    curves: dict[str, list[dict[str, Any]]] = result["curves"]
    rows = []
    for index, point in enumerate(curves["pard"]):
        row = [f"{point['load']:g}x", f"{point['optimum']:.0f}"]
        for policy in ALL:
            here = curves[policy][index] if policy in curves else None
            row.append(f"{statistics.fmean(here['goodput']):.0f} (gap {here['gap']:.0f})" if here else MISSING)
        rows.append(row)
    notes = [_stress_note(curves, own) for own in OURS if own in curves]
    title = f"lv, steady arrivals of {result['seconds']} s: goodput per second, and the gap to the optimum"
    return [Table(title, ("load", "optimum", *ALL), rows, tuple(notes))]


def _stress_note(curves: dict[str, list[dict[str, Any]]], own: str) -> str:
    gains, gaps = [], []
    for index, point in enumerate(curves[own]):
        if point["load"] <= 1:
            continue
        for other in ("naive", "nexus", "clipper++"):
            theirs = curves[other][index]
            gains.append(ratio(statistics.fmean(point["goodput"]), statistics.fmean(theirs["goodput"])))
            gaps.append(ratio(theirs["gap"], point["gap"]))
    more, nearer = [each for each in gains if each], [each for each in gaps if each]
    if not more or not nearer:
        return f"{own}: no load beyond the capacity was measured."
    return (
        f"{own} beyond the capacity, against naive, nexus and clipper++: goodput {100 * (min(more) - 1):+.1f} to "
        f"{100 * (max(more) - 1):+.1f} %, gap to the optimum {min(nearer):.2f} to {max(nearer):.1f} times smaller; "
        f"paper {100 * paper.STRESS_GOODPUT.low:+.1f} to {100 * paper.STRESS_GOODPUT.high:+.1f} %, "
        f"{paper.STRESS_GAP} times. The optimum counts full batches only, so it is not quite reachable."
    )


# Sensitivity -------------------------------------------------------------------------------------------------------


def measure_sensitivity(setting: Setting) -> Result:
    """Vary lambda, the window, the period of the synchronisation and the burstiness, one at a time, on lv."""
    setting = replace(setting, seeds=setting.seeds[:SEEDS])
    shapes = setting.some(SHAPES, 1)
    base = Case("lv", "", "pard", seconds=setting.seconds)
    cases = {}
    for shape in shapes:
        for value in setting.some(QUANTILES):
            cases["lambda", shape, f"{value:g}"] = replace(base, trace=shape, policy=f"pard:quantile={value:g}")
        for value in setting.some(WINDOWS):
            cases["window", shape, f"{value:g}"] = replace(base, trace=shape, policy=f"pard:window={value:g}")
        for value in setting.some(PERIODS):
            for policy in setting.policies(OURS):
                cases["period", f"{shape}, {policy}", f"{value:g}"] = replace(
                    base, trace=shape, policy=policy, period=value
                )
    for value in setting.some(CVS):
        for policy in setting.policies():
            cases["burstiness", policy, f"{value:g}"] = replace(base, trace="tweet-like", policy=policy, cv=value)
    curves: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (what, line, value), figures in over_seeds(setting, cases).items():
        curves.setdefault(what, {}).setdefault(line, {})[value] = [each.drop for each in figures]
    return {"rate": RATE, "curves": curves}


TITLES = {
    "lambda": "lambda: drop rate in % of pard on lv",
    "window": "Window of the queueing delay in s: drop rate in % of pard on lv",
    "period": "Period of the synchronisation in s: drop rate in % on lv",
    "burstiness": "Coefficient of variation of the rate (tweet-like form): drop rate in % on lv",
}


def sensitivity_tables(result: Result) -> list[Table]:
    found = []
    for what, lines in result["curves"].items():
        values = list(next(iter(lines.values())))
        rows = [(line, *(spread(points[value]) for value in values)) for line, points in lines.items()]
        found.append(Table(TITLES[what], ("", *values), rows, _notes(what, lines)))
    return found


def _notes(what: str, lines: dict[str, dict[str, list[float]]]) -> tuple[str, ...]:
    if what not in ("lambda", "window"):
        return ()
    default = "0.1" if what == "lambda" else "5"
    parts = []
    for line, points in lines.items():
        means = {value: statistics.fmean(drops) for value, drops in points.items()}
        best = min(means, key=means.__getitem__)
        if default in means:
            parts.append(f"{line}: best at {best}, {percent(means[default] - means[best])} points below {default}")
    says = (
        f"the best lambda lies between {paper.LAMBDA_BEST.low:g} and {paper.LAMBDA_BEST.high:g}, at most .3 points off"
        if what == "lambda"
        else f"5 s is {percent(paper.WINDOW_GAP.low, 1)} to {percent(paper.WINDOW_GAP.high, 1)} % worse than the best"
    )
    return (f"{'; '.join(parts)}. Paper: {says}.",)
