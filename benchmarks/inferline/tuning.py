"""How sizes follow the load: misses, cost and orders of the strategies side by side on the same traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.inferline.contest import COLUMNS, DS2, OURS, PAPER, STRATEGIES, Setup, play, play_all, rows
from benchmarks.inferline.planning import EMULATED, THESIS
from benchmarks.inferline.scene import SLO, gamma, price, scene
from benchmarks.output import Table, median_spread
from producers.load import recipes

if TYPE_CHECKING:
    from benchmarks.inferline.scene import Scene, Times
    from benchmarks.inferline.serving import Outcome

SAMPLE: Final = 300.0
STEP: Final = 30.0  # seconds of each minute's mean rate (4.6)
ALL: Final = (
    *(OURS, PAPER, "plan alone", "oracle plan", "cg-mean + autoscale", "cg-peak + autoscale", "plan + autoscale"),
    *("lag", DS2),
)
# The mean rates of 60 minutes, as the text and figure 4.6 tell of them: its traces are not public. Scaled to 300/s.
_WAVE: Final = [80 + 20 * float(np.sin(n / 5)) for n in range(60)]
SPIKE: Final = [*_WAVE[:30], 200, 300, 300, 180, *_WAVE[34:]]
SPIKE_AND_FALL: Final = [
    *(120 + 10 * float(np.sin(n / 3)) for n in range(22)), *([300] * 3), *(200 + 2 * n for n in range(8)), *([40] * 27)
]  # fmt: skip
TRACES: Final = {
    "a spike (4.6a)": (SPIKE, "99.8 % at $8.50 against 93.7 % at $36.30 (4.3 times), the first plan 5 times cheaper"),
    "a spike and a fall (4.6b)": (
        SPIKE_AND_FALL,
        "99.3 % at $15.27 against 75.8 % at $24.63 (1.6 times), 34.5 times fewer misses",
    ),
}


def _of_minutes(rates: list[float], seed: int) -> tuple[Times, Times]:
    """The first quarter to plan for, and the rest to serve."""
    arrivals = recipes.make([f"gamma:rate={rate:g},cv2=1,for={STEP:g}s" for rate in rates], seed)
    split = len(rates) * STEP / 4
    return arrivals[arrivals < split], arrivals[arrivals >= split] - split


def social(repeats: int) -> list[Table]:
    """Figure 4.6."""
    tables = []
    for title, (rates, thesis) in TRACES.items():
        setups = [Setup(scene("social", *THESIS), *_of_minutes(rates, seed), seed=seed) for seed in range(repeats)]
        note = f"Thesis: {thesis}. Stand-ins: its traces are not public, so only ratios count."
        tables.append(Table(f"Social media, {title}", COLUMNS, rows(play_all(ALL, setups)), (note, EMULATED)))
    return tables


def _moves(of: Scene, words: list[str], repeats: int, rate: float = 150, cv2: float = 1) -> list[Setup]:
    return [
        Setup(of, gamma(rate, cv2, SAMPLE, 100 + seed), recipes.make(words, seed), seed=seed) for seed in range(repeats)
    ]


def _rise(low: float, high: float, seconds: float, cv2: float = 1, stays: float = 180) -> list[str]:
    rates = ((low, 60), (f"{low}..{high}", seconds), (high, stays))
    return [f"gamma:rate={rate},cv2={cv2},for={length}s" for rate, length in rates]


def _told(title: str, cases: dict[str, list[Setup]], names: tuple[str, ...], *notes: str) -> Table:
    made = []
    for case, setups in cases.items():
        made += [[case, *row] for row in rows(play_all(names, setups))]
    return Table(title, ("traffic", *COLUMNS), made, (*notes, EMULATED))


def rising(repeats: int) -> list[Table]:
    """Figures 4.7 and 4.10."""
    of = scene("social", *THESIS)
    cases = {
        f"100 to 200/s in 60 s, cv2 {cv2}": _moves(of, _rise(100, 200, 60, cv2), repeats, 100, cv2) for cv2 in (1, 4)
    }
    names = (OURS, PAPER, "plan alone", "cg-mean + autoscale", "cg-peak + autoscale", "lag")
    first = _told("Rising rates (Figure 4.7)", cases, names, "Thesis: near-zero misses, up to 4.2 times cheaper.")
    speeds = {
        f"150 to 250/s in {seconds} s": _moves(of, _rise(150, 250, seconds), repeats) for seconds in (10, 30, 100, 300)
    }
    note = "Thesis: near-zero misses at a cost like the oracle's or below; the plan alone misses from the rise on."
    return [first, _told("The speed of a rise (Figure 4.10)", speeds, (OURS, PAPER, "plan alone", "oracle plan"), note)]


def burstiness(repeats: int) -> list[Table]:
    """Figure 4.11."""
    words = ["gamma:rate=150,cv2=1,for=60s", "gamma:rate=150,cv2=1..4,for=60s", "gamma:rate=150,cv2=4,for=240s"]
    cases = {"cv2 1 to 4 in 60 s, 150/s": _moves(scene("social", *THESIS), words, repeats)}
    names = (OURS, PAPER, "plan alone", "oracle plan", "cg-mean + autoscale")
    return [_told("Burstiness alone (Figure 4.11)", cases, names, "Thesis: near-zero misses with the tuner.")]


def attribution(repeats: int) -> list[Table]:
    """Figure 4.12."""
    cases = {"150 to 250/s in 60 s": _moves(scene("image", *THESIS), _rise(150, 250, 60), repeats)}
    names = (OURS, PAPER, "plan + autoscale", "plan alone", "cg-mean", "cg-peak")
    note = (
        "Thesis: the plan is more than 3 times cheaper than the baseline's; only plan + tune keeps the SLO throughout."
    )
    return [_told("What plan and tuner bring, image processing (Figure 4.12)", cases, names, note)]


def ds2(repeats: int) -> list[Table]:
    """Figure 4.14."""
    of, names = scene("image", *THESIS), (OURS, PAPER, *(name for name in STRATEGIES if name.startswith("ds2")))
    cases = {
        f"50/s, cv2 {cv2}": _moves(of, [f"gamma:rate=50,cv2={cv2},for=300s"], repeats, 50, cv2) for cv2 in (0, 1, 4)
    }
    rise = _moves(of, _rise(50, 100, 60, stays=480), repeats, 50)
    note = "Thesis: DS2 keeps the SLO of even traffic, misses as cv2 goes to 4, and at each restart. It has no batches."
    first = _told("DS2 beside, image (Figure 4.14)", cases | {"50 to 100/s in 60 s": rise}, names, note)
    made = []
    for name in names:
        after = [_recovered(play(name, setup), 120.0) for setup in rise]
        made.append([name, median_spread(after, "{:.0f}")])
    note = "Until the last ten seconds in which more than 1 % missed. Thesis: nearly 300 s for DS2."
    return [first, Table("Seconds after the rise until the SLO is kept", ("strategy", "s"), made, (note, EMULATED))]


def _recovered(outcome: Outcome | None, end: float) -> float:
    assert outcome is not None  # these strategies begin with little
    bins = (outcome.due // 10).astype(int)
    share = np.bincount(bins, outcome.late) / np.maximum(np.bincount(bins), 1)
    late = np.flatnonzero(share > 0.01) * 10.0 + 10
    return max(0.0, float(late[-1]) - end) if len(late) else 0.0


def stationary(repeats: int) -> list[Table]:
    """An hour of traffic like the sample's."""
    made = []
    for cv2 in (1, 4):
        for name in (OURS, PAPER, "plan alone"):
            cells = [_hour(name, cv2, seed) for seed in range(repeats)]
            columns = zip(*cells, strict=True)
            forms = ("{:.0f}", "{:.2f}", "{:.2f}", "{:.2f}", "{:.2f}")
            made.append(
                [str(cv2), name, *(median_spread(each, form) for each, form in zip(columns, forms, strict=True))]
            )
    columns_ = ("cv2", "strategy", "orders", "most by plan", "last by plan", "misses, %", "cost by plan")
    note = "Wanted: at most 2 orders an hour, then back at the plan (last by plan: 1)."
    return [Table("An hour of stationary traffic, image processing, 150/s", columns_, made, (note, EMULATED))]


