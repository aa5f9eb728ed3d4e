"""The autoscaler: from what the fronts tell of each variant to how many workers each is to have (INFaaS, section 4.2).

Tell it of the sizes that stand (`stands`) and of reports (`report`), then ask (`orders`, `host_orders`, `statuses`).
The variants of one application and architecture are a group with one load and one SLO. Rules beyond the paper's:

* What is ordered is desired state; the same order is given again until it stands. A worker that dies among others is
  its front's to replace. One that dies as the first of its variant, or does not come in time, fails the variant:
  nothing more is ordered of it for a while that doubles, and the load is met by others.
* Nothing that serves ends before what takes its place is ready. What replaces nothing any more, as its controller died
  halfway, leaves like any surplus.
* An interfered variant moves: one more worker on a host where it is not, and the one that shares a host goes first when
  there is one too many. Where no host has room it sheds, as no new query is sent to it, and a host may be added.
* An order carries the epoch of the claim to order. A lower one than any that stands is void, and a
  controller that sees a higher one stand orders nothing more. A new controller begins with what stands, and says it
  again.
* A variant that a query names, or that alone of its model is accurate enough for one, is loaded beside what serves
  (`lacking`), and stays while it is asked. The paper's heuristic goes by rates alone, and would not.
* Nothing is let go that the highest load of late would need, for as long as it would take to have it back: the loading
  of the slowest variant that runs, its host's start, and `settle` at least. Where the load rises, what it would be when
  a worker has loaded is ordered, and kept. The paper goes by the load of the moment.
* The load is counted by what came and by what found nothing active (`unmet`). A worker counts with what it does in time
  (`spillway.topology.variants.scaling`). A group without load for `idle` seconds loses its last worker, too; None: it
  keeps one.

Times are seconds of a clock that does not go back.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from spillway.topology.variants.scaling import (
    Action,
    Candidate,
    Patience,
    Weights,
    in_time,
    keeps,
    scale_down,
    scale_up,
)
from spillway.topology.variants.selection import Status
from spillway.topology.variants.states import Event, Life, State, Told

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from spillway.topology.variants.hosts import Fleet, HostOrder
    from spillway.topology.variants.variant import Variant

POLL: Final = 1.0  # seconds between two decisions (INFaaS, section 5)
HOST_POLL: Final = 2.0
_EXACT: Final = 1e-9
_USUAL: Final = Weights()
_COMING: Final = frozenset({State.LOADING, State.ACTIVE})

Group = tuple[str, str]  # application, architecture


class Order(NamedTuple):
    """How many workers a variant is to have from now on, on what, and why; `epoch` is that of the claim to order."""

    variant: str
    hardware: str
    workers: int
    why: str
    epoch: int


class Report(NamedTuple):
    """What the fronts of a stage tell together."""

    told: Mapping[str, Told]  # by variant; those that are not named have no worker and no load
    unmet: Mapping[str, float] = {}  # by variant that was wanted and is not active, queries a second
    slos: Mapping[Group, float] = {}  # the latency that a group is asked for, in seconds; kept until it is told anew
    lacking: Collection[str] = ()  # variants that queries need and no other of their model that serves can stand in for


@dataclass(slots=True)
class _Group:
    variants: list[Variant]
    load: float = 0.0
    loads: deque[tuple[float, float]] = field(default_factory=deque)  # when, and what: those that are remembered
    slo: float | None = None
    asked: float = -math.inf  # when a query came last
    patience: Patience = field(default_factory=Patience)


class Controller:
    """Orders workers of variants, and hosts for them, as the load goes."""

    def __init__(
        self,
        variants: Iterable[Variant],
        fleet: Fleet,
        epoch: int,
        *,
        weights: Weights = _USUAL,
        vertical: bool = True,
        idle: float | None = None,
        settle: float = 0.0,
    ) -> None:
        """`vertical`: whether another variant may take the load of those that run, or they are only replicated.

        `settle`: the least seconds that scaling down waits, ours; 0: the paper's T_v, and no memory of loads.
        """
        self.fleet, self.epoch = fleet, epoch
        self._weights, self._vertical, self._idle = weights, vertical, idle
        self._settle = settle
        self.lives = {each.name: Life(each, weights.slack) for each in variants}
        self._groups: dict[Group, _Group] = {}
        for each in self.lives.values():
            key = (each.variant.app, each.variant.architecture)
            self._groups.setdefault(key, _Group([])).variants.append(each.variant)
        self._wanted: Counter[str] = Counter()
        self._standing: dict[str, tuple[int, int]] = {}  # by variant, the workers and the order's epoch
        self._why: dict[str, str] = {}
        self._missing: dict[str, float] = {}  # by variant that has fewer workers than ordered, since when
        self._nowhere: dict[str, Variant] = {}  # what fits on no host
        self._leaving: dict[str, set[str]] = {}  # by variant, the hosts that it moves from
        self._lacking: frozenset[str] = frozenset()
        self._kept: dict[str, float] = {}  # by variant that was lacking: when it was asked last
        self._looked = self._hosts_looked = -math.inf
        self.superseded = False

    # What is told -----------------------------------------------------------------------------------------------

    def stands(self, now: float, variant: str, count: int, epoch: int) -> None:
        """What the table of sizes says of a variant, as written by the claim of an epoch."""
        if epoch > self.epoch:
            self.superseded = True
        if variant not in self.lives:
            return  # of another catalogue: its front ends it
        self._standing[variant] = (count, epoch)
        if epoch != self.epoch and count != self._wanted[variant]:
            each = self.lives[variant].variant
            self._groups[each.app, each.architecture].asked = now  # it was asked for, before this one came
            self._want(now, variant, count, f"taken over from epoch {epoch}")

    def report(self, now: float, report: Report) -> None:
        """Take a report of all variants."""
        self._lacking = frozenset(report.lacking)
        for name, life in self.lives.items():
            told = report.told.get(name)
            life.report(now, Told() if told is None else told)
            if name in self._lacking or (name in self._kept and life.told.load > 0):
                self._kept[name] = now
        for key, group in self._groups.items():
            names = [each.name for each in group.variants]
            group.load = sum(self.lives[name].told.load + report.unmet.get(name, 0.0) for name in names)
            group.loads.append((now, group.load))
            while now - group.loads[0][0] > self._memory(group):
                group.loads.popleft()
            group.slo = report.slos.get(key, group.slo)
            if group.load > 0:
                group.asked = now

    # What is decided --------------------------------------------------------------------------------------------

    def orders(self, now: float) -> list[Order]:
        """What to write; the same again until it stands. Nothing once another controller's orders stand."""
        if self.superseded:
            return []
        if now - self._looked >= POLL - _EXACT:
            self._looked = now
            self._nowhere = {}
            for name, life in self.lives.items():
                self._give_up(now, name, life)
            for group in self._groups.values():
                self._scale(now, group)
            for name, life in self.lives.items():
                if life.interfered:
                    self._move(now, name, life)
        return [
            Order(name, life.variant.hardware, self._wanted[name], self._why.get(name, ""), self.epoch)
            for name, life in self.lives.items()
            if self._is_to_say(name)
        ]

    def host_orders(self, now: float) -> list[HostOrder]:
        """Hosts to start and to let go, each once."""
        if self.superseded or now - self._hosts_looked < HOST_POLL - _EXACT:
            return []
        self._hosts_looked = now
        return self.fleet.orders(
            now,
            overloaded={name for name, life in self.lives.items() if life.overloaded},
            interfered={name for name, life in self.lives.items() if life.interfered},
            wanted=self._nowhere.values(),
        )

    def statuses(self, now: float) -> dict[str, Status]:
        """How each variant is doing, for who selects (`spillway.topology.variants.selection`)."""
        return {name: self._status(now, life) for name, life in self.lives.items()}

    @property
    def stale(self) -> dict[str, float]:
        """The variants whose profile is stale, and times it that their batches take."""
        return {name: life.slower for name, life in self.lives.items() if life.slower > 1.0}

    # Inside -----------------------------------------------------------------------------------------------------

    def _status(self, now: float, life: Life) -> Status:
        told, loading = life.told, None
        if life.state is State.LOADING:
            loading = max(0.0, life.since + life.variant.load - now)
        return Status(
            serves=life.state is State.ACTIVE and told.ready > 0,
            marked=life.marked,
            load=told.load / (told.ready * life.rate) if told.ready else 0.0,
            wait=told.wait,
            loading=loading,
            usable=now >= life.retry,
            slower=life.latency / life.variant.latency,
        )

    def _is_to_say(self, name: str) -> bool:
        """Whether an order is not what stands; what stands of another claim is written again, as it counts no more."""
        count, epoch = self._standing.get(name, (0, self.epoch))
        return self._wanted[name] != count or epoch != self.epoch

    def _give_up(self, now: float, name: str, life: Life) -> None:
        """Order no more of a variant that has failed, or whose workers do not come, until it may be tried again."""
        ready = life.told.ready
        if self._wanted[name] <= ready:
            self._missing.pop(name, None)
        elif now - self._missing.setdefault(name, now) > life.patience and life.state in _COMING:
            del self._missing[name]
            life.on(now, Event.LATE)
            if life.state is State.ACTIVE:
                self._want(now, name, ready, f"{self._wanted[name] - ready} ordered workers did not start")
        if life.state is State.FAILED and self._wanted[name]:
            self._want(now, name, 0, f"it failed; retrying in {life.retry - now:.3g} s")

    def _scale(self, now: float, group: _Group) -> None:
        candidates = [self._candidate(now, each, group.slo) for each in group.variants]
        asked = group.asked > -math.inf
        if not asked and not any(each.ordered for each in candidates):
            return
        if self._idle is not None and group.load == 0 and now - group.asked >= self._idle:
            for each in candidates:
                if each.ordered:
                    self._want(now, each.name, 0, f"no query for {self._idle:g} s")
            return
        load, slo = self._expected(group), group.slo
        if not any(keeps(each, slo) for each in candidates):
            slo = min(each.latency for each in candidates)  # the closest that there is; it is late, whatever waits
            candidates = [self._candidate(now, each, None) for each in group.variants]
        up = scale_up(candidates, load, slo, self._weights, partial(self.fleet.fits, now))
        if up.short is not None:
            self._nowhere[up.short.name] = up.short
        if up.action is not None:
            self._carry_out(now, up.action)
            group.patience.due(now, None, 0.0)
            return
        if self._load_lacking(now, candidates):
            return
        highest = max([load, *(each for _, each in group.loads)])
        down = scale_down(candidates, highest, slo, self._weights, partial(self.fleet.fits, now))
        if down is not None and self._ends_kept(now, down):
            down = None
        victim = None if down is None else down.victim
        loading = 0.0 if victim is None else max(self._settle, self.lives[victim].variant.load)
        if group.patience.due(now, victim, loading) and down is not None:
            self._carry_out(now, down)

    def _expected(self, group: _Group) -> float:
        """Queries a second when a worker ordered now has loaded, if a rise in both halves of the memory goes on.

        Sudden changes and noise are seldom a rise in both.
        """
        loads = group.loads
        if not loads:
            return group.load
        (first, oldest), (middle, between), (last, newest) = loads[0], loads[len(loads) // 2], loads[-1]
        if not first < middle < last:
            return newest
        slope = min((newest - between) / (last - middle), (between - oldest) / (middle - first))
        return newest + max(0.0, slope) * max(each.load for each in group.variants)

    def _memory(self, group: _Group) -> float:
        """Seconds that it would take to have back what runs."""
        if not self._settle:
            return 0.0
        running = [each for each in group.variants if self._wanted[each.name]]
        return max([self._settle, *(each.load + self.fleet.start(each.hardware) for each in running)])

    def _load_lacking(self, now: float, candidates: list[Candidate]) -> bool:
        """Order a worker of what is lacking, one change after the other; whether one was ordered."""
        if any(each.ordered > each.ready for each in candidates):
            return False
        for each in candidates:
            if each.variant.name in self._lacking and not each.ordered and each.usable:
                self._want(now, each.variant.name, 1, "it is asked for, and nothing else of its model will do")
                return self._wanted[each.variant.name] > 0
        return False

    def _ends_kept(self, now: float, down: Action) -> bool:
        """Whether the last worker goes of a variant that was lacking and is still asked."""
        over = {name for name, delta in down.deltas.items() if self._wanted[name] + delta <= 0} | {down.victim}
        return any(
            now - self._kept.get(name, -math.inf) < max(self._settle, self.lives[name].variant.load)
            for name in over
            if name is not None
        )

    def _candidate(self, now: float, variant: Variant, slo: float | None) -> Candidate:
        life = self.lives[variant.name]
        usable = now >= life.retry and (self._vertical or self._wanted[variant.name] > 0)
        wanted = self._wanted[variant.name]
        ready = min(life.told.ready, wanted) if life.state is State.ACTIVE else 0
        rate = in_time(variant, slo, self._weights, life.slower)
        return Candidate(variant, rate, life.latency, wanted, ready, usable)

    def _carry_out(self, now: float, action: Action) -> None:
        for name, delta in action.deltas.items():
            self._want(now, name, self._wanted[name] + delta, action.why)

    def _move(self, now: float, name: str, life: Life) -> None:
        """Have one more worker of an interfered variant where it is not, in place of one that shares its host."""
        shared = set(self.fleet.shared(life.variant))
        if not shared or self._leaving.get(name, set()) & shared or self._wanted[name] > life.told.ready:
            return
        elsewhere = {host for host in self.fleet.hosts if name in self.fleet.on(host)}
        if not self.fleet.fits(now, life.variant, avoid=elsewhere):
            return
        self._leaving[name] = shared
        self._want(
            now, name, self._wanted[name] + 1, "other load on its host slows it down; moving it", avoid=elsewhere
        )

    def _want(self, now: float, name: str, count: int, why: str, avoid: Iterable[str] = ()) -> None:
        life, before = self.lives[name], self._wanted[name]
        if count > before:
            count = before + self.fleet.place(now, life.variant, count - before, tuple(avoid))
        if count == before:
            return
        if count < before:
            self.fleet.release(now, life.variant, before - count, tuple(self._leaving.pop(name, ())))
        self._wanted[name], self._why[name] = count, why
        if count > before:
            self._missing[name] = now
            life.on(now, Event.ORDERED)
        elif count == 0 and life.state is not State.INACTIVE:
            life.on(now, Event.DROPPED)
