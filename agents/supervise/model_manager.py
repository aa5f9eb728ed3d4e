"""Velox' model manager: has features retrained when they are stale, and switches to those that are better.

It runs beside a learner's processes, and holds nothing that the log of generations (`spillway.producers.generations`)
does not say: where it dies at any point, the next one goes on from there. That log is its command to the learner; what
it sends has a shard look at the log, and may be taken any number of times. One generation is made at a time:

    asked -> a child trains and judges -> better: trained -> every shard, and then every user, is told to follow
          -> every row of the table has it: switched
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.learning.velox.learning import FOLLOW, HELD, REPORT
from spillway.agents.learning.velox.staleness import stale_of, together
from spillway.lineage.errors import SpillwayError, WireError
from spillway.lineage.keys import partition_for
from spillway.lineage.message import PREDICTION
from spillway.lineage.values.codec import Decoder
from spillway.producers.client import Client
from spillway.producers.generations import ASKED, FAILED, KEPT, SWITCHED, TRAINED, Followed
from spillway.producers.published import decode_row, key_of_shared
from spillway.producers.table import Table
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from spillway.lineage.message import Outcome
    from spillway.producers.connection import ClientSettings
    from spillway.producers.generations import Generations
    from spillway.topology.load import Pipeline

log = logging.getLogger(__name__)

_LOOK: Final = 1.0  # seconds between two looks at the errors
_AGAIN: Final = 2.0  # after something failed
_LONGEST: Final = 60.0  # of ever longer pauses, where that was unexpected
_POLL: Final = 0.1
_PATIENCE: Final = 20.0  # seconds for one command, a failover included
_AT_ONCE: Final = 256  # commands in flight
_KILLS: Final = 3
_MANAGER: Final = "the model manager"


def own_key(shard: int, partitions: int, shards: int) -> str:
    """A key that lies in a shard, for what is said to the shard and not to a user."""
    return next(
        key for key in (f"~{number}" for number in range(1 << 20))
        if partition_for(key.encode(), partitions) % shards == shard
    )  # fmt: skip


class Shards:
    """What a learner's shards are asked, each by a record of its input."""

    def __init__(self, learner: Pipeline, client: Client, stop: threading.Event | None = None) -> None:
        """`stop`: when nobody waits for an answer any more."""
        spec = learner.spec
        self._stop = threading.Event() if stop is None else stop
        self.stage = spec.stages[0]
        self._client = client
        self._keys = [own_key(shard, spec.partitions, self.stage.shards) for shard in range(self.stage.shards)]

    def report(self) -> dict[str, dict[str, Any]]:
        """By generation: what the shards know of it, as one. Raises SpillwayError where one does not answer."""
        told = [each.outputs for each in self._sent({REPORT: True}, self._keys)]
        return {
            number: {"theta": each["theta"], **together([shard[number] for shard in told if number in shard])}
            for number, each in told[0].items()
        }

    def follow(self) -> None:
        """Have each shard hold what the log of generations says. Raises SpillwayError as `follow_of` does."""
        self.follow_of(self._keys)

    def follow_of(self, users: Iterable[str]) -> None:
        """Have users in step with it. Raises RefusedError where a learner cannot; SpillwayError without an answer."""
        self._sent({FOLLOW: True}, users)

    def _sent(self, inputs: Mapping[str, Any], keys: Iterable[str]) -> list[Outcome]:
        ways = [self._client.submit(inputs, key=key, deadline=_PATIENCE) for key in keys]
        left = set(ways)
        while left:
            left = wait(left, timeout=_POLL).not_done
            if left and self._stop.is_set():
                raise SpillwayError("it is being stopped")
        outcomes = [way.result() for way in ways]
        for outcome in outcomes:
            if outcome.kind != PREDICTION:
                raise RefusedError(f"learner {self.stage.name!r} refuses: {outcome.reason}: {outcome.text}")
        return outcomes


def _result(printed: str) -> dict[str, Any] | None:
    """What came of a training; its class may have printed before, and after it as the process ended."""
    for line in reversed(printed.splitlines()):
        with suppress(ValueError, RecursionError):
            told = json.loads(line)
            if isinstance(told, dict) and "held" in told:
                return told
    return None


class RefusedError(SpillwayError):
    """A learner did not take a command."""


