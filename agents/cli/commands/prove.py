"""`spillway prove`: stateful serving under random crashes, zombies, delays and compaction, judged by an oracle."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console

from spillway.agents.sim.faults.oracle import Proof, judged
from spillway.agents.sim.faults.oracle import prove as prove_seeds
from spillway.agents.sim.faults.play import EndlessError
from spillway.agents.sim.faults.schedule.drawing import drawn
from spillway.agents.sim.faults.schedule.scenario import TOPOLOGIES
from spillway.checkpoint.modes import MODES
from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 50  # schedules that a process plays before it tells
_SHOWN = 10  # failures
_LONGEST = 120.0  # seconds of CPU time for a schedule, a thousand times what one takes


class UnprovenError(SpillwayError):
    """A schedule ended with a promise broken."""


@click.command()
@click.option(
    "--schedules", default=10_000, show_default=True, type=click.IntRange(1), help="Number of schedules to play."
)
@click.option("--first", default=0, type=click.IntRange(0), help="Seed of the first schedule.")
@click.option("--seed", type=click.IntRange(0), help="Play only the schedule with this seed, and print what happened.")
@click.option("--topology", type=click.Choice(list(TOPOLOGIES)), help="Topology of all schedules.  [default: random]")
@click.option(
    "--mode",
    type=click.Choice(list(MODES)),
    help="Replication mode of all schedules.  [default: random, every other one nspb]",
)
@click.option("--processes", default=2, show_default=True, type=click.IntRange(1, 64))
def prove(schedules: int, first: int, seed: int | None, topology: str | None, mode: str | None, processes: int) -> None:
    """Play random failures of pipelines with stateful stages in virtual time, and check every run.

    The stages, members and logs are the real code; the broker, the network and the clock are simulated. The same seed
    (and --topology and --mode, where given) always gives the same run.

    \b
    Example:
      spillway prove
      spillway prove --schedules 2000 --topology chain --mode nspb
      spillway prove --seed 4711

    \b
    Exit codes:
      0  every promise was kept
      1  one was broken, or a schedule crashed or did not end; the seeds that fail are named
    """  # noqa: D301 - click's own marks
    if seed is not None:
        _show(seed, topology, mode)
        return
    began = time.perf_counter()
    proof = Proof()
    console = Console()
    with ProcessPoolExecutor(processes) as pool:
        for part in pool.map(_part, _parts(schedules, first, topology, mode)):
            proof.add(part)
            for failed, found in part.failed.items():
                if len(proof.failed) <= _SHOWN:
                    console.print(f"[red]seed {failed}[/red]: {found[0]}", highlight=False)
    _tell(console, proof, time.perf_counter() - began)
    if proof.failed:
        raise UnprovenError(
            f"{len(proof.failed)} of {proof.schedules} schedules broke a promise; replay one with "
            f"`spillway prove --seed {min(proof.failed)}{_given(topology, mode)}`"
        )


_Part = tuple[int, int, str | None, str | None]


def _parts(schedules: int, first: int, topology: str | None, mode: str | None) -> Iterator[_Part]:
    for start in range(first, first + schedules, _CHUNK):
        yield start, min(start + _CHUNK, first + schedules), topology, mode


def _part(part: _Part) -> Proof:
    start, end, topology, mode = part
    graph = TOPOLOGIES[topology] if topology else None
    return prove_seeds(range(start, end), graph, MODES[mode] if mode else None, limited)


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


def _tell(console: Console, proof: Proof, seconds: float) -> None:
    failovers = proof.counts["reigns"]
    console.print(
        f"{proof.schedules:,} schedules in {seconds:.0f} s ({proof.seconds:,.0f} s of virtual time, "
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


def _show(seed: int, topology: str | None, mode: str | None) -> None:
    scenario = drawn(seed, TOPOLOGIES[topology] if topology else None, MODES[mode] if mode else None)
    with limited():
        play, found = judged(scenario, seed)
    console = Console()
    console.print(f"{scenario.topology.name}, {scenario.mode.name}, {scenario.queries} queries", highlight=False)
    for line in play.result.struck:
        console.print(f"  struck: {line}", highlight=False)
    for name, number in sorted(play.result.counts.items()):
        console.print(f"  {name}: {number}", highlight=False)
    for problem in found:
        console.print(f"[red]{problem}[/red]", highlight=False)
    if found:
        raise UnprovenError(f"seed {seed} breaks {len(found)} promises")
    console.print(f"every promise was kept, after {play.result.seconds:.1f} s", highlight=False)
