"""Hosts: what runs on which, and when there is to be another (INFaaS, section 4.2.3).

A host has units and memory of one or more kinds of hardware. A worker is put on the fullest host that has room for it
(best fit, an online bin packing; the paper names none), so hosts at low load become empty. A host is added:

1. where the use of a kind's memory or units exceeds 80 % on every host that has it;
2. where on every host that has a kind a variant of it is interfered;
3. where more than 80 % of the hosts have an overloaded variant: one with the hardware of most of those;
4. ours: where a worker is wanted that fits on none.

One of a kind starts at a time, and serves `start` seconds later. Ours, too: a host that had nothing on it for 60 s is
let go, but not the last. A downgrade starts no host: it happens where there is room. Times are seconds of a clock that
does not go back.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from spillway.topology.variant_sections import HostKind
    from spillway.topology.variants.variant import Variant

FULL: Final = 0.8
EMPTY: Final = 60.0
_EXACT: Final = 1e-9
HERE: Final = "here"


class HostOrder(NamedTuple):
    """Start a host, or let one go."""

    host: str
    kind: str
    start: bool
    why: str


@dataclass(slots=True)
class _Host:
    kind: HostKind
    sort: str
    ready: float
    empty: float  # since when
    on: Counter[Variant] = field(default_factory=Counter)

    def room(self, hardware: str) -> tuple[float, float]:
        """Units and bytes that are left."""
        has = self.kind.has.get(hardware)
        if has is None:
            return 0.0, 0.0
        units = memory = 0.0
        for variant, count in self.on.items():
            if variant.hardware == hardware:
                units, memory = units + count * variant.units, memory + count * variant.memory
        return (math.inf if has.units is None else has.units) - units, (
            math.inf if has.memory is None else has.memory
        ) - memory

    def fits(self, variant: Variant) -> int:
        if variant.hardware not in self.kind.has:
            return 0
        units, memory = self.room(variant.hardware)
        by_units = units / variant.units if variant.units else math.inf
        most = min(by_units, memory / variant.memory) + _EXACT
        return int(min(most, 1 << 20))

    def use(self, hardware: str) -> float:
        """The share of a kind's units or memory, whichever is more, that is taken."""
        has, (units, memory) = self.kind.has[hardware], self.room(hardware)
        shares = [1 - left / of for left, of in ((units, has.units), (memory, has.memory)) if of]
        return max(shares, default=0.0)


