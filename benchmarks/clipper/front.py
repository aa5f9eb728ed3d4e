"""What one worker does at the front, without Kafka: profiles, batch limits, delays, more workers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.clipper.models import NAMES, predictor, queries
from benchmarks.output import Table, median_spread
from examples.clipper.front import FOREVER, paced, saturate
from spillway.agents.core.batching import Batcher
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.core.request import Request
from spillway.agents.models.bare import EmulatedModel
from spillway.agents.models.execution import Instances, Runner

if TYPE_CHECKING:
    from spillway.agents.core.workers import Batch

OBJECTIVE: Final = 0.02  # seconds, as in the thesis
SIZES: Final = tuple(2**power for power in range(14))
PAPER_APART: Final = 241  # times, linear SVM to kernel SVM (Figure 3.3)
PAPER_GAIN: Final = 26  # times no batching, of the model that gains most (Figure 3.4)
PAPER_DELAY: Final = 3.3
PAPER_WORKERS: Final = 3.95


def _took(predict: Any, size: int, least: int, most: int, seconds: float = 0.0) -> list[float]:
    """Seconds of batches of one size: at least so many, and then until the time is over or there are so many."""
    rows = queries()
    batch = [rows[number % len(rows)] for number in range(size)]
    predict(batch)
    took: list[float] = []
    until = time.perf_counter() + seconds
    while len(took) < least or (time.perf_counter() < until and len(took) < most):
        before = time.perf_counter()
        predict(batch)
        took.append(time.perf_counter() - before)
    return took


def largest(name: str, seconds: float = 0.3) -> tuple[int, list[str]]:
    """The largest batch whose 90th percentile is within the objective, and the medians at some sizes in ms."""
    predict, fits, told = predictor(name), 0, []
    for size in SIZES:
        took = _took(predict, size, 5, 500, seconds)
        told.append(f"{1e3 * float(np.median(took)):.2f}")
        if np.percentile(took, 90) > OBJECTIVE:
            return _between(fits, size, predict), told
        fits = size
    return fits, told


def _between(low: int, high: int, predict: Any) -> int:
    """The largest within the objective of sizes between one that is and one that is not, found by halving."""
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        within = np.percentile(_took(predict, middle, 10, 10), 90) <= OBJECTIVE
        low, high = (middle, high) if within else (low, middle)
    return low


def profiles(repeats: int) -> Table:
    found: dict[str, list[int]] = {name: [] for name in NAMES}
    rows = []
    for name in NAMES:
        for _ in range(repeats):
            size, told = largest(name)
            found[name].append(size)
        rows.append([name, median_spread(found[name], "{:.0f}"), ", ".join(told)])
    apart = [one / other for one, other in zip(found["linear SVM"], found["kernel SVM"], strict=True) if other]
    return Table(
        "Largest batch whose 90th percentile is within 20 ms (Figure 3.3)",
        ("model", "largest batch", f"median ms at batches of {', '.join(map(str, SIZES[:6]))}, ..."),
        rows,
        (f"Linear to kernel SVM: {median_spread(apart, '{:.0f}')} times apart; the thesis: {PAPER_APART}.",),
    )


def batch_limits(repeats: int, seconds: float) -> Table:
    rows, gains = [], []
    for name in NAMES[1:]:
        predict, data = predictor(name), queries()
        none, best, aimd, quantile = [], [], [], []
        for _ in range(repeats):  # in turn, so that a machine that is busy for a while hits all
            none.append(saturate(predict, data, seconds, most=1).throughput)
            fixed = [saturate(predict, data, seconds / 2, most=most) for most in SIZES[2::2]]
            within = [run for run in fixed if np.percentile(run.executed, 90) <= OBJECTIVE] or fixed[:1]
            best.append(max(run.throughput for run in within))
            aimd.append(_adaptive("aimd", name, seconds))
            quantile.append(_adaptive("quantile", name, seconds))
        shares = [one / other for one, other in zip(aimd, best, strict=True)]
        gains.append([one / other for one, other in zip(aimd, none, strict=True)])
        columns = [median_spread(values, "{:,.0f}") for values in (none, best, aimd, quantile)]
        rows.append([name, *columns, median_spread(shares, "{:.2f}"), median_spread(gains[-1], "{:.1f}")])
    most = max(gains, key=lambda one: float(np.median(one)))
    return Table(
        "Queries a second of one worker, batches within 20 ms (Figure 3.4)",
        ("model", "none", "best fixed", "aimd", "quantile", "aimd / best fixed", "aimd / none"),
        rows,
        (
            f"The model that gains most: {median_spread(most, '{:.1f}')} times no batching; the thesis: {PAPER_GAIN}.",
            "aimd and quantile are counted once they have settled, after as long again.",
        ),
    )


def _adaptive(limit: str, name: str, seconds: float) -> float:
    run = saturate(predictor(name), queries(), 3 * seconds, limit=limit, most=SIZES[-1], objective=OBJECTIVE)
    late = [size for ended, size in zip(run.ended, run.sizes, strict=True) if ended > 2 * seconds]
    return sum(late) / seconds


def delays(repeats: int, seconds: float) -> Table:
    """Efficiency, queries a second of evaluation, by the batching delay, at a rate that no batch fills."""
    rows, gains = [], []
    for name, rate in (("kernel SVM", 0.3), ("linear SVM", 0.3), ("network (torch)", 0.3)):
        predict, data = predictor(name), queries()
        alone = saturate(predict, data, seconds / 2, most=1).throughput
        by_delay: dict[float, list[float]] = {delay: [] for delay in (0.0, 0.001, 0.002, 0.005)}
        for _ in range(repeats):
            for delay, found in by_delay.items():
                run = paced(predict, data, rate * alone, seconds, delay=delay)
                found.append(sum(run.sizes) / sum(run.executed))
        base = by_delay[0.0]
        gain = [one / other for one, other in zip(by_delay[0.002], base, strict=True)]
        gains.append(float(np.median(gain)))
        rows.append([name, f"{rate * alone:,.0f}", *(median_spread(found, "{:,.0f}") for found in by_delay.values()),
                     median_spread(gain, "{:.2f}")])  # fmt: skip
    return Table(
        "Queries a second of evaluation, by delay (Figure 3.5)",
        ("model", "rate", "0", "1 ms", "2 ms", "5 ms", "2 ms / 0"),
        rows,
        (f"Most at 2 ms: {max(gains):.1f} times; the thesis, for a model with a high fixed cost: {PAPER_DELAY}.",),
    )


def workers(repeats: int, seconds: float) -> Table:
    """One front with one to four emulated workers, always busy."""
    found: dict[int, list[float]] = {count: [] for count in (1, 2, 3, 4)}
    for _ in range(repeats):
        for count, rates in found.items():
            rates.append(asyncio.run(_fed(count, seconds)))
    scale = [one / other for one, other in zip(found[4], found[1], strict=True)]
    return Table(
        "Queries a second by the number of workers (Figure 3.6)",
        ("workers", "queries/s"),
        [[str(count), median_spread(rates, "{:,.0f}")] for count, rates in found.items()],
        (
            f"Four to one: {median_spread(scale, '{:.2f}')}; the thesis: {PAPER_WORKERS}.",
            "Workers are emulated: a batch of n takes 10 ms + 0.1 ms each.",
        ),
    )


async def _fed(count: int, seconds: float) -> float:
    batcher = Batcher(make("naive", StageView("front")), 64, 0.0, count)
    models = [EmulatedModel(lambda n: 0.01 + 0.0001 * n) for _ in range(count)]
    answered, number, began = 0, 0, time.perf_counter()
    ended = asyncio.Event()

    def done(batch: Batch, _result: Any) -> None:
        nonlocal answered
        now = time.perf_counter() - began
        answered += len(batch.requests)
        batcher.complete(now, batch.worker)
        if now >= seconds:
            ended.set()
        else:
            feed(now)

    def feed(now: float) -> None:
        nonlocal number
        while batcher.depth < 64 * (count + 1):
            batcher.push(now, Request("", number, now, FOREVER, now, (), {}))
            number += 1
        for batch in batcher.starts:
            instances.submit(batch.worker, batch)
        batcher.starts.clear()

    def broken(error: BaseException) -> None:
        raise error

    instances: Instances[Batch] = Instances(
        [Runner(f"instance-{number}") for number in range(count)],
        asyncio.get_running_loop(),
        work=lambda instance, batch: models[instance].predict([{} for _ in batch.requests]),  # type: ignore[misc]
        done=done,
        broken=broken,
    )
    feed(0.0)
    await ended.wait()
    instances.close(1.0)
    return answered / seconds
