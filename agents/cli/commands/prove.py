"""`spillway prove`: random pipelines under random failures, in virtual time, each run judged by an oracle.

A seed makes two schedules: one of a pipeline with states, and one of a pipeline without.
"""

from __future__ import annotations

import logging
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click
from rich.console import Console

from spillway.agents.proof import oracle as stateless
from spillway.agents.proof.drawing import drawn as drawn_case
from spillway.agents.sim.faults.oracle import Proof, judged
from spillway.agents.sim.faults.oracle import prove as prove_seeds
from spillway.agents.sim.faults.play import EndlessError
from spillway.agents.sim.faults.schedule.drawing import drawn
from spillway.agents.sim.faults.schedule.scenario import TOPOLOGIES
from spillway.checkpoint.modes import MODES
from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CHUNK = 50  # seeds that a process plays before it tells
_SHOWN = 10  # failures
_LONGEST = 120.0  # seconds of CPU time for a schedule, a thousand times what one takes
STATEFUL, STATELESS = "stateful", "stateless"


class UnprovenError(SpillwayError):
    """A schedule ended with a promise broken."""


@dataclass(slots=True)
class _Both:
    """What came of the schedules of some seeds."""

    stateful: Proof = field(default_factory=Proof)
    stateless: stateless.Proof = field(default_factory=stateless.Proof)

    def add(self, other: _Both) -> None:
        self.stateful.add(other.stateful)
        self.stateless.add(other.stateless)

    @property
    def failed(self) -> Mapping[tuple[str, int], list[str]]:
        kinds = ((STATEFUL, self.stateful.failed), (STATELESS, self.stateless.failed))
        return {(kind, seed): found for kind, failed in kinds for seed, found in failed.items()}


@click.command()
@click.option(
    "--schedules", default=10_000, show_default=True, type=click.IntRange(1), help="Number of schedules of each kind."
)
@click.option("--first", default=0, type=click.IntRange(0), help="Seed of the first schedules.")
@click.option("--seed", type=click.IntRange(0), help="Play only the schedules with this seed, and print what happened.")
@click.option(
    "--kind",
    type=click.Choice([STATEFUL, STATELESS]),
    help="Play only pipelines with states, or only those without.  [default: both]",
)
@click.option(
    "--topology", type=click.Choice(list(TOPOLOGIES)), help="Topology of all stateful schedules.  [default: random]"
)
@click.option(
    "--mode",
    type=click.Choice(list(MODES)),
    help="Replication mode of all stateful schedules.  [default: random, every other one nspb]",
)
@click.option("--processes", default=2, show_default=True, type=click.IntRange(1, 64))
def prove(
    schedules: int,
    first: int,
    seed: int | None,
    kind: str | None,
    topology: str | None,
    mode: str | None,
    processes: int,
) -> None:
    """Play random failures of random pipelines in virtual time, and check every run.

    Stages without states and the gate are those that ship, over a model of Kafka. Of stages with states the members
    and logs are the real code. The broker, the network and the clock are simulated. The same seed (and --topology and
    --mode, where given) always gives the same run.

    \b
    Example:
      spillway prove
      spillway prove --schedules 2000 --kind stateless
      spillway prove --schedules 2000 --kind stateful --topology chain --mode nspb
      spillway prove --seed 4711

    \b
    Exit codes:
      0  every promise was kept
      1  one was broken, or a schedule crashed or did not end; the seeds that fail are named
    """  # noqa: D301 - click's own marks
    kinds = (kind,) if kind is not None else (STATEFUL, STATELESS)
    if seed is not None:
        _show(seed, kinds, topology, mode)
        return
    began = time.perf_counter()
    proof = _Both()
    console = Console()
    with ProcessPoolExecutor(processes, initializer=_quiet) as pool:
        for part in pool.map(_part, _parts(schedules, first, kinds, topology, mode)):
            proof.add(part)
            for (which, failed), found in part.failed.items():
                if len(proof.failed) <= _SHOWN:
                    console.print(f"[red]{which}, seed {failed}[/red]: {found[0]}", highlight=False)
    _tell(console, proof, time.perf_counter() - began)
    if proof.failed:
        which, failed = min(proof.failed)
        raise UnprovenError(
            f"{len(proof.failed)} of {proof.stateful.schedules + proof.stateless.schedules} schedules broke a promise; "
            f"replay one with `spillway prove --seed {failed} --kind {which}{_given(topology, mode)}`"
        )


def _quiet() -> None:
    """Log nothing: failures are what is played."""
    logging.disable(logging.CRITICAL)


_Part = tuple[int, int, tuple[str, ...], str | None, str | None]


def _parts(
    schedules: int, first: int, kinds: tuple[str, ...], topology: str | None, mode: str | None
) -> Iterator[_Part]:
    for start in range(first, first + schedules, _CHUNK):
        yield start, min(start + _CHUNK, first + schedules), kinds, topology, mode


