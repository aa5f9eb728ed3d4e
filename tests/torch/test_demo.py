"""The demo ends all that it started, also on Ctrl-C. (That it runs to its end is what `make demo` shows.)"""

import os
import signal
import subprocess

import psutil
import pytest

from examples.plates.training import ensure_trained
from tests.acceptance.serving import ROOT, SPILLWAY
from tests.waiting import until


@pytest.mark.nightly
def test_ctrl_c_ends_the_demo_and_everything_it_started(tmp_path):
    ensure_trained()
    output = tmp_path / "demo.out"
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    # Whoever runs the tests in the background may have made them ignore SIGINT, which a child would inherit.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with output.open("wb") as out:
        demo = subprocess.Popen(
            [SPILLWAY, "demo", "pard"],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            env={**os.environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    signal.signal(signal.SIGINT, before)
    try:
        until(lambda: "replaying" in output.read_text() or demo.poll() is not None, 180, "the demo's replay")
        assert demo.poll() is None, output.read_text()
        started = psutil.Process(demo.pid).children(recursive=True)
        assert len(started) >= 6, output.read_text()  # Kafka, four stages and the gate at least
        demo.send_signal(signal.SIGINT)
        assert demo.wait(600) == 130, output.read_text()
        until(lambda: not any(process.is_running() for process in started), 20, "its processes gone")
        assert list(scratch.iterdir()) == []
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
