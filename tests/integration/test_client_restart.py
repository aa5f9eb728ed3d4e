"""The client while its broker goes away and comes back."""

import threading
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from spillway.lineage.headers import decode
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.waiting import PATIENT_SECONDS, Bound, until

pytestmark = pytest.mark.nightly

# What is asked while the broker is away is worked off behind it, within an SLO that says nothing of the machine's pace:
# thousands, as many as fit into the time that it is away, took a machine with other work 70 s.
IN_FLIGHT = 500


def lost(pipeline, futures):
    """Where the queries without an outcome have come to, by their numbers."""
    missing = {n for n, future in enumerate(futures) if not future.done()}
    places = {"heard": {number(headers.request_id) for headers, _, _ in pipeline.heard}}
    places["ingress"] = {number(request_id) for request_id in written(pipeline, "ingress", "read_uncommitted")}
    for isolation in ("read_uncommitted", "read_committed"):
        places[isolation] = {number(request_id) for request_id in written(pipeline, "egress", isolation)}
    return ", ".join(
        [f"no outcome of {sorted(missing)}", f"the pipeline's error: {pipeline.error}"]
        + [f"{place}: {sorted(missing & found)}" for place, found in places.items()]
    )


def number(request_id):
    return int(request_id.rpartition("-")[2], 16)


def written(pipeline, topic, isolation):
    reader = Consumer({"bootstrap.servers": pipeline.bootstrap, "group.id": "lost", "isolation.level": isolation})
    reader.assign([TopicPartition(f"{pipeline.name}.{topic}", n, 0) for n in range(pipeline.partitions)])
    found = []
    while (message := reader.poll(10)) is not None:
        if message.error() is None and message.headers():
            found.append(decode(message.headers()).request_id)
    reader.close()
    return found


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
        until(lambda: all(future.done() for future in futures), 90, lambda: lost(pipeline, futures))
        failures = {n: failure for n, future in enumerate(futures) if (failure := future.exception(0)) is not None}
        assert not failures, failures
        assert [future.result(0).outputs["n"] for future in futures] == list(range(len(futures)))
    assert len({headers.request_id for headers, _, _ in pipeline.heard}) == len(pipeline.heard) == len(futures)
