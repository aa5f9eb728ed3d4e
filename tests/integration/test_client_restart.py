"""The client while its broker goes away and comes back."""

import threading
import time
from collections import Counter
from concurrent.futures import wait

import pytest

from agents.broker import EmbeddedBroker
from producers.client import Client
from producers.connection import ClientSettings
from tests.waiting import BROKER_SECONDS, PATIENT_SECONDS, Bound

pytestmark = pytest.mark.nightly

# What is asked while the broker is away is worked off behind it, within an SLO that says nothing of the machine's pace:
# thousands, as many as fit into the time that it is away, took a machine with other work 70 s.
IN_FLIGHT = 500


@pytest.fixture
def own_broker(tmp_path):
    with EmbeddedBroker(tmp_path / "kafka", start_timeout=BROKER_SECONDS) as broker:
        yield broker


@pytest.mark.parametrize("transactional", [False, True])
def test_a_broker_restart_costs_no_query(own_broker, echo_pipeline, transactional):
    pipeline = echo_pipeline(bootstrap=own_broker.bootstrap, transactional=transactional)
    futures = []
    room = threading.Semaphore(IN_FLIGHT)
    stop = threading.Event()
    with Client(pipeline.name, ClientSettings.load(own_broker.bootstrap), slo=PATIENT_SECONDS) as client:

        def ask():
            while not stop.is_set():
                if room.acquire(timeout=0.1):
                    futures.append(client.submit({"n": len(futures)}))
                    futures[-1].add_done_callback(lambda _: room.release())
                    time.sleep(0.005)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            futures_before = 50
            while len(futures) < futures_before:
                time.sleep(0.01)
            own_broker.stop()
            own_broker.start()
            asked = len(futures)
            bound = Bound(120)
            while len(futures) <= asked or not futures[asked].done():  # something asked after the restart is answered
                assert not bound.over
                time.sleep(0.05)
        finally:
            stop.set()
            asking.join()
        wait(futures, 90)
        failures = {n: failure for n, future in enumerate(futures) if (failure := future.exception(0)) is not None}
        heard = {int(headers.request_id.rpartition("-")[2]) for headers, _, _ in pipeline.heard}
        why = Counter(
            f"{type(failure).__name__}, {'heard' if n in heard else 'unheard'}" for n, failure in failures.items()
        )
        assert not failures, f"{why} of {len(futures)}: {failures}"
        assert [future.result(0).outputs["n"] for future in futures] == list(range(len(futures)))
    assert len({headers.request_id for headers, _, _ in pipeline.heard}) == len(pipeline.heard) == len(futures)
