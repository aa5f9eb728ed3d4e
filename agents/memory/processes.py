"""Processes of a memory world: each is what one context variable names, and can be killed at any moment.

A process is killed between two of its callbacks, hence at any await, or at a call of a port (`reach`): then the call
takes effect or not, as the world says, and nothing after it does. A stopped process keeps what comes to it until it
goes on, as after SIGSTOP and SIGCONT. Its clock may be ahead of the world's.
"""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from spillway.agents.memory.loop import PROCESS, KilledError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from spillway.agents.memory.loop import VirtualLoop

_T = TypeVar("_T")


class Link(Protocol):
    """What has left a process and has not arrived."""

    def stopped(self) -> None: ...

    def goes_on(self) -> None: ...

    def died(self) -> None: ...


BEFORE, AFTER = "before", "after"


class Process:
    """One process of a world."""

    def __init__(self, loop: VirtualLoop, name: str, *, ahead: float = 0.0) -> None:
        """`ahead`: seconds that its clock is ahead of the world's."""
        self.name = name
        self.alive = True
        self.withheld: list[asyncio.Handle] | None = None  # what came since it was stopped; None while it runs
        self.wires: list[Link] = []
        self._loop = loop
        self._ahead = ahead
        self._context = Context()
        self._context.run(PROCESS.set, self)
        self.strikes: Callable[[Process], str] = lambda _process: ""
        """Whether it dies at this call of a port: `BEFORE` its effect, `AFTER` it, or "" for not."""

    @property
    def now(self) -> float:
        """What its clock shows, in unix seconds."""
        return self._loop.now + self._ahead

    def start(self, main: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run a coroutine in this process, now."""
        return self._loop.create_task(main, name=self.name, context=self._context.copy())

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Call something in this process later, if it lives then; if it is stopped then, when it goes on."""
        self._loop.call_at(self._loop.now + seconds, what, context=self._context.copy())

    def stop(self) -> None:
        self.withheld = []
        for wire in self.wires:
            wire.stopped()

    def go_on(self) -> None:
        withheld, self.withheld = self.withheld or [], None
        for wire in self.wires:
            wire.goes_on()
        for handle in withheld:
            self._loop.run_handle(handle)

    def kill(self) -> None:
        """End now. Of what was under way to each partition, a beginning arrives."""
        self.alive = False
        self.withheld = None
        for wire in self.wires:
            wire.died()

    def reach(self, effect: Callable[[], _T]) -> _T:
        """Do what a call of a port does to the world.

        Raises KilledError where the process dies at it, before the effect or after, and where it is dead.
        """
        if not self.alive:
            raise KilledError
        strike = self.strikes(self)
        if strike == BEFORE:
            self.kill()
            raise KilledError
        result = effect()
        if strike == AFTER:
            self.kill()
        if not self.alive:
            raise KilledError
        return result