class ModelManager:
    """A companion of a learner's service."""

    def __init__(
        self,
        learner: Pipeline,
        cluster: ClientSettings,
        client_config: Path | None,
        after: threading.Event,
        say: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`after`: when there is something to manage."""
        self.ready = threading.Event()
        self.ready.set()  # nobody waits for it
        self._learner, self._cluster, self._client_config = learner, cluster, client_config
        self._after, self._say = after, say
        self._environment = dict(os.environ if environment is None else environment)
        told = learner.spec.stages[0].arguments.get("stale")
        self._stale = None if told is None else stale_of(told)
        self._kills = 0

    def hurry(self) -> None:
        """It never lingers."""

    def run(self, stop: threading.Event, /) -> int:
        while not stop.is_set() and not self._after.wait(_POLL):
            pass
        pause = _AGAIN
        while not stop.is_set():
            began = time.monotonic()
            try:
                self._manage(stop)
            except SpillwayError as error:
                if not stop.is_set():
                    self._say(f"its model is temporarily not managed: {error}")
                stop.wait(_AGAIN)
            except Exception as error:  # whatever it is, it is no reason not to serve
                log.exception("%s: managing its model failed", self._learner.spec.name)
                self._say(f"its model is temporarily not managed: {error!r}; the log has the traceback")
                pause = _AGAIN if time.monotonic() - began > _LONGEST else min(2 * pause, _LONGEST)
                stop.wait(pause)
        return 0

    def _manage(self, stop: threading.Event) -> None:
        spec = self._learner.spec
        with (
            Followed(self._cluster, topics.generations(spec.name)) as log,
            Client(spec, self._cluster, grace=1.0, in_flight=2 * _AT_ONCE) as client,
        ):
            shards = Shards(self._learner, client, stop)
            while not stop.wait(_LOOK):
                known = log.require()
                opened = known.open
                if opened is None:
                    self._watch(shards, log, known)
                elif not opened.theta:
                    self._train(shards, log, known, opened.number, stop)
                else:
                    self._fill(shards, log, known, opened.number, stop)

    def _watch(self, shards: Shards, log: Followed, known: Generations) -> None:
        if self._stale is None:
            return
        told = shards.report().get(str(known.current))
        if told is None:
            return
        newest = known.known[max(known.known)]
        seen = newest.events[-1].get("seen", 0.0) if newest.end in {KEPT, FAILED} else 0.0
        why = self._stale.why(told)
        if why and told["errors"][0] >= seen + self._stale.window and log.append(ASKED, by=_MANAGER, why=why):
            self._say(f"generation {known.current} is stale: {why}")

    # Training ---------------------------------------------------------------------------------------------------

    def _train(self, shards: Shards, log: Followed, known: Generations, number: int, stop: threading.Event) -> None:
        seen = shards.report().get(str(known.current), {"errors": [0.0]})["errors"][0]
        code, out, error = self._child(known.current, number, stop)
        if stop.is_set():
            return
        if code < 0:
            self._kills += 1
            why = f"its trainer was killed by {signal.Signals(-code).name}"
            self._say(f"generation {number}: {why}")
            if self._kills >= _KILLS:
                self._kills = 0
                log.append(FAILED, number, why=f"{why}, the {_KILLS}rd in turn", seen=seen)
            return
        self._kills = 0
        told = None if code else _result(out)
        if told is None:
            why = (error.strip().splitlines() or ["its trainer returned nothing"])[-1].removeprefix("error: ")
            log.append(FAILED, number, why=why, seen=seen)
            self._say(f"generation {number} failed: {why}")
            return
        log.append(TRAINED if "theta" in told else KEPT, number, **told, seen=seen)
        better = "better" if "theta" in told else f"rejected, as {told['why']}"
        self._say(f"generation {number} is {better}: {told['new']:.4g} on held-out observations, was {told['old']:.4g}")

    def _child(self, current: int, number: int, stop: threading.Event) -> tuple[int, str, str]:
        """Train in a process of its own, on one core: its exit code, what it printed, and its errors."""
        command = [sys.executable, "-P", "-m", "spillway.agents.cli.main", "models", "train", str(self._learner.path)]
        command += ["--current", str(current), "--bootstrap", self._cluster.bootstrap, "--parent", str(os.getpid())]
        if self._client_config is not None:
            command += ["--client-config", str(self._client_config)]
        environment = self._environment | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            self._say(f"generation {number} is trained by process {child.pid}")
            while True:
                try:
                    out, error = child.communicate(timeout=_POLL)
                except subprocess.TimeoutExpired:
                    if stop.is_set():
                        child.kill()
                else:
                    return child.returncode, out, error

    # Switching --------------------------------------------------------------------------------------------------

    def _fill(self, shards: Shards, log: Followed, known: Generations, number: int, stop: threading.Event) -> None:
        """Have all rows hold the generation, then switch. May be done again from its beginning."""
        spec = self._learner.spec
        report = shards.report()
        if str(known.current) not in report:
            raise SpillwayError(f"learner {shards.stage.name!r} does not hold generation {known.current}")
        try:
            shards.follow()
            rows = topics.table(spec.name, shards.stage.name)
            with Table(self._cluster, rows, partitions=range(spec.partitions)) as table:
                while not self._complete(table, shards, number):
                    if stop.wait(_POLL):
                        return
                if log.append(SWITCHED, number):
                    self._say(f"switched to generation {number}")
                self._complete(table, shards, number)  # who was new just before a shard heard of it
        except RefusedError as error:
            log.append(FAILED, number, why=str(error), seen=report[str(known.current)]["errors"][0])
            self._say(f"generation {number} failed: {error}")

    def _complete(self, table: Table, shards: Shards, number: int) -> bool:
        """Whether all rows have a generation; shards, and then users, whose have not are asked again to follow."""
        spec = self._learner.spec
        decoder = Decoder(spec.limits.merged())
        lacking, rows = [], table.require()
        for key, value in rows.items():
            try:
                found = decode_row(value, decoder).value
            except WireError:
                continue  # nobody can read it
            if str(number) not in found[HELD]:
                lacking.append(key)
        of_shards = {key_of_shared(shard) for shard in range(shards.stage.shards)}
        if not of_shards <= rows.keys() - set(lacking):  # one may not have read so far in the log
            shards.follow()
            return False
        users = [key.decode() for key in lacking]
        for at in range(0, len(users), _AT_ONCE):
            shards.follow_of(users[at : at + _AT_ONCE])
        return not lacking
