"""What a member's process does beside what its parts do."""

import asyncio
import gc
import weakref
from types import SimpleNamespace

from spillway.agents.live.stateful import build
from spillway.agents.live.stateful.build import Built


async def test_an_ended_reign_is_let_go_however_rarely_cycles_are_looked_for(monkeypatch):
    monkeypatch.setattr(build, "_GARBAGE_SECONDS", 0.01)

    class Reign:
        def __init__(self):
            self.itself = self

    built = Built.__new__(Built)
    built._loop, built.speaker = asyncio.get_running_loop(), SimpleNamespace(end=bool)
    gc.disable()
    try:
        reign, gone = Reign(), asyncio.Event()
        weakref.finalize(reign, gone.set)
        del reign
        built._ended()
        await asyncio.wait_for(gone.wait(), 10)
    finally:
        gc.enable()
