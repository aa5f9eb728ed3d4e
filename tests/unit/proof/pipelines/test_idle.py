"""An idle pipeline sleeps: its drivers set no timer more often than twice a second, where no policy asks for one."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from spillway import Pipeline, testing
from spillway.agents.memory.loop import PROCESS, VirtualLoop
from tests.unit.testing.test_served import DIAMOND

SECONDS = 20.0
NETWORK = 0.01  # seconds within which a port answers
ROOT = Path(__file__).parents[4]
DRIVERS = tuple(str(ROOT / "spillway/agents" / room) for room in ("run", "core", "live", "systems"))


def driver():
    """Return the function of a driver that is being run, and its process; None where none is."""
    frame = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(DRIVERS):
        frame = frame.f_back
    process = PROCESS.get()
    if frame is None or process is None:
        return None
    return process.name, f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"


@pytest.mark.parametrize("policy", ["naive", "pard"])
def test_drivers_of_an_idle_pipeline_wake_rarely(policy, monkeypatch):
    timers, call_at = Counter(), VirtualLoop.call_at

    def counted(loop, when, callback, *args, context=None):
        if when - loop.time() > NETWORK:
            timers[driver()] += 1
        return call_at(loop, when, callback, *args, context=context)

    with testing.serve(Pipeline.parse(f"policy: {policy}\n{DIAMOND}")) as pipeline:
        for x in range(5):
            pipeline.predict({"x": x})
        pipeline.sleep(5.0)
        monkeypatch.setattr(VirtualLoop, "call_at", counted)
        pipeline.sleep(SECONDS)
    del timers[None]
    often = {who: times for who, times in timers.items() if times > SECONDS / 0.5 + 1}
    assert often == {}
