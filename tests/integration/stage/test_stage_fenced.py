"""The only broker loses its controller for a while: a pipeline at work goes on afterwards, and answers every query."""

import time

import pytest

from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from tests.fenced_broker import fenced_broker
from tests.waiting import PATIENT_SECONDS

from .conftest import Stage

CHAIN = """
partitions: 4
stages:
  - {name: one, emulated: {alpha: 2ms, beta: 1ms}, batching: {size: 4}}
  - {name: two, emulated: {alpha: 3ms, beta: 1ms}, batching: {size: 8}, after: one}
"""
AWAY = 6.0


@pytest.mark.nightly
def test_a_pipeline_answers_all_when_the_broker_leads_again(tmp_path, unique_name, until):
    with fenced_broker(tmp_path / "kafka") as broker:
        chain = Stage(broker.bootstrap, unique_name, tmp_path, CHAIN)
        try:
            chain.start("one")
            chain.start("two")
            chain.gate()
            until(lambda: all(chain.metrics(name) for name in ("one", "two", "gate")))
            with Client(chain.name, chain.settings, slo=PATIENT_SECONDS) as client:
                futures = [client.submit({"x": number}) for number in range(40)]
                broker.fence(meanwhile=lambda: futures.append(client.submit({"x": len(futures)})))
                time.sleep(AWAY)
                broker.unfence()
                futures += [client.submit({"x": number}) for number in range(40)]
                outcomes = [future.result(PATIENT_SECONDS) for future in futures]
            assert [outcome.kind for outcome in outcomes] == [PREDICTION] * len(futures)
            assert [process.poll() for process in chain.started] == [None] * 3
        finally:
            chain.close()
