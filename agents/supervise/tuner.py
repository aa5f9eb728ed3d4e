"""The tuner's process: it owns the sizes of the stages that a plan sizes, and has them follow the load.

The decisions are `spillway.topology.capacity.tuner`'s. It counts the queries by the offsets of the ingress, which tells
of load even where no root lives. It writes only what it owns (`spillway.topology.sizes`): whoever holds a stage, or is
another owner of it, is left alone. Where it dies the sizes stay, and the next one reads the last minute's arrivals and
goes on.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spillway.agents.live.ingress import Ingress
from spillway.agents.live.registry import Address, Registration
from spillway.agents.live.sizes import Sizes, writer
from spillway.agents.metrics import Families, ProcessMetrics
from spillway.agents.supervise.child import TUNER
from spillway.agents.supervise.ownership import OwnedError, Ownership
from spillway.lineage import metric_names as names
from spillway.lineage.errors import BrokerError
from spillway.topology.capacity.envelope import LONGEST
from spillway.topology.capacity.tuner import Tuner
from spillway.topology.sizes import FROM_FILE, Size, claimed_as, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from prometheus_client import Metric

    from spillway.producers.connection import ClientSettings
    from spillway.topology.capacity.tuner import Basis, Form, Order
    from spillway.topology.load import Pipeline

log = logging.getLogger(__name__)

TICK: Final = 0.05
_AGAIN: Final = 1.0  # after a claim ended, or could not be made, or a size could not be written
_HEARD: Final = 2.0  # within which the table tells what was written to it


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningConfig:
    """What a tuner's process is told when it starts."""

    pipeline: Pipeline
    basis: Basis
    settings: ClientSettings
    run_dir: Path
    form: Form = "envelope"
    metrics: Address = Address()  # noqa: RUF009 - immutable


class TunerMetrics(ProcessMetrics):
    """What the tuner shows of itself."""

    stage = label = role = TUNER
    replica = 0

    def __init__(self, pipeline: str, stages: tuple[str, ...]) -> None:
        self.pipeline = pipeline
        self.tunes = dict.fromkeys(stages, False)
        self.orders = dict.fromkeys(stages, 0)
        self.short: frozenset[str] = frozenset()
        self.arrived = 0
        self.excess = 0.0

    def collect(self) -> Iterator[Metric]:
        make = Families(self.pipeline, self.stage, self.replica)
        of = (names.OF_STAGE,)
        yield make.counter(names.RECEIVED_TOTAL, "Queries appended to the ingress", self.arrived)
        yield make.gauge(
            names.TUNER_EXCESS, "Largest ratio of the live arrival rate to the plan's, over windows", self.excess
        )
        yield make.gauges(
            names.TUNER_TUNES,
            "1 where the tuner sets a stage's sizes",
            of,
            {(s,): float(on) for s, on in self.tunes.items()},
        )
        yield make.counters(
            names.TUNER_ORDERS_TOTAL, "Sizes that the tuner ordered", of, {(s,): n for s, n in self.orders.items()}
        )
        yield make.gauges(
            names.TUNER_SHORT,
            "1 where a stage needs more units than there are",
            of,
            {(s,): float(s in self.short) for s in self.tunes},
        )