def _hour(name: str, cv2: float, seed: int) -> tuple[float, ...]:
    of = scene("image", *THESIS)
    setup = Setup(of, gamma(150, cv2, 600, 100 + seed), gamma(150, cv2, 3600, seed), seed=seed)
    found = play(name, setup)
    assert found is not None  # a plan is within the catalogue
    plan = price(setup.config)
    prices = [each for _, each in found.sizes] or [plan]
    return found.orders, max(prices) / plan, prices[-1] / plan, 100 * found.misses, found.cost / plan / found.hours


def dropping(repeats: int) -> list[Table]:
    """PARD on top: what it finds too late it drops, and so others are in time."""
    setups = _moves(scene("social", *THESIS), _rise(150, 250, 30), repeats)
    made = []
    for name in (OURS, PAPER, "plan alone"):
        for policy in ("naive", "pard"):
            found = [play(name, setup, policy) for setup in setups]
            missed = [100 * each.misses for each in found if each is not None]
            costs = [each.cost for each in found if each is not None]
            made.append([name, policy, median_spread(missed, "{:.2f}"), median_spread(costs, "{:.2f}")])
    note = f"150 to 250/s in 30 s, SLO {1e3 * SLO:g} ms. Misses are late or dropped. Not in the thesis."
    emulated = EMULATED.replace("policy naive", "policy as named")
    return [Table("PARD on top", ("strategy", "policy", "misses, %", "cost, $"), made, (note, emulated))]
