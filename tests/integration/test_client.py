import asyncio
import itertools
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from spillway.lineage.errors import BrokerError, TopicError, UsageError, WireError
from spillway.lineage.keys import partition_for
from spillway.lineage.message import DROPPED, PREDICTION, Outcome
from spillway.lineage.trace import TraceContext
from spillway.lineage.values.codec import encode_outcome
from spillway.producers.client import AsyncClient, Client, ClientClosedError, OutcomeTimeoutError, TooManyInFlightError
from spillway.producers.connection import ClientSettings
from tests.waiting import PATIENT_SECONDS

PATIENT = {"slo": PATIENT_SECONDS, "timeout": PATIENT_SECONDS}


def test_a_query_gets_its_own_outcome_which_says_how_long_it_took_and_whether_it_is_late(echo_pipeline, broker):
    pipeline = echo_pipeline()
    with Client(pipeline.name, broker, **PATIENT) as client:  # an address will do
        outcome = client.predict({"n": 1, "image": np.arange(6.0).reshape(2, 3)})
        late = client.predict({}, deadline=0.0)
    assert outcome.kind == PREDICTION
    assert outcome.outputs["n"] == 1
    assert np.array_equal(outcome.outputs["image"], np.arange(6.0).reshape(2, 3))
    assert outcome.timings[0].batch == 2
    assert (outcome.late, late.late) == (False, True)
    assert 0 < outcome.latency < PATIENT_SECONDS
    assert late.latency > 0


def test_many_in_flight_from_several_threads_are_never_mixed_up(echo_pipeline, settings):
    pipeline = echo_pipeline(transactional=True)  # as a gate; the other tests' is not
    with Client(pipeline.name, settings, **PATIENT) as client:
        answers = {}

        def ask(start):
            futures = {n: client.submit({"n": n}) for n in range(start, start + 150)}
            answers.update({n: future.result().outputs["n"] for n, future in futures.items()})

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, range(0, 4000, 1000)))
    assert len(answers) == 600
    assert all(asked == answered for asked, answered in answers.items())


def test_headers_say_what_the_caller_said(echo_pipeline, settings):
    pipeline = echo_pipeline()
    trace = TraceContext("1" * 32, "2" * 16, 1)
    before = time.time()
    with Client(pipeline.name, settings, **PATIENT) as client:
        answered = client.predict(
            {}, request_id="mine", key="user-7", deadline=0.25, trace=trace, headers={"x-tenant": "a"}
        )
        made = client.predict({})
    assert answered.request_id == "mine"
    (mine, partition, key), (other, _, other_key) = pipeline.heard
    assert (mine.request_id, key) == ("mine", b"user-7")
    assert partition == partition_for(b"user-7", pipeline.partitions)
    assert mine.deadline_us - mine.sent_us == 250_000
    assert before <= mine.sent_us / 1e6 <= time.time()
    assert (mine.trace.trace_id, mine.trace.span_id, mine.trace.flags) == ("1" * 32, "2" * 16, 1)
    assert ("x-tenant", b"a") in mine.extra
    assert other_key == other.request_id.encode() == made.request_id.encode()
    assert other.deadline_us - other.sent_us == PATIENT_SECONDS * 1e6
    assert other.trace.trace_id != "1" * 32


def test_the_same_id_in_flight_is_the_same_query(echo_pipeline, settings):
    release = threading.Event()
    pipeline = echo_pipeline(lambda query, _: [Outcome(PREDICTION, query.inputs)] if release.wait(600) else [])
    with Client(pipeline.name, settings, **PATIENT) as client:
        first = client.submit({"n": 1}, request_id="same")
        assert client.submit({"n": 2}, request_id="same") is first
        release.set()
        assert first.result(PATIENT_SECONDS).outputs == {"n": 1}
    assert [headers.request_id for headers, _, _ in pipeline.heard] == ["same"]


