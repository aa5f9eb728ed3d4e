"""The runs: each fault with a shape of pipeline and seeds. `CASES` is all of them, `FEW` those of every test run."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from agents.live.states.crash_points import NAMES
from tests.torture import faults
from tests.torture.bench import Run
from tests.torture.faults import Fault, at_point
from tests.torture.shapes import SHAPES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slow_broker import SlowBroker
    from tests.torture.bench import Verdict

LARGE = {"kib": 1_024}  # a state of a megabyte: many chunks
BUSY = {"seconds": 0.01}  # a computation that takes a while


def _points() -> dict[str, Fault]:
    made = {}
    for point in sorted(NAMES):
        for member, row in ((0, "the primary"), (1, "a backup that has just taken over")):
            for shape in ("pair", "dice"):
                prepare, strike = at_point(point, member=member)
                size = LARGE if point == "amid-chunks" else {}  # a small state is one chunk
                name = f"{point}-{'backup' if member else 'primary'}-{shape}"
                made[name] = Fault(row, shape, strike, prepare, arguments=size)
    return made


FAULTS: dict[str, Fault] = {
    **_points(),
    "primary-pair": Fault("the primary", "pair", faults.primary_dies, arguments=LARGE),
    "primary-keyed": Fault("the primary", "keyed", faults.primary_dies),
    "primary-dice": Fault("the primary", "dice", faults.primary_dies, arguments=BUSY),
    "primary-between": Fault("the primary", "between", faults.primary_dies),
    "backup": Fault("a backup", "pair", faults.backup_dies),
    "gate": Fault("the gate", "dice", faults.gate_dies),
    "stateless-between": Fault("a stateless stage", "between", faults.stateless_dies),
    "stateless-before": Fault("a stateless stage", "before", faults.stateless_dies),
    "sleep": Fault("a primary that stands still beyond its lease", "pair", faults.primary_sleeps, count=400),
    "sleep-dice": Fault("a primary that stands still beyond its lease", "dice", faults.primary_sleeps, count=400),
    "doze": Fault("a primary that stands still for about its lease", "pair", faults.primary_dozes, count=400),
    "neighbours": Fault("two neighbouring primaries", "pair", faults.neighbours_die),
    "neighbours-dice": Fault("two neighbouring primaries", "dice", faults.neighbours_die, arguments=LARGE),
    "shard": Fault("all members of a stage", "pair", faults.shard_dies, arguments=LARGE),
    "shard-keyed": Fault("all members of a stage", "keyed", faults.shard_dies),
    "all": Fault("all processes", "dice", faults.all_die),
    "several": Fault("two to four processes in turn", "pair", faults.several_die, count=400),
    "in-turn": Fault("a primary, then its backup", "dice", faults.primary_and_backup_in_turn_die),
    "figure-6": Fault("Fig. 6", "pair", faults.figure_6, through_link=True, count=400),
    "figure-6-dice": Fault("Fig. 6", "dice", faults.figure_6, through_link=True, count=400),
    "slow": Fault("a primary on a slow link", "pair", faults.link_is_slow, through_link=True, arguments=LARGE),
    "cut": Fault("a primary whose connections break", "pair", faults.link_is_cut, through_link=True),
    "broker": Fault("the broker for some seconds", "pair", faults.broker_restarts),
    "broker-dice": Fault("the broker for some seconds", "dice", faults.broker_restarts),
    "broker-stopped": Fault("the broker for some seconds, stopped in good order", "pair", faults.broker_is_stopped),
    "compaction": Fault("compaction at any moment, and primaries", "pair", faults.compaction_and_deaths,
                        compacted=True, arguments=LARGE, count=400),
    **{
        f"{name}-{mode}": Fault(f"{row}, replicated as {mode}", mode, strike)
        for mode in ("remus", "s1", "s2", "lineage-stash", "kafka-eos")
        for name, row, strike in (
            ("primary", "the primary", faults.primary_dies),
            ("shard", "all members of a stage", faults.shard_dies),
        )
    },
}  # fmt: skip

# How many seeds each has, where it is not one: what is struck by chance is tried more often.
_SEEDS = {
    **dict.fromkeys(("primary-pair", "primary-dice", "gate", "figure-6", "broker", "compaction", "several"), 3),
    "broker-stopped": 4,
    **dict.fromkeys(("backup", "sleep", "sleep-dice", "doze", "neighbours", "all", "in-turn", "slow"), 2),
}


@dataclass(frozen=True)
class Case:
    """One run."""

    fault: str
    seed: int

    def __str__(self) -> str:
        return f"{self.fault}-{self.seed}"

    def run(self, bench: SlowBroker, name: str, folder: Path) -> Verdict:
        """Serve, strike, judge."""
        fault = FAULTS[self.fault]
        rng = Random(f"{self.fault}/{self.seed}")
        bench.link.reset()
        run = Run(
            bench,
            name,
            SHAPES[fault.shape],
            folder,
            through_link=fault.through_link,
            compacted=fault.compacted,
            **fault.arguments,
        )
        fault.prepare(run, rng)
        with run:
            run.load(fault.count)
            fault.strike(run, rng)
            return run.judged()


CASES = [Case(fault, seed) for fault in FAULTS for seed in range(1, _SEEDS.get(fault, 1) + 1)]

FEW = [
    Case(fault, 1)
    for fault in (
        "before-manifest-primary-pair",
        "after-outputs-primary-dice",
        "after-fence-backup-pair",
        "amid-chunks-primary-dice",
        "sleep",
        "neighbours",
        "shard",
        "figure-6",
        "gate",
        "broker",
    )
]
