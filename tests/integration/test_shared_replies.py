"""Clients that share the egress of a pipeline on a real Kafka: each reads a part, and every query is answered."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from spillway.lineage.errors import TopicError
from spillway.lineage.keys import partition_for
from spillway.producers.client import AsyncClient, Client
from spillway.producers.connection import ClientSettings
from tests.waiting import PATIENT_SECONDS, until

from .conftest import make_topics

SHARED = {"slo": PATIENT_SECONDS, "timeout": PATIENT_SECONDS, "replies": "shared"}
PARTITIONS = 6


def share(client):
    return set(client._exchange.landing()[0])


def reads(client):
    return client._exchange._shared._partitions._read


def divided(clients):
    """Whether each reads its share and no more, and together they read everything."""
    read = sorted(each for client in clients for each in reads(client))
    return read == list(range(PARTITIONS)) and all(0 < len(reads(client)) < PARTITIONS for client in clients)


def answers(client, numbers, **options):
    futures = {n: client.submit({"n": n}, **options) for n in numbers}
    return {n: future.result(PATIENT_SECONDS).outputs["n"] for n, future in futures.items()}


def members(broker, group):
    admin = AdminClient({"bootstrap.servers": broker})  # kept: an answer to a client that is gone never comes
    return len(admin.describe_consumer_groups([group], request_timeout=60)[group].result(PATIENT_SECONDS).members)


def test_clients_divide_the_egress_and_each_reads_its_part(echo_pipeline, broker):
    pipeline = echo_pipeline(partitions=PARTITIONS)
    with Client(pipeline.name, broker, **SHARED) as one, Client(pipeline.name, broker, **SHARED) as two:
        assert answers(one, range(5)) == {n: n for n in range(5)}  # it need not have a share yet
        until(lambda: divided([one, two]), 60)
        before = len(pipeline.heard)
        passed = [client._exchange.passed_over for client in (one, two)]
        assert answers(one, range(200)) == {n: n for n in range(200)}
        assert answers(two, range(200)) == {n: n for n in range(200)}
        assert [client._exchange.passed_over for client in (one, two)] == passed  # nothing of the other's
        landed = {partition for _, partition, _ in pipeline.heard[before : before + 200]}
        assert landed == share(one)
        assert all(partition == partition_for(key, PARTITIONS) for _, partition, key in pipeline.heard)
        keyed = [f"user-{n}" for n in range(30)]
        for key in keyed:  # wherever they land
            assert one.predict({"n": key}, key=key).outputs == {"n": key}
            assert two.predict({"n": key}, key=key, request_id=f"own-{key}").outputs == {"n": key}
        assert members(broker, f"{pipeline.name}.replies") == 2
    assert members(broker, f"{pipeline.name}.replies") == 0  # they have left it


def test_500_queries_are_answered_while_clients_come_leave_and_die(echo_pipeline, broker, tmp_path):
    pipeline = echo_pipeline(partitions=PARTITIONS)
    script = tmp_path / "third.py"
    script.write_text(
        "import sys\nfrom spillway.producers.client import Client\n"
        f"with Client({pipeline.name!r}, {broker!r}, slo=600, timeout=600, replies='shared') as client:\n"
        "    for n in range(100_000):\n"
        "        assert client.predict({'n': n}).outputs == {'n': n}\n"
        "        print(n, flush=True)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with Client(pipeline.name, broker, **SHARED) as stays, Client(pipeline.name, broker, **SHARED) as leaves:
        third = subprocess.Popen([sys.executable, script], env=env, stdout=subprocess.PIPE, text=True)
        got, stop = {}, threading.Event()

        def ask():
            for n in range(500):
                got[n] = stays.predict({"n": n}, key=f"user-{n}" if n % 3 == 0 else None).outputs["n"]
                if n >= 400:  # slowly, until the others are gone
                    stop.wait(0.1)

        asking = threading.Thread(target=ask)
        try:
            assert third.stdout.readline()  # it has been answered
            until(lambda: members(broker, f"{pipeline.name}.replies") == 3, 60)
            asking.start()
            futures = [leaves.submit({"n": n}) for n in range(50)]
            assert [future.result(PATIENT_SECONDS).outputs["n"] for future in futures] == list(range(50))
            leaves.close()
            third.send_signal(signal.SIGKILL)
            until(lambda: share(stays) == set(range(PARTITIONS)), 60)  # after the dead one's session
        finally:
            stop.set()
            third.kill()
            third.wait()
        asking.join(PATIENT_SECONDS)
        assert got == {n: n for n in range(500)}
        assert answers(stays, range(100)) == {n: n for n in range(100)}


def test_more_clients_than_partitions_borrow(echo_pipeline, broker):
    pipeline = echo_pipeline(partitions=1)

    async def scenario():
        clients = [AsyncClient(pipeline.name, broker, **SHARED) for _ in range(2)]
        async with clients[0], clients[1]:
            await asyncio.to_thread(until, lambda: members(broker, f"{pipeline.name}.replies") == 2, 60)
            for client in clients:
                outcomes = await asyncio.gather(*(client.predict({"n": n}) for n in range(50)))
                assert [outcome.outputs["n"] for outcome in outcomes] == list(range(50))

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["all", "shared"])
def test_topics_that_differ_in_partitions_are_named(broker, unique_name, how):
    make_topics(broker, {f"{unique_name}.ingress": 4, f"{unique_name}.egress": 3, f"{unique_name}.schemas": 1})
    with pytest.raises(TopicError, match=r"egress has 3 partitions and .*ingress 4: .*'spillway broker topics delete'"):
        Client(unique_name, ClientSettings.load(broker), **SHARED | {"replies": how})
