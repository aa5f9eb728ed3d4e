"""The services of a pipeline's learners, beside that of the pipeline itself: ready before it, and stopped after it."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Protocol

from spillway.agents.live.registry import Address
from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


log = logging.getLogger(__name__)


class Companion(Protocol):
    """A service as it is run here."""

    ready: threading.Event

    def run(self, stop: threading.Event, /) -> int: ...

    def hurry(self) -> None: ...


class Companions:
    """Runs services, each in a thread of its own, from `start` to `end`."""

    def __init__(self, services: Sequence[Companion]) -> None:
        self._services = services
        self._stops = [threading.Event() for _ in services]  # one each: a service may be told to stop by its own
        self._ending = False
        self._threads: list[threading.Thread] = []
        self._ends: list[int | SpillwayError] = []

    @property
    def ready(self) -> bool:
        return all(service.ready.is_set() for service in self._services)

    def start(self, ended: Callable[[], object]) -> None:
        """Begin to serve; `ended` is called where one ends before it was told to."""
        for service, stop in zip(self._services, self._stops, strict=True):
            thread = threading.Thread(target=partial(self._run, service, stop, ended), name="learner")
            thread.start()
            self._threads.append(thread)

    def hurry(self) -> None:
        for service in self._services:
            service.hurry()

    def end(self) -> int:
        """Stop all and wait for them: the exit code. Raises SpillwayError as one of them has."""
        self._ending = True
        for stop in self._stops:
            stop.set()
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            if isinstance(end, SpillwayError):
                raise end
        return max((end for end in self._ends if isinstance(end, int)), default=0)

    def _run(self, service: Companion, stop: threading.Event, ended: Callable[[], object]) -> None:
        try:
            self._ends.append(service.run(stop))
        except SpillwayError as error:
            self._ends.append(error)
        except Exception as error:
            log.exception("a learner's service failed")
            self._ends.append(SpillwayError(f"a learner's service failed: {error!r}"))
        finally:
            if not self._ending:
                ended()


def port_after(address: Address, count: int) -> Address:
    """Where the next of several supervisors listens, after one and its processes."""
    return address if not address.port else Address(address.host, address.port + 1 + count)
