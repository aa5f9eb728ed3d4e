"""Which generation of a Velox model's features is current: a log of what has happened to each, and what it comes to.

`<p>-<learner>.generations` is one partition, whose order decides; its records are JSON and none replaces another.
Whoever appends reads on to see whether the record counts:

    asked                     somebody wants features retrained: this opens the next generation, unless one is open
    trained  N, theta, ..     they are better: the learner is to hold N beside the current one, and no other
    kept     N, ..            they are not: N ends, and nothing changes
    failed   N, why           N ends, and nothing changes
    switched N                every user's row has N: it is current, and N is no longer open
    current  N                a person wants N, which is held and not open

A record that does not fit what comes before is void for everyone: a second `asked` joins the first, of two trainers'
results the first counts, and nobody can switch to what is not held. So who manages a model may die at any record, or be
there twice: whoever reads the log goes on from it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage.errors import BrokerError
from spillway.producers.table import READ_SECONDS, Table, TableView, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.producers.connection import ClientSettings
    from spillway.producers.kafka.log import KafkaLog

ASKED: Final = "asked"
TRAINED: Final = "trained"
KEPT: Final = "kept"
FAILED: Final = "failed"
SWITCHED: Final = "switched"
CURRENT: Final = "current"
_PATIENCE: Final = 30.0  # seconds for a read to the end, or up to what was appended
_LATER = (TRAINED, KEPT, FAILED, SWITCHED)  # no set: a kind may be whatever JSON has


@dataclass(slots=True)
class Generation:
    """One generation: `events` that count, `theta` where it was trained, `end` where it is not open any more."""

    number: int
    theta: str = ""
    end: str = ""  # kept, failed or switched
    events: list[Mapping[str, Any]] = field(default_factory=list)


class Generations:
    """What a log of events comes to. Pure: the same for all who take the same events."""

    def __init__(self) -> None:
        self.known: dict[int, Generation] = {0: Generation(0, end=SWITCHED)}  # the class's own features
        self.current = 0
        self.held: tuple[int, ...] = (0,)  # by the learner: the current one, and the one to go back or on to

    @property
    def open(self) -> Generation | None:
        """The generation that is being made."""
        newest = self.known[max(self.known)]
        return None if newest.end else newest

    def take(self, event: Mapping[str, Any]) -> bool:
        """Take the next event; whether it counts."""
        kind, number, opened = event.get("event"), event.get("generation"), self.open
        if kind == ASKED:
            if opened is not None:
                return False
            opened = self.known[max(self.known) + 1] = Generation(max(self.known) + 1)
        elif kind == CURRENT:
            if number not in self.held or number == self.current or not self.known[number].end:
                return False
            self.current, opened = number, self.known[number]
        elif opened is None or number != opened.number or kind not in _LATER:
            return False
        elif kind == TRAINED:
            if opened.theta:
                return False
            opened.theta = str(event.get("theta"))
            self.held = (self.current, opened.number)
        elif kind == SWITCHED:
            if not opened.theta:
                return False
            self.current = opened.number
            opened.end = SWITCHED
        else:
            opened.end = str(kind)
            self.held = tuple(each for each in self.held if each != opened.number)
        opened.events.append(event)
        return True


class Followed(TableView):
    """The log of one model, followed while the context is open."""

    def __init__(self, settings: ClientSettings, topic: str, *, log: KafkaLog | None = None) -> None:
        """`log`: that of the process, where it has one."""
        self._settings, self._topic = settings, topic
        self._state = Generations()
        self._voids: set[str] = set()  # events that were read and do not count
        self._seen: set[str] = set()
        self._changed = threading.Condition()
        self._table = Table(log or settings, topic, self._heard)

    @property
    def now(self) -> Generations:
        """As far as the log is read. Who holds on to it sees it change."""
        return self._state

    def wait(self, timeout: float = READ_SECONDS) -> None:
        """Until the log is read to its end."""
        self._table.wait(timeout)

    def require(self, timeout: float = _PATIENCE) -> Generations:
        """The log read to its end. Raises BrokerError that says why it cannot be."""
        self._table.require(timeout, patient=True)
        return self._state

    def append(self, event: str, generation: int | None = None, **told: Any) -> bool:
        """Append an event and read up to it; whether it counts. Raises BrokerError where neither is known."""
        key = f"{event}/{os.urandom(8).hex()}"
        said: dict[str, Any] = {"event": event, "at": time.time(), **told}
        if generation is not None:
            said["generation"] = generation
        write(self._settings, self._topic, {key.encode(): json.dumps(said).encode()})
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._seen, _PATIENCE):
                raise BrokerError(f"{self._topic} could not be read up to the appended record")
            return key not in self._voids

    def _heard(self, key: bytes, value: bytes | None) -> None:
        """On the log's thread, in the order of the log."""
        name = key.decode("utf-8", "replace")
        try:
            event = json.loads(value or b"null")
        except (ValueError, RecursionError):
            event = None
        with self._changed:
            if name not in self._seen:
                self._seen.add(name)
                if not isinstance(event, dict) or not self._state.take(event):
                    self._voids.add(name)
            self._changed.notify_all()
