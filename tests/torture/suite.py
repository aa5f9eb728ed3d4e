"""The runs: each fault with a shape of pipeline and seeds. `CASES` is all of them, `FEW` those among other tests."""

from dataclasses import dataclass, replace
from random import Random

from tests.crash_points import NAMES
from tests.nodes import ClusterBench
from tests.torture import faults, node_faults
from tests.torture.bench import Run
from tests.torture.faults import Fault, at_point
from tests.torture.node_faults import ROLES
from tests.torture.shapes import SHAPES

LARGE = {"kib": 1_024}  # a state of a megabyte: many chunks
BUSY = {"seconds": 0.01}  # a computation that takes a while


def _points():
    made = {}
    for point in sorted(NAMES):
        for member, row in ((0, "the primary"), (1, "a backup that has just taken over")):
            for shape in ("pair", "dice"):
                prepare, strike = at_point(point, member=member)
                size = LARGE if point == "amid-chunks" else {}  # a small state is one chunk
                name = f"{point}-{'backup' if member else 'primary'}-{shape}"
                made[name] = Fault(row, shape, strike, prepare, arguments=size)
    return made


def _nodes():
    """A node of three is struck, for each of its roles; stateless stages alone share a consumer group."""
    made = {}
    for role, find in ROLES.items():
        shape = "between" if role == "stage-group" else "pair"
        made[f"node-dies-{role}"] = Fault("a node of three, killed", shape, node_faults.dies(find), nodes=3)
        made[f"node-sleeps-{role}"] = Fault(
            "a node of three that stands still", shape, node_faults.stands_still(find), nodes=3
        )
    return made


FAULTS = {
    **_points(),
    **_nodes(),
    "nodes-rolling": Fault("three nodes restarted in turn", "between", node_faults.rolling_restart, nodes=3),
    "node-disk": Fault("a node of three and its disk", "pair", node_faults.disk_is_lost, nodes=3),
    "nodes-two": Fault("two nodes of three for 20 s", "pair", node_faults.two_are_down, nodes=3),
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
# What is done with 20 s of work waiting; each kind of fault once.
FAULTS |= {
    f"backlog-{name}": replace(FAULTS[name], row=f"{FAULTS[name].row}, amid a backlog", backlog=True, arguments={})
    for name in (
        "primary-keyed", "primary-between", "after-outputs-primary-pair", "after-fence-backup-dice", "backup", "gate",
        "stateless-between", "sleep", "doze", "neighbours", "shard", "all", "several", "in-turn", "figure-6", "slow",
        "cut", "broker", "broker-stopped", "compaction", "node-dies-any",
    )
}  # fmt: skip
FAULTS["backlog-primary-four"] = replace(FAULTS["backlog-primary-keyed"], shape="four", strike=faults.second_dies)

# Other shapes than chains, and what lasts.
FAULTS |= {
    f"{name}-{shape}": Fault(f"{row}, {what}", shape, strike)
    for shape, what in (
        ("join", "before a join"), ("partial", "before a join of which parts fail"),
        ("choice", "before or behind a choice"), ("sinks", "with two sinks"), ("shards", "of two shards"),
    )
    for name, row, strike in (
        ("primary", "the primary", faults.primary_dies),
        ("shard", "all members of a stage", faults.shard_dies),
        ("several", "two to four processes in turn", faults.several_die),
    )
}  # fmt: skip
FAULTS |= {
    "gates": Fault("a gate of two", "dice", faults.gate_rebalances),
    "primary-learner": Fault("the primary of a learner", "learner", faults.primary_dies),
    "backup-learner": Fault("the backup of a learner", "learner", faults.backup_dies),
    "shard-learner": Fault("both members of a learner", "learner", faults.shard_dies),
    "gate-learner": Fault("the gate of a learner", "learner", faults.gate_dies),
    "front-learner": Fault("the stage that looks a learner up", "learner", faults.front_dies),
    "several-learner": Fault("two to four processes of a learner and its pipeline", "learner", faults.several_die),
    "held": Fault("an outcome held for five minutes", "behind", faults.held_for_long, through_link=True, rate=10.0,
                  options=("--stall", "600")),
}  # fmt: skip


# How many seeds each has, where it is not one: what is struck by chance is tried more often.
_SEEDS = {
    **dict.fromkeys(("primary-pair", "primary-dice", "gate", "figure-6", "broker", "compaction", "several"), 3),
    "broker-stopped": 4,
    **dict.fromkeys(("backup", "sleep", "sleep-dice", "doze", "neighbours", "all", "in-turn", "slow"), 2),
}


@dataclass(frozen=True)
class Case:
    fault: str
    seed: int

    def __str__(self):
        return f"{self.fault}-{self.seed}"

    def run(self, bench, name, folder):
        fault = FAULTS[self.fault]
        rng = Random(f"{self.fault}/{self.seed}")
        if isinstance(bench, ClusterBench):
            bench.mend()
        else:
            bench.link.reset()
        run = Run(
            bench,
            name,
            SHAPES[fault.shape],
            folder,
            through_link=fault.through_link,
            compacted=fault.compacted,
            backlog=fault.backlog,
            options=fault.options,
            **fault.arguments,
        )
        fault.prepare(run, rng)
        with run:
            run.load(fault.count, fault.rate)
            fault.strike(run, rng)
            verdict = run.judged()
        run.forget()
        return verdict


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
