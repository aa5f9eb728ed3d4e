"""A driver whose ports block, on the one thread that owns the consumer: none of its coroutines ever suspends.

So it is run to its end by being begun, without an event loop, and a rebalance callback of librdkafka runs its owner's
coroutine in the midst of a `poll`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from spillway.agents.models.execution import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

_T = TypeVar("_T")


def complete(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine over ports that block to its end. Raises RuntimeError where it suspends."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        value: _T = ended.value
        return value
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waits for an event loop, and there is none")


async def block(seconds: float) -> None:
    """Sleep on this thread."""
    time.sleep(seconds)  # noqa: ASYNC251 - nobody else is on it


def in_thread(name: str, function: Callable[[], Any]) -> Future[Any]:
    """Run a function in a thread of its own, which the process's end does not wait for."""
    runner = Runner(name)
    future = runner.begin(function)
    runner.end()
    return future