def test_outcomes_of_others_and_repetitions_are_passed_over(echo_pipeline, settings, broker):
    pipeline = echo_pipeline(lambda query, _: [Outcome(PREDICTION, query.inputs), Outcome(DROPPED, reason="late copy")])
    noise = Producer({"bootstrap.servers": broker})
    with Client(pipeline.name, settings, **PATIENT) as client, Client(pipeline.name, settings, **PATIENT) as other:
        for n in range(50):
            for headers in ([("x-request-id", b"stranger")], [("x-request-id", None)], [], [("\u00fc", b"")]):
                noise.produce(f"{pipeline.name}.egress", encode_outcome(Outcome(DROPPED)), headers=headers)
            noise.produce(f"{pipeline.name}.egress", b"rubbish")
            noise.flush()
            assert client.predict({"n": n}).outputs == {"n": n}
            assert other.predict({"n": -n}).outputs == {"n": -n}


def test_an_outcome_of_an_aborted_transaction_is_not_given(echo_pipeline, settings, broker):
    pipeline = echo_pipeline(lambda query, headers: [])
    with Client(pipeline.name, settings, **PATIENT) as client:
        future = client.submit({}, request_id="q")
        gate = Producer({"bootstrap.servers": broker, "transactional.id": f"{pipeline.name}-gate"})
        gate.init_transactions(30)
        for kind, end in ((DROPPED, gate.abort_transaction), (PREDICTION, gate.commit_transaction)):
            gate.begin_transaction()
            gate.produce(
                f"{pipeline.name}.egress", encode_outcome(Outcome(kind)), partition=0, headers=[("x-request-id", b"q")]
            )
            gate.flush()
            end(30)
        assert future.result(PATIENT_SECONDS).kind == PREDICTION


def test_without_an_outcome_in_time_there_is_a_timeout_and_closing_ends_every_wait(echo_pipeline, settings):
    pipeline = echo_pipeline(lambda query, headers: [])
    with Client(pipeline.name, settings, slo=5.0, grace=0.1) as client:
        with pytest.raises(OutcomeTimeoutError, match="no outcome of query mine"):
            client.predict({}, deadline=0.1, request_id="mine")
        with pytest.raises(TimeoutError):
            client.predict({}, deadline=0.1)
        future = client.submit({}, request_id="mine", deadline=60)  # the first one's expiry is not this one's
        assert not future.done()
    client.close()
    for call in (lambda: future.result(10), lambda: client.predict({})):
        with pytest.raises(ClientClosedError):
            call()


def test_a_full_client_blocks_and_then_says_so(echo_pipeline, settings):
    release = threading.Event()
    pipeline = echo_pipeline(lambda query, _: [Outcome(PREDICTION, query.inputs)] if release.wait(600) else [])
    with Client(pipeline.name, settings, **PATIENT, grace=0.0, in_flight=2) as client:
        waiting = [client.submit({"n": n}) for n in range(2)]
        with pytest.raises(TooManyInFlightError):
            client.submit({}, deadline=0.05)
        release.set()
        assert client.predict({"n": 2}).outputs == {"n": 2}
        assert [future.result().outputs["n"] for future in waiting] == [0, 1]


def test_outcomes_stream_as_they_come(echo_pipeline, settings):
    pipeline = echo_pipeline()
    taken = itertools.count()
    with Client(pipeline.name, settings, **PATIENT) as client:
        numbers = ({"n": next(taken)} for _ in range(500))
        stream = client.outcomes(numbers, window=20, key=lambda inputs: f"user-{inputs['n'] % 7}")
        first = next(stream)
        assert next(taken) <= 21  # no more was taken than fits the window
        seen = dict([first, *stream])
    assert len(seen) == 500
    assert seen[0].outputs == {"n": 0}
    assert {key for _, _, key in pipeline.heard} == {b"user-%d" % n for n in range(7)}


def test_what_cannot_travel_is_refused_before_it_is_sent(echo_pipeline, settings):
    pipeline = echo_pipeline()
    with Client(pipeline.name, settings) as client:
        with pytest.raises(WireError):
            client.predict({"x": object()}, deadline=1)
        with pytest.raises(WireError):
            client.predict({}, deadline=1, request_id="two words")
        with pytest.raises(UsageError, match="needs a deadline"):
            client.predict({})
        with pytest.raises(UsageError, match="deadline is -1"):
            client.predict({}, deadline=-1)
        assert client.predict({}, deadline=60).kind == PREDICTION