class Fleet:
    """The hosts that there are, and what is meant to run on each."""

    def __init__(self, kinds: Mapping[str, HostKind], hosts: Mapping[str, int], now: float = 0.0) -> None:
        """`hosts`: how many of each kind serve now."""
        self.kinds = kinds
        self._hosts: dict[str, _Host] = {}
        self._numbers = 0
        for sort, count in hosts.items():
            for _ in range(count):
                self._add(sort, now, now)

    # What runs where --------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> dict[str, str]:
        """The kind of each host, those that start too."""
        return {name: host.sort for name, host in self._hosts.items()}

    def on(self, host: str) -> dict[str, int]:
        return {variant.name: count for variant, count in self._hosts[host].on.items()}

    def start(self, hardware: str) -> float:
        """Seconds that a host with this hardware takes to start."""
        return min((kind.start for kind in self.kinds.values() if hardware in kind.has), default=0.0)

    def fits(self, now: float, variant: Variant, avoid: Collection[str] = ()) -> int:
        """How many more workers of a variant there is room for."""
        return sum(host.fits(variant) for _, host in self._ready(now, avoid))

    def place(self, now: float, variant: Variant, count: int, avoid: Collection[str] = ()) -> int:
        """Put workers on hosts, as many as fit; how many that was."""
        for done in range(count):
            fitting = [(name, host) for name, host in self._ready(now, avoid) if host.fits(variant)]
            if not fitting:
                return done
            _, fullest = min(fitting, key=lambda each: (each[1].room(variant.hardware)[::-1], each[0]))
            fullest.on[variant] += 1
        return count

    def release(self, now: float, variant: Variant, count: int, first: Collection[str] = ()) -> None:
        """Take workers off: from the hosts `first`, then from the emptiest."""
        for _ in range(count):
            having = [(name, host) for name, host in self._hosts.items() if host.on[variant]]
            if not having:
                return
            _, host = min(having, key=lambda each: (each[0] not in first, sum(each[1].on.values()), each[0]))
            host.on[variant] -= 1
            host.on += Counter()  # without what is not there
            if not host.on:
                host.empty = now

    def shared(self, variant: Variant) -> list[str]:
        """The hosts on which a variant runs beside others."""
        return [name for name, host in self._hosts.items() if host.on[variant] and len(+host.on) > 1]

    # More and fewer ---------------------------------------------------------------------------------------------

    def orders(
        self,
        now: float,
        *,
        overloaded: Collection[str] = (),
        interfered: Collection[str] = (),
        wanted: Iterable[Variant] = (),
    ) -> list[HostOrder]:
        """Decide: `overloaded` and `interfered` are variants' names, `wanted` what fits nowhere."""
        asked = {variant.hardware: f"{variant.name} does not fit on any host" for variant in wanted}
        asked |= {kind: why for kind, why in self._short(now, interfered).items() if kind not in asked}
        asked |= {kind: why for kind, why in self._overloaded(now, overloaded).items() if kind not in asked}
        found = [order for kind, why in asked.items() if (order := self._start(now, kind, why)) is not None]
        return found or self._let_go(now)

    def _ready(self, now: float, avoid: Collection[str] = ()) -> list[tuple[str, _Host]]:
        return [(name, host) for name, host in self._hosts.items() if host.ready <= now and name not in avoid]

    def _short(self, now: float, interfered: Collection[str]) -> dict[str, str]:
        asked = {}
        for hardware in {kind for host in self._hosts.values() for kind in host.kind.has}:
            having = [host for _, host in self._ready(now) if hardware in host.kind.has]
            if not having:
                continue
            if all(host.use(hardware) > FULL + _EXACT for host in having):
                asked[hardware] = f"every host's {hardware} is used by more than {FULL:.0%}"
            elif all(any(each.hardware == hardware and each.name in interfered for each in host.on) for host in having):
                asked[hardware] = f"variants on {hardware} suffer interference on every host"
        return asked

    def _overloaded(self, now: float, overloaded: Collection[str]) -> dict[str, str]:
        hosts = [host for _, host in self._ready(now)]
        pressed = [[each.hardware for each in host.on if each.name in overloaded] for host in hosts]
        count = sum(map(bool, pressed))
        if not count or count <= FULL * len(hosts):
            return {}
        hardware, _ = Counter(kind for host in pressed for kind in host).most_common(1)[0]
        return {hardware: f"{count} of {len(hosts)} hosts have overloaded variants"}

    def _start(self, now: float, hardware: str, why: str) -> HostOrder | None:
        """Start the cheapest host that has a kind, unless one with it is starting."""
        if any(host.ready > now and hardware in host.kind.has for host in self._hosts.values()):
            return None
        there = Counter(self.hosts.values())
        able = [
            sort
            for sort, kind in self.kinds.items()
            if hardware in kind.has and (kind.most is None or there[sort] < kind.most)
        ]
        if not able:
            return None
        sort = min(able, key=lambda each: (self.kinds[each].price, each))
        return HostOrder(self._add(sort, now, now + self.kinds[sort].start), sort, start=True, why=why)

    def _let_go(self, now: float) -> list[HostOrder]:
        ready = self._ready(now)
        idle = [name for name, host in ready if not host.on and now - max(host.empty, host.ready) >= EMPTY]
        idle.sort(key=lambda name: (-self._hosts[name].kind.price, name))
        gone = idle[: max(0, len(ready) - 1)]
        return [
            HostOrder(name, self._hosts.pop(name).sort, start=False, why=f"no variant ran there for {EMPTY:g} s")
            for name in gone
        ]

    def _add(self, sort: str, now: float, ready: float) -> str:
        self._numbers += 1
        name = f"{sort}-{self._numbers}"
        self._hosts[name] = _Host(self.kinds[sort], sort, ready, now)
        return name