def run(config: TuningConfig) -> int:
    """Tune until SIGTERM or SIGINT; returns the exit code. Raises BrokerError where there is no cluster."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    TunerLoop(config, stop).run()
    return 0


class TunerLoop:
    """One claim after the other, each of all stages that are to be had."""

    def __init__(self, config: TuningConfig, stop: threading.Event) -> None:
        self._config, self._stop = config, stop
        self._name = config.pipeline.spec.name
        self._stages = tuple(config.basis.stages)
        self._metrics = TunerMetrics(self._name, self._stages)
        self._sizes = Sizes(config.settings, self._name)
        self._ingress = Ingress(config.settings, self._name, config.pipeline.spec.partitions)
        self._said: dict[str, str] = {}  # by stage: why it is not tuned
        self._written: dict[str, tuple[Size, float]] = {}  # and when, by the monotonic clock

    def run(self) -> None:
        config = self._config
        registration = Registration(config.run_dir, self._metrics, config.metrics)
        try:
            with self._sizes:
                self._sizes.require(patient=True)
                registration.mark_ready()
                log.info("%s: the form is %s", ", ".join(self._stages), config.form)
                while not self._stop.is_set():
                    try:
                        self._reign()
                    except BrokerError as error:
                        log.warning("%s; trying again", error)
                    self._stop.wait(_AGAIN)
        finally:
            self._ingress.close()
            registration.close()

    def _reign(self) -> None:
        """Own what is to be had, and tune it, until that is something else."""
        mine = self._mine()
        if not mine:
            return
        owned = Ownership(self._config.settings, self._name, [claimed_as(stage) for stage in mine], say=log.info)
        try:
            above = max(self._newest(stage).epoch for stage in mine)
            if not owned.claim(self._stop.is_set, above):
                return
            lost = threading.Event()
            owned.keep(lost.set, self._stop.is_set)
            log.info("tunes %s (epoch %d)", ", ".join(mine), owned.epoch)
            self._metrics.tunes = {stage: stage in mine for stage in self._stages}
            self._tune(mine, owned.epoch, lost)
        except OwnedError as error:
            self._say("", f"another tuner sizes this pipeline: {error.claim.owner.name}")
        finally:
            owned.leave()
            self._metrics.tunes = dict.fromkeys(self._stages, False)

    def _mine(self) -> tuple[str, ...]:
        """The stages that are to be tuned, as the table says now; says of each other one, once, why it is not."""
        newest, found = self._sizes.newest(0.0), []
        for stage in self._stages:
            size = newest.get(key_of(stage))
            if size is None or size.digest != self._config.pipeline.frame:
                self._say(stage, "its size belongs to another version of the pipeline")
            elif size.held:
                self._say(stage, f"it is held at {size.text}")
            else:
                self._said.pop(stage, None)
                found.append(stage)
        return tuple(found)

    def _say(self, stage: str, why: str) -> None:
        if self._said.get(stage) != why:
            self._said[stage] = why
            log.warning("%s is not tuned: %s", stage or self._name, why)

    def _newest(self, stage: str) -> Size:
        """The size that stands, or that was written and has not come back yet."""
        size = self._sizes.newest(0.0)[key_of(stage)]
        written, at = self._written.get(stage, (size, 0.0))
        return written if written.epoch == size.epoch and time.monotonic() - at < _HEARD else size

    def _tune(self, mine: tuple[str, ...], epoch: int, lost: threading.Event) -> None:
        fresh = all(self._newest(stage).why == FROM_FILE for stage in mine)
        tuner = Tuner(self._config.basis, self._config.form, fresh=fresh)
        asked = time.monotonic()  # reading the history takes time, in which more comes
        for age, total in self._ingress.history(int(LONGEST)):
            tuner.count(asked - age, total)
        due = time.monotonic()
        while not self._stop.is_set() and not lost.is_set() and self._mine() == mine:
            arrived, now = self._ingress.total(), time.monotonic()
            if arrived is not None:
                self._metrics.arrived = arrived
                tuner.count(now, arrived)
            for stage in mine:
                size = self._newest(stage)
                if size.epoch > epoch:
                    return  # of a later claim
                tuner.stands(now, stage, size.count)
            self._write(tuner.orders(now), epoch)
            self._metrics.excess, self._metrics.short = tuner.excess, tuner.short
            for text in tuner.said():
                log.warning("%s", text)
            due = max(due + TICK, now)
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _write(self, orders: Mapping[str, Order], epoch: int) -> None:
        if not orders:
            return
        who, digest = f"tuner {writer()}", self._config.pipeline.frame
        made = {stage: Size(each.count, who, each.why, time.time(), epoch, digest) for stage, each in orders.items()}
        for stage, size in made.items():
            log.info("%s: %s", stage, size.text)
        self._sizes.write({key_of(stage): size for stage, size in made.items()})
        self._written.update((stage, (size, time.monotonic())) for stage, size in made.items())
        for stage in made:
            self._metrics.orders[stage] += 1