def test_a_client_has_one_thread_of_its_own_and_no_group(echo_pipeline, settings, broker):
    pipeline = echo_pipeline()
    before = threading.active_count()
    with Client(pipeline.name, settings, **PATIENT) as client:
        client.predict({})
        assert threading.active_count() == before + 1
        groups = AdminClient({"bootstrap.servers": broker}).list_consumer_groups(request_timeout=60).result()
    assert threading.active_count() == before
    assert not [group.group_id for group in groups.valid if "spillway-reader" in group.group_id]


def test_a_pipeline_that_is_not_there_is_named(settings, unique_name):
    with pytest.raises(TopicError, match=rf"{unique_name}\.\w+ .*spillway serve"):
        Client(unique_name, settings, timeout=5)


def test_a_cluster_that_is_not_there_is_named():
    with pytest.raises(BrokerError, match=r"cannot reach Kafka at 127\.0\.0\.1:1: .*spillway broker start"):
        Client("p", ClientSettings.load("127.0.0.1:1"), timeout=1.0)


def test_asyncio_runs_many_at_a_time(echo_pipeline, settings):
    pipeline = echo_pipeline()

    async def scenario():
        async with AsyncClient(pipeline.name, settings, **PATIENT, in_flight=50) as client:
            outcomes = await asyncio.gather(*(client.predict({"n": n}) for n in range(300)))
            assert [outcome.outputs["n"] for outcome in outcomes] == list(range(300))
            same = await asyncio.gather(*(client.predict({"n": n}, request_id="same") for n in range(3)))
            assert [outcome.outputs["n"] for outcome in same] == [0, 0, 0]
            stream = client.outcomes(({"n": n} for n in range(100)), window=7, key=str)
            seen = {index: outcome async for index, outcome in stream}
            assert all(outcome.outputs == {"n": index} for index, outcome in seen.items())
            assert len(seen) == 100

    asyncio.run(scenario())


def test_asyncio_timeouts_cancellation_and_closing(echo_pipeline, settings):
    pipeline = echo_pipeline(lambda query, _: [Outcome(PREDICTION, query.inputs)] if query.inputs.get("n") else [])

    async def scenario():
        client = AsyncClient(pipeline.name, settings, **PATIENT, grace=0.0, in_flight=2)
        with pytest.raises(ClientClosedError, match="async with"):
            await client.predict({})
        async with client:
            with pytest.raises(OutcomeTimeoutError):
                await client.predict({}, deadline=0.1)
            lost = [asyncio.create_task(client.predict({}, request_id=f"lost-{n}", deadline=10)) for n in range(2)]
            await asyncio.sleep(0.1)
            lost[0].cancel()
            with pytest.raises(TooManyInFlightError):
                await client.predict({"n": 1}, deadline=0.1)
        with pytest.raises(ClientClosedError):
            await lost[1]

    asyncio.run(scenario())


@pytest.mark.nightly
def test_a_producer_that_has_lost_all_brokers_is_replaced_and_what_waits_in_it_sent_again(
    echo_pipeline, settings, monkeypatch
):
    monkeypatch.setattr("spillway.producers.client.exchange.DEAF_SECONDS", 1.0)
    pipeline = echo_pipeline()
    with Client(pipeline.name, settings, **PATIENT) as client:
        client.predict({"n": 0})
        stuck = Producer({"bootstrap.servers": "127.0.0.1:1", "enable.idempotence": True, "log_level": 0})
        client._exchange._producer = stuck
        futures = [client.submit({"n": n}) for n in range(1, 40)]
        assert [future.result(PATIENT_SECONDS).outputs["n"] for future in futures] == list(range(1, 40))
        assert client._exchange._producer is not stuck


def test_a_client_in_a_fork_of_its_process_refuses_at_once_and_goes_on_where_it_was_made(echo_pipeline, broker):
    script = Path(__file__).with_name("forked_client.py")
    command = [sys.executable, str(script), broker, echo_pipeline().name, str(PATIENT_SECONDS)]
    env = {**os.environ, "PYTHONPATH": str(script.parents[2])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
