"""`spillway chaos` finds workers through the run directory, strikes them alone, and leaves none stopped."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from spillway.agents.chaos.schedule import Event, Kind
from spillway.agents.chaos.strikes import Strikes, workers_of
from spillway.agents.live.registry import LOOPBACK
from tests.waiting import until

SPILLWAY = Path(sys.executable).with_name("spillway")
SPEC = 'name: p\nslo: 1s\nstages:\n  - {name: f, model: "m:M", workers: {count: 3, where: process}}\n'
SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def front(tmp_path):
    """This process, registered as a front; the function starts a worker of it."""
    entry = {"pipeline": "p", "stage": "f", "replica": 0, "pid": os.getpid(), "port": 0, "role": "stage"}
    place = tmp_path / "run" / "p" / "f.0.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({**entry, "started_unix": time.time(), "ready": True, "host": LOOPBACK}))
    (tmp_path / "p.yaml").write_text(SPEC)
    started = []

    def start(model="m:M"):
        command = [sys.executable, "-c", SLEEP, "spillway.agents.workers.local", json.dumps({"model": model})]
        started.append(subprocess.Popen(command))
        return psutil.Process(started[-1].pid)

    yield start
    for each in started:
        each.kill()
        each.wait()


@contextmanager
def playing(strikes, events, began):
    stop = threading.Event()
    thread = threading.Thread(target=strikes.play, args=(events, began, stop))
    thread.start()
    yield
    stop.set()
    thread.join()


def stands(process):
    return process.status() == psutil.STATUS_STOPPED


def test_strikes_hit_their_slots_and_those_who_took_one(front, tmp_path):
    bystander = subprocess.Popen([sys.executable, "-c", SLEEP])  # a child of the front that is no worker
    one, two, parity = front(), front(), front("parity")
    find = lambda: workers_of(tmp_path / "run", "p", ["f"])  # noqa: E731
    until(lambda: find() == [one, two, parity], 60)
    began = time.monotonic()
    events = [Event(0.0, 1, Kind.KILL), Event(0.1, 0, Kind.STOP, 0.1), Event(0.15, 0, Kind.STOP, 600), *(
        Event(0.2, slot, Kind.STOP, 600) for slot in (2, 7)
    )]  # fmt: skip
    with Strikes(find) as strikes:
        with playing(strikes, events, began):
            until(lambda: stands(one) and stands(parity), 60)
            two.wait(60)
        assert not stands(one)
        assert strikes.done == {Kind.KILL: 1, Kind.STOP: 3}  # nobody has slot 7
        new_parity, new = front("parity"), front()  # the dead one's place is not for another model
        until(lambda: len(find()) == 4, 60)
        late = [Event(n / 2, 1, Kind.STOP, 600) for n in range(3)]
        with playing(strikes, late, time.monotonic()):
            until(lambda: stands(new), 60)
    assert not any(map(stands, (one, parity, new, new_parity)))
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_worker_that_is_added_takes_an_empty_slot(front, tmp_path):
    one = front()
    find = lambda: workers_of(tmp_path / "run", "p", ["f"])  # noqa: E731
    until(lambda: find() == [one], 60)
    with Strikes(find) as strikes:
        added = front()
        until(lambda: len(find()) == 2, 60)
        events = [Event(n / 2, 1, Kind.STOP, 600) for n in range(3)]
        with playing(strikes, events, time.monotonic()):
            until(lambda: stands(added), 60)
        assert not stands(one)
        assert len(strikes) == 2
    assert not stands(added)


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL]
)
def test_however_it_ends_no_worker_stays_stopped(front, tmp_path, how):
    workers = [front() for _ in range(3)]
    command = [SPILLWAY, "chaos", "p.yaml", "--slow", "50ms:600s", "--duration", "600s", "--run-dir", "run"]
    chaos = subprocess.Popen(command, cwd=tmp_path)
    try:
        until(lambda: all(map(stands, workers)), 60)
        chaos.send_signal(how)
        assert chaos.wait(60) == (-how if how == signal.SIGKILL else 130)
        until(lambda: not any(map(stands, workers)), 60)
    finally:
        chaos.kill()
        chaos.wait()
    assert all(each.is_running() for each in workers)


def test_what_comes_to_its_end_says_what_it_did(front, tmp_path):
    worker = front()
    told = subprocess.run(
        [SPILLWAY, "chaos", "p.yaml", "--delay", "200ms:100ms", "--hog", "300ms:100ms", "--duration", "2s",
         "--run-dir", "run"], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True,
    ).stdout  # fmt: skip
    assert "strikes on 1 workers of f within 2 s" in told
    assert "stop" in told
    assert "hog" in told
    assert not stands(worker)
