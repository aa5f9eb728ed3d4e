"""`spillway prove`: random pipelines under random failures, in virtual time, each run judged by an oracle.

A seed makes two schedules: one of a pipeline with states, and one of a pipeline without.
"""

from __future__ import annotations

import logging
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console

from spillway.agents.proof.pipelines import oracle as stateless
from spillway.agents.proof.pipelines.drawing import drawn as drawn_case
from spillway.agents.proof.shards import oracle as stateful
from spillway.agents.proof.shards.play import EndlessError
from spillway.agents.proof.shards.schedule.drawing import drawn
from spillway.agents.proof.shards.schedule.scenario import TOPOLOGIES
from spillway.agents.proof.verdict import Proof
from spillway.checkpoint.modes import MODES
from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CHUNK = 50  # seeds that a process plays before it tells
_SHOWN = 10  # failures
_LONGEST = 120.0  # seconds of CPU time for a schedule, a thousand times what one takes
STATEFUL, STATELESS = "stateful", "stateless"
_KEPT: Final = {
    STATEFUL: ", each with one outcome that depends on recovered states",
    STATELESS: ", each with one outcome, which is right",
}


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

    Stages, the members of shards and the gate are those that ship. The broker, the network, the clock, and the threads
    that write a state's versions and send heartbeats are simulated. The same seed (and --topology and --mode, where
    given) always gives the same run.

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
    proofs = {each: Proof() for each in kinds}
    failed: list[tuple[str, int]] = []
    console = Console(highlight=False)
    with ProcessPoolExecutor(processes, initializer=_quiet) as pool:
        ends = first, first + schedules
        parts = [(range(start, min(start + _CHUNK, ends[1])), kinds, topology, mode) for start in range(*ends, _CHUNK)]
        for part in pool.map(_part, parts):
            for which, proof in part.items():
                proofs[which].add(proof)
                for broken, found in proof.failed.items():
                    failed.append((which, broken))
                    if len(failed) <= _SHOWN:
                        console.print(f"[red]{which}, seed {broken}[/red]: {found[0]}")
    console.print(f"{len(failed)} schedules broke a promise, in {time.perf_counter() - began:.0f} s")
    for which, proof in proofs.items():
        _tell(console, which, proof)
    if failed:
        which, broken = min(failed)
        played = sum(proof.schedules for proof in proofs.values())
        given = (f" --topology {topology}" if topology else "") + (f" --mode {mode}" if mode else "")
        raise SpillwayError(
            f"{len(failed)} of {played} schedules broke a promise; replay one with `spillway prove --seed {broken} "
            f"--kind {which}{given}`"
        )


def _quiet() -> None:
    """Log nothing: failures are what is played."""
    logging.disable(logging.CRITICAL)


def _part(part: tuple[range, tuple[str, ...], str | None, str | None]) -> dict[str, Proof]:
    seeds, kinds, topology, mode = part
    found = {}
    if STATEFUL in kinds:
        graph = TOPOLOGIES[topology] if topology else None
        found[STATEFUL] = stateful.prove(seeds, graph, MODES[mode] if mode else None, limited)
    if STATELESS in kinds:
        found[STATELESS] = stateless.prove(seeds, limited)
    return found


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


def _tell(console: Console, kind: str, proof: Proof) -> None:
    size = "events" if kind == STATEFUL else "stages"
    console.print(
        f"{proof.schedules:,} schedules of {kind} pipelines ({proof.seconds:,.0f} s of virtual time, "
        f"{proof.counts[size]:,} {size}): {len(proof.failed)} broke a promise"
    )
    console.print(f"  queries    {proof.queries:,}{'' if proof.failed else _KEPT[kind]}")
    faults = f"  faults     {sum(proof.struck.values()):,}"
    if kind == STATELESS:
        console.print(f"{faults}: {_counted(proof.struck.most_common())}")
        return
    console.print(f"{faults}, at {len(proof.struck)} different places")
    console.print(
        f"  reigns     {proof.counts['reigns']:,}, of which {proof.counts['contaminated']:,} had to go back, "
        f"{proof.counts['goes back itself']:,} of them without a backup"
    )
    console.print(f"  topologies {_counted(sorted(proof.topologies.items()))}")
    console.print(f"  modes      {_counted(sorted(proof.modes.items()))}")


def _counted(counts: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{one} {number:,}" for one, number in counts)


def _show(seed: int, kinds: tuple[str, ...], topology: str | None, mode: str | None) -> None:
    _quiet()
    console, broken = Console(highlight=False), 0
    try:
        if STATEFUL in kinds:
            broken += _show_stateful(console, seed, topology, mode)
        if STATELESS in kinds:
            broken += _show_stateless(console, seed)
    finally:
        logging.disable(logging.NOTSET)
    if broken:
        raise SpillwayError(f"seed {seed} breaks {broken} promises")


def _show_stateful(console: Console, seed: int, topology: str | None, mode: str | None) -> int:
    scenario = drawn(seed, TOPOLOGIES[topology] if topology else None, MODES[mode] if mode else None)
    with limited():
        play, found = stateful.judged(scenario, seed)
    console.print(f"{scenario.topology.name}, {scenario.mode.name}, {scenario.queries} queries")
    for line in play.result.struck:
        console.print(f"  struck: {line}")
    for name, number in sorted(play.result.counts.items()):
        console.print(f"  {name}: {number}")
    return _show_found(console, found, play.result.seconds)


def _show_stateless(console: Console, seed: int) -> int:
    case = drawn_case(seed)
    with limited():
        play, found = stateless.judged(case, seed)
    console.print(f"stateless, {case.queries} queries, kills at {case.kills:.1%} of calls")
    for stage in case.spec["stages"]:
        console.print(f"  {case.replicas[stage['name']]} of {stage}", markup=False)
    for fault in case.faults:
        console.print(f"  {fault.at:.3f} s: {fault.name}.{fault.replica} {fault.kind.value}")
    return _show_found(console, found, 0.0 if play is None else play.seconds)


def _show_found(console: Console, found: list[str], seconds: float) -> int:
    for problem in found:
        console.print(problem, style="red", markup=False)
    if not found:
        console.print(f"every promise was kept, after {seconds:.1f} s")
    return len(found)
