"""The controller of a stage's variants, live: in the stage's front, which knows all that it goes by.

It has claimed the stage's sizes (`spillway.topology.sizes.claimed_as`), as a tuner would, and writes its orders to the
table of sizes, which the front follows as any other's. So one that was slow, or has been replaced, changes nothing, and
the next one begins with what stands. The decisions are `spillway.topology.variants.controller`'s.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from spillway.agents.core.routes.reports import Reporter
from spillway.agents.live.sizes import writer
from spillway.lineage.errors import BrokerError, UsageError
from spillway.topology.sizes import Size, claimed_as, host_pool, key_of
from spillway.topology.variant_sections import HostKind, Room
from spillway.topology.variants.controller import POLL, Controller
from spillway.topology.variants.hosts import HERE, Fleet
from spillway.topology.variants.variant import variants_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.agents.core.lanes import Lanes
    from spillway.agents.core.routes.variants import Variants
    from spillway.agents.live.sizes import Sizes
    from spillway.agents.live.stage.config import StageConfig, StageProcessConfig
    from spillway.agents.live.stage.variants import VariantCrews
    from spillway.topology.ensembles import Served
    from spillway.topology.variant_sections import VariantsSpec
    from spillway.topology.variants.controller import Order
    from spillway.topology.variants.hosts import HostOrder

log = logging.getLogger(__name__)

_REPORT: Final = 2.0  # seconds between two reports
_AGAIN: Final = 1.0  # seconds after a claim ended, or could not be made
_HEARD: Final = 5.0  # seconds within which the table tells what was written to it


def fleet_of(section: VariantsSpec, there: Mapping[str, int], now: float) -> Fleet:
    """This machine, with the room that the section gives workers; or emulated hosts, `there` or as the section says."""
    if section.hosts is not None:
        counts = {kind: there.get(kind, each.count) for kind, each in section.hosts.items()}
        return Fleet(section.hosts, counts, now)
    kinds = {each.hardware for each in section.of.values()}
    own = {"core": float(os.cpu_count() or 1)}
    has = {kind: Room(units=(section.room or own).get(kind)) for kind in kinds}
    return Fleet({HERE: HostKind(most=1, start=0.0, has=has)}, {HERE: 1})


def standing(stage: str, names: Iterable[str], newest: Mapping[bytes, Size]) -> dict[str, Size]:
    """What the table says of pools of a stage, whichever pipeline file it goes with."""
    found = {name: newest.get(key_of(stage, name)) for name in names}
    return {name: size for name, size in found.items() if size is not None}


def counts(config: StageConfig, names: Iterable[str], newest: Mapping[bytes, Size]) -> dict[str, int]:
    """The workers that each variant is to have, as the table says; without those of which it says nothing."""
    digest, found = config.pipeline.frame, standing(config.stage, names, newest)
    return {name: size.count for name, size in found.items() if size.digest == digest}


class Scaling:
    """Has a stage's variants scaled, while it serves, on the stage's loop."""

    def __init__(
        self,
        config: StageProcessConfig,
        route: Variants,
        lanes: Lanes,
        crews: VariantCrews,
        sizes: Sizes,
        clock: Callable[[], float],
    ) -> None:
        """`clock`: the one by which queries become ready."""
        self._clock = clock
        self._config, self._route, self._lanes, self._crews, self._sizes = config, route, lanes, crews, sizes
        self._written: dict[str, tuple[float, Order]] = {}
        self._stopping = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._said = ""
        self.controller: Controller | None = None
        self.orders = 0
        self.cost = 0.0
        """Of all workers so far."""
        self.hosts_cost = 0.0
        """Of all emulated hosts so far."""
        self._charged = time.monotonic()

    @property
    def states(self) -> dict[tuple[str, ...], float]:
        """1 for the state that each variant is in, while it is scaled from here."""
        if self.controller is None:
            return {}
        return {(name, str(life.state)): 1.0 for name, life in self.controller.lives.items()}

    @property
    def hosts(self) -> Counter[str]:
        """The emulated hosts of each kind, those that start too."""
        fleet = None if self.controller is None else self.controller.fleet
        return Counter() if fleet is None or HERE in fleet.kinds else Counter(fleet.hosts.values())

    @property
    def stale(self) -> dict[str, float]:
        """The variants whose profile is stale, and times it that their batches take."""
        return {} if self.controller is None else self.controller.stale

    async def run(self) -> None:
        """Control the variants, one claim after the other, until this is cancelled."""
        while True:
            try:
                await self._reign()
            except UsageError as error:
                self._say(f"{self._config.stage}: this process does not scale its variants: {error}")
            except BrokerError as error:
                log.warning("%s: its variants are not scaled at the moment: %s", self._config.stage, error)
            await asyncio.sleep(_AGAIN)

    def begin(self, ended: Callable[[asyncio.Task[None]], object]) -> None:
        """Control the variants from now on; `ended` is told if that ends by itself. Call in a running loop."""
        self._task = asyncio.get_running_loop().create_task(self.run())
        self._task.add_done_callback(ended)

    def stop(self) -> None:
        self._stopping.set()
        if self._task is not None:
            self._task.cancel()

    async def _reign(self) -> None:
        config, lost = self._config, threading.Event()
        assert config.claims is not None  # the caller has looked
        claims, name = config.claims, config.pipeline.spec.name
        owned = await asyncio.to_thread(claims, config.settings, name, [claimed_as(config.stage)])
        try:
            above = max((size.epoch for size in self._standing(mine=False).values()), default=0)
            if await asyncio.to_thread(owned.claim, self._stopping.is_set, above):
                owned.keep(lost.set, self._stopping.is_set)
                while not lost.is_set() and not (self.controller is not None and self.controller.superseded):
                    await self._control(owned.epoch, lost)
        finally:
            self.controller = None
            await asyncio.shield(asyncio.to_thread(owned.leave))

    async def _control(self, epoch: int, lost: threading.Event) -> None:
        """Control the variants that serve now, until they are others, or the claim is over."""
        section, now = self._crews.section, time.monotonic()
        variants, fleet = variants_of(section), fleet_of(section, self._standing_hosts(), now)
        controller = Controller(variants, fleet, epoch, idle=section.idle, settle=section.settle)
        for name, count in self._crews.wanted().items():
            if count and name in section.of:
                controller.stands(now, name, count, 0)  # as the file says; what the table says comes next
        self.controller, self._written = controller, {}
        reporter, due = Reporter(self._route, now, self._crews.deaths()), now + _REPORT
        log.info("%s: this process scales its variants (epoch %d)", self._config.stage, epoch)
        while not lost.is_set() and not controller.superseded and self._crews.section is section:
            now = time.monotonic()
            self._charge(now)
            for name, size in self._standing().items():
                controller.stands(now, name, size.count, size.epoch)
            if now >= due:
                due = max(due + _REPORT, now)
                self._report(now, controller, reporter)
            await self._write(now, controller.orders(now))
            await self._order_hosts(controller, controller.host_orders(now))
            await asyncio.sleep(POLL)

    def _report(self, now: float, controller: Controller, reporter: Reporter) -> None:
        names = self._crews.names
        runs = [(names[run.lane], run.queries, run.seconds) for run in self._crews.runs]
        self._crews.runs.clear()
        waits = self._lanes.waits(self._clock())
        controller.report(now, reporter.report(now, self._crews.alive(), self._crews.deaths(), runs, waits))
        self._route.note(controller.statuses(now))

    async def _write(self, now: float, orders: Sequence[Order]) -> None:
        """Write orders; what was written just now is waited for."""
        fresh = [each for each in orders if self._is_news(now, each)]
        if not fresh:
            return
        await self._record({each.variant: (each.workers, each.why, each.epoch) for each in fresh})
        self._written |= {each.variant: (now, each) for each in fresh}
        self.orders += len(fresh)

    async def _order_hosts(self, controller: Controller, orders: Sequence[HostOrder]) -> None:
        """Write how many emulated hosts of each kind there are now, for the next controller."""
        if orders:
            there, epoch = self.hosts, controller.epoch
            await self._record({host_pool(each.kind): (there[each.kind], each.why, epoch) for each in orders})

    async def _record(self, counts: Mapping[str, tuple[int, str, int]]) -> None:
        """Write sizes of pools: by name the count, why, and the epoch of who orders it."""
        config, who = self._config, f"controller {writer()}"
        rows: dict[bytes, Size | Served] = {}
        for pool, (count, why, epoch) in counts.items():
            size = Size(count, who, why, time.time(), epoch, config.pipeline.frame)
            rows[key_of(config.stage, pool)] = size
            log.info("%s: %s: %s", config.stage, pool, size.text)
        await asyncio.to_thread(self._sizes.write, rows)

    def _is_news(self, now: float, order: Order) -> bool:
        at, before = self._written.get(order.variant, (-math.inf, None))
        return order != before or now - at > _HEARD

    def _standing(self, *, mine: bool = True) -> Mapping[str, Size]:
        """What the table says of variants; `mine`: of those of this pipeline file alone."""
        return self._told(self._crews.section.of, mine=mine)

    def _standing_hosts(self) -> dict[str, int]:
        """The emulated hosts of each kind, as the table says."""
        pools = {kind: host_pool(kind) for kind in self._crews.section.hosts or ()}
        told = self._told(pools.values())
        return {kind: told[pool].count for kind, pool in pools.items() if pool in told}

    def _told(self, pools: Iterable[str], *, mine: bool = True) -> dict[str, Size]:
        found = standing(self._config.stage, pools, self._sizes.newest(0.0))
        return {name: size for name, size in found.items() if not mine or size.digest == self._config.pipeline.frame}

    def _charge(self, now: float) -> None:
        since, self._charged = now - self._charged, now
        alive = self._crews.alive()
        prices = {name: each.price for name, each in self._route.variants.items()}
        self.cost += since * sum(count * prices.get(name, 0.0) for name, count in alive.items())
        kinds = self._crews.section.hosts or {}
        self.hosts_cost += since * sum(kinds[kind].price / 3600 * count for kind, count in self.hosts.items())

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            log.warning("%s", text)
