"""Real workers on digits under one trace and one schedule of strikes, with one strategy after another."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import psutil

from examples.parm import data
from spillway.agents.chaos.strikes import Strikes, workers_of
from spillway.agents.coding.data import read_data
from spillway.agents.coding.deployed import read_parities
from spillway.agents.coding.making import Maker
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage.errors import ModelError
from spillway.producers.client.exchange import Exchange
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from spillway.agents.chaos.schedule import Event, Kind
    from spillway.lineage.message import Outcome
    from spillway.producers.connection import ClientSettings
    from spillway.producers.load.tally import LoadResult

FOLDER: Final = Path(__file__).parents[2] / ".spillway" / "demo" / "parm"
K: Final = 2
WORKERS: Final = 4
SLOTS: Final = WORKERS + WORKERS // K  # of every strategy but `none`
WITHIN: Final = 30.0  # seconds: nothing is dropped
EPOCHS: Final = 60  # of a parity model's training
_EQUAL: Final = "equal-resources"
_PARITY: Final = "parity"
_MORE: Final = {
    "coded": f"coding: {{{{k: {K}, parity: {_PARITY}}}}}",
    "coded-shared": f"coding: {{{{k: {K}, parity: {_PARITY}, shared: true}}}}",  # they run batches, too
    "replicate": "copies: {{workers: 2}}",
    "approximate": "copies: {{workers: 2, model: '{models}:Mlp'}}",
    "hedged": "copies: {{workers: 2, quantile: .95, budget: .1}}",
}
STRATEGIES: Final = ("none", _EQUAL, *_MORE)
_SPEC: Final = """
name: {name}
slo: {within}s
partitions: 4
stages:
  - name: lenet
    model: {models}:LeNet
    workers: {{count: {count}, where: process, threads: 1}}
    batching: {{limit: fixed, size: 1}}
    inputs: {{image: {{dtype: float32, shape: [1, 8, 8]}}}}
    {more}
"""


@dataclass(slots=True)
class Run:
    """What became of one strategy's queries."""

    result: LoadResult
    struck: Counter[Kind]
    cpu: float
    """Seconds of the stage's front and workers."""
    made: NDArray[np.bool_]
    """Whose answer was reconstructed."""
    right: NDArray[np.bool_]

    @property
    def milliseconds(self) -> NDArray[np.float64]:
        """From when a query was due; infinite for one without an answer."""
        return np.nan_to_num(1e3 * (self.result.finished - self.result.due), nan=np.inf)

    @property
    def tail(self) -> dict[str, float]:
        """Median and tail, in ms."""
        return {f"p{share:g}": float(np.percentile(self.milliseconds, share)) for share in (50, 99, 99.9)}

    @property
    def lost(self) -> int:
        return int(np.isnan(self.result.finished).sum())


@dataclass(slots=True)
class _Seen:
    """What outcomes say, by index."""

    made: set[int] = field(default_factory=set)
    right: set[int] = field(default_factory=set)

    def observe(self, index: int, outcome: Outcome) -> None:
        labels = data.test()["label"]
        if outcome.outputs and int(np.argmax(outcome.outputs["output"])) == labels[index % len(labels)]:
            self.right.add(index)
        if any(flags.get("reconstructed") for flags in outcome.flags.values()):
            self.made.add(index)

    def mask(self, chosen: set[int], size: int) -> NDArray[np.bool_]:
        return np.isin(np.arange(size), list(chosen))


def train(folder: Path, say: Callable[[str], None], *, timed: bool = False) -> None:
    """Train the LeNet and its parity model, where they were not yet; `folder` keeps the latter."""
    pipeline = load(write(folder, "coded", "coded", timed=timed), profiled=False)
    spec = pipeline.written.stage("lenet")
    assert spec.coding is not None
    try:
        fits = not read_parities(spec, spec.coding, folder).outdated
    except ModelError:
        fits = False
    if not fits:
        say("training the LeNet and its parity model")
        import torch  # noqa: PLC0415 - only where there is something to train

        from spillway.agents.coding.training import Effort  # noqa: PLC0415

        torch.set_num_threads(1)  # small networks: threads that wait for one another where processors are taken
        given = [read_data(f"examples.parm.data:{name}", spec) for name in ("training", "test")]
        made = Maker(spec, folder / _PARITY, given[0], given[1], k=K, encoder="sum").make(
            0,
            Effort(epochs=EPOCHS, seed=0),
            architecture="examples.parm.timed:Parity" if timed else "examples.parm.networks:LeNet",
        )
        say(f"parity model trained in {made.seconds:.1f} s")


def write(folder: Path, strategy: str, name: str, *, timed: bool = False) -> Path:
    """The pipeline file of a strategy; `timed`: with the emulated service times of `examples.parm.timed`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{strategy}.yaml"
    count = SLOTS if strategy == _EQUAL else WORKERS
    models = "examples.parm.timed" if timed else "examples.parm.models"
    more = _MORE.get(strategy, "").format(models=models)
    text = _SPEC.format(name=name, within=WITHIN, models=models, count=count, more=more)
    file.write_text(text, encoding="utf-8")
    return file


def run(
    strategy: str,
    name: str,
    settings: ClientSettings,
    due: NDArray[np.float64],
    events: Sequence[Event],
    folder: Path,
    say: Callable[[str], None],
    *,
    timed: bool = False,
) -> Run:
    """Serve the strategy under `name`, with the policy naive, and send it the trace while its workers are struck."""
    pipeline = load(write(folder, strategy, name, timed=timed))
    run_dir = folder / "run"
    seen = _Seen()
    stop = threading.Event()
    with served(ServiceSettings(pipeline, settings, run_dir, policy="naive"), say=say):
        exchange = Exchange(settings, name, linger=0.001)
        try:
            warm = Pace(slo=WITHIN, grace=WITHIN)
            run_load(exchange, generated(np.arange(0.0, 2.0, 0.02), data.query), warm)  # a first call takes longer
            before = _cpu(run_dir, name)
            with Strikes(partial(workers_of, run_dir, name, ["lenet"])) as strikes, ThreadPoolExecutor(1) as pool:
                began = time.monotonic() + 1.0  # a load begins a second after it is asked for
                striking = pool.submit(strikes.play, events, began, stop)
                try:
                    pace = Pace(slo=WITHIN, grace=WITHIN, observe=seen.observe)
                    result = run_load(exchange, generated(due, data.query), pace)
                finally:
                    stop.set()
                striking.result()
            cpu = _cpu(run_dir, name) - before
        finally:
            exchange.close()
    masks = (seen.mask(chosen, len(due)) for chosen in (seen.made, seen.right))
    return Run(result, strikes.done, cpu, *masks)


def _cpu(run_dir: Path, name: str) -> float:
    """Seconds that the stage's processes have used, and those that they have outlived."""
    found = 0.0
    for entry in entries(run_dir, name):
        if entry.role == "stage" and entry.alive():
            front = psutil.Process(entry.pid)
            found += sum(front.cpu_times()[:4]) + sum(sum(each.cpu_times()[:2]) for each in front.children())
    return found