def _part(part: _Part) -> _Both:
    start, end, kinds, topology, mode = part
    both, seeds = _Both(), range(start, end)
    if STATEFUL in kinds:
        graph = TOPOLOGIES[topology] if topology else None
        both.stateful = prove_seeds(seeds, graph, MODES[mode] if mode else None, limited)
    if STATELESS in kinds:
        both.stateless = stateless.prove(seeds, limited)
    return both


@contextmanager
def limited(seconds: float = _LONGEST) -> Iterator[None]:
    """Raise EndlessError in what is done here once it has taken this process so many seconds of its CPU."""

    def end(*_: object) -> None:
        raise EndlessError(f"it has not ended after {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _given(topology: str | None, mode: str | None) -> str:
    return (f" --topology {topology}" if topology else "") + (f" --mode {mode}" if mode else "")


def _tell(console: Console, both: _Both, seconds: float) -> None:
    console.print(f"{len(both.failed)} schedules broke a promise, in {seconds:.0f} s", highlight=False)
    if both.stateful.schedules:
        _tell_stateful(console, both.stateful)
    if both.stateless.schedules:
        _tell_stateless(console, both.stateless)


def _tell_stateful(console: Console, proof: Proof) -> None:
    failovers = proof.counts["reigns"]
    console.print(
        f"{proof.schedules:,} schedules of stateful pipelines ({proof.seconds:,.0f} s of virtual time, "
        f"{proof.events:,} events): {len(proof.failed)} broke a promise",
        highlight=False,
    )
    kept = "" if proof.failed else ", each with one outcome that depends on recovered states"
    console.print(f"  queries    {proof.queries:,}{kept}", highlight=False)
    console.print(
        f"  faults     {sum(proof.struck.values()):,}, at {len(proof.struck)} different places", highlight=False
    )
    console.print(
        f"  reigns     {failovers:,}, of which {proof.counts['contaminated']:,} had to go back, "
        f"{proof.counts['goes back itself']:,} of them without a backup",
        highlight=False,
    )
    for name, counted in (("topologies", proof.topologies), ("modes", proof.modes)):
        told = ", ".join(f"{one} {number:,}" for one, number in sorted(counted.items()))
        console.print(f"  {name:<10} {told}", highlight=False)


def _tell_stateless(console: Console, proof: stateless.Proof) -> None:
    console.print(
        f"{proof.schedules:,} schedules of stateless pipelines ({proof.seconds:,.0f} s of virtual time, "
        f"{proof.stages:,} stages): {len(proof.failed)} broke a promise",
        highlight=False,
    )
    kept = "" if proof.failed else ", each with one outcome, which is right"
    console.print(f"  queries    {proof.queries:,}{kept}", highlight=False)
    told = ", ".join(f"{one} {number:,}" for one, number in proof.struck.most_common())
    console.print(f"  faults     {sum(proof.struck.values()):,}: {told}", highlight=False)


def _show(seed: int, kinds: tuple[str, ...], topology: str | None, mode: str | None) -> None:
    _quiet()
    console, broken = Console(), 0
    try:
        if STATEFUL in kinds:
            broken += _show_stateful(console, seed, topology, mode)
        if STATELESS in kinds:
            broken += _show_stateless(console, seed)
    finally:
        logging.disable(logging.NOTSET)
    if broken:
        raise UnprovenError(f"seed {seed} breaks {broken} promises")


def _show_stateful(console: Console, seed: int, topology: str | None, mode: str | None) -> int:
    scenario = drawn(seed, TOPOLOGIES[topology] if topology else None, MODES[mode] if mode else None)
    with limited():
        play, found = judged(scenario, seed)
    console.print(f"{scenario.topology.name}, {scenario.mode.name}, {scenario.queries} queries", highlight=False)
    for line in play.result.struck:
        console.print(f"  struck: {line}", highlight=False)
    for name, number in sorted(play.result.counts.items()):
        console.print(f"  {name}: {number}", highlight=False)
    return _show_found(console, found, play.result.seconds)


def _show_stateless(console: Console, seed: int) -> int:
    case = drawn_case(seed)
    with limited():
        play, found = stateless.judged(case, seed)
    console.print(f"stateless, {case.queries} queries, kills at {case.kills:.1%} of calls", highlight=False)
    for stage in case.spec["stages"]:
        console.print(f"  {case.replicas[stage['name']]} of {stage}", highlight=False, markup=False)
    for fault in case.faults:
        console.print(f"  {fault.at:.3f} s: {fault.name}.{fault.replica} {fault.kind.value}", highlight=False)
    return _show_found(console, found, 0.0 if play is None else play.seconds)


def _show_found(console: Console, found: list[str], seconds: float) -> int:
    for problem in found:
        console.print(problem, style="red", highlight=False, markup=False)
    if not found:
        console.print(f"every promise was kept, after {seconds:.1f} s", highlight=False)
    return len(found)
