"""The producer is replaced by one that does what the test says; the loop is real, its timers run at once."""

import asyncio

import pytest
from confluent_kafka import KafkaError, KafkaException

from spillway.agents.live import output as module
from spillway.agents.live.output import Output
from spillway.lineage.ports import Outgoing


class FakeProducer:
    def __init__(self, config, logger):
        self.config = config
        self.logger = logger
        self.polls_to_id = 1
        self.sent = []
        self.room = 1000
        self.refuse = False
        self.unknown = ()
        self.looked_up = []
        FakeProducer.last = self

    def list_topics(self, topic, timeout):
        if topic in self.unknown:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        self.looked_up.append((topic, timeout))

    def produce(self, topic, value, key, partition, on_delivery, headers=None):
        if self.refuse:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if len(self.sent) >= self.room:
            raise BufferError
        self.sent.append((topic, value, on_delivery))

    def deliver(self, count, error=None):
        done, self.sent = self.sent[:count], self.sent[count:]
        self.reports = [(on_delivery, error) for _, _, on_delivery in done]

    reports = ()

    def flush(self, _seconds):
        return 0

    def poll(self, _seconds):
        self.polls_to_id -= 1
        if self.polls_to_id == 0:
            self.logger.log(10, "%s [%s] %s", "IDEMPSTATE", "p", "state change WaitPID -> Assigned")
        reports, self.reports = self.reports, ()
        for on_delivery, error in reports:
            on_delivery(error, None)


@pytest.fixture
def scene(monkeypatch):
    monkeypatch.setattr(module, "Producer", FakeProducer)
    monkeypatch.setattr(module, "_COLLECT", 0.0)
    stored, lost = [], []

    def play(script, collect=None):
        async def run():
            loop = asyncio.get_running_loop()
            output = Output({}, loop, on_stored=stored.extend, on_lost=lost.append, in_flight_limit=3, collect=collect)

            async def turns():
                for _ in range(5):
                    await asyncio.sleep(0)

            await script(output, FakeProducer.last, turns)
            await output.close()

        asyncio.run(run())
        return stored, lost

    return play


def send(output, token):
    output.send(Outgoing("t", 0, b"k", b"value"), token)


def test_tokens_come_back_once_their_messages_are_stored(scene):
    async def script(output, producer, turns):
        for token in "abc":
            send(output, token)
        assert not output.room
        producer.deliver(2)
        await turns()
        assert output.room
        assert output.in_flight == 1

    assert scene(script) == (["a", "b"], [])


def test_whoever_waits_has_reports_looked_for_until_some_have_come(scene, monkeypatch):
    monkeypatch.setattr(module, "_SOON", 0.0)

    async def script(output, producer, turns):
        send(output, "a")
        send(output, "b")
        producer.deliver(1)
        await turns()
        assert output.in_flight == 2, "nobody waits, and the time of the next look has not come"
        output.hurry()
        assert output.in_flight == 1
        output.hurry()
        producer.deliver(1)
        await turns()
        assert output.in_flight == 0

    assert scene(script, collect=60.0) == (["a", "b"], [])


def test_many_in_flight_have_reports_looked_for_soon(scene, monkeypatch):
    monkeypatch.setattr(module, "_SOON", 0.0)
    monkeypatch.setattr(module, "_MANY", 2)

    async def script(output, producer, turns):
        send(output, "a")
        producer.deliver(1)
        await turns()
        assert output.in_flight == 1
        send(output, "b")
        await turns()
        assert output.in_flight == 1

    assert scene(script, collect=60.0) == (["a"], [])


def test_a_failed_delivery_is_told_and_its_token_never_comes_back(scene):
    async def script(output, producer, turns):
        send(output, "a")
        producer.deliver(1, error=KafkaError(KafkaError._MSG_TIMED_OUT))
        await turns()

    stored, lost = scene(script)
    assert stored == []
    assert "MSG_TIMED_OUT" in lost[0]


def test_a_topic_that_is_gone_is_named_with_the_way_out(scene):
    async def script(output, producer, turns):
        send(output, "a")
        producer.deliver(1, error=KafkaError(KafkaError._UNKNOWN_PARTITION))
        await turns()

    (lost,) = scene(script)[1]
    assert lost.startswith("t is not there any more")
    assert "'spillway broker topics delete'" in lost


def test_what_librdkafka_has_no_room_for_waits_its_turn(scene):
    async def script(output, producer, turns):
        producer.room = 1
        for token in "abc":
            send(output, token)
        assert len(producer.sent) == 1
        for _ in "abc":
            producer.deliver(1)
            await turns()

    assert scene(script) == (["a", "b", "c"], [])


def test_a_message_that_cannot_be_produced_is_lost_aloud(scene):
    async def script(output, producer, turns):
        producer.refuse = True
        send(output, "a")

    assert len(scene(script)[1]) == 1


def test_large_values_fill_the_room_by_their_bytes(scene, monkeypatch):
    monkeypatch.setattr(module, "_ROOM_BYTES", 8)

    async def script(output, producer, turns):
        send(output, "a")
        assert output.room
        send(output, "b")
        assert not output.room
        producer.deliver(1)
        await turns()
        assert output.room

    scene(script)


def test_it_asks_for_every_replica_and_for_no_repetition(scene):
    async def script(output, producer, turns):
        assert producer.config["acks"] == "all"
        assert producer.config["enable.idempotence"] is True

    scene(script)


@pytest.mark.parametrize("how", ["delivery", "produce"])
def test_a_message_that_is_not_vital_may_get_lost(scene, how):
    async def script(output, producer, turns):
        producer.refuse = how == "produce"
        output.send(Outgoing("t", 0, b"k", b"value"), "word", vital=False)
        producer.refuse = False
        send(output, "message")
        producer.deliver(1, error=KafkaError(KafkaError._MSG_TIMED_OUT) if how == "delivery" else None)
        await turns()
        if how == "delivery":
            producer.deliver(1)
        await turns()
        assert output.in_flight == 0

    assert scene(script) == (["word", "message"], [])


def test_topics_are_looked_up_ahead_and_one_that_cannot_be_is_told_of_and_left(scene, caplog):
    async def script(output, producer, turns):
        producer.unknown = {"b"}
        await output.know(["a", "b", "c"])
        assert producer.looked_up == [("a", 2.0), ("c", 2.0)] * 2

    assert scene(script) == ([], []), "nothing is lost for it"
    assert "b cannot be looked up" in caplog.text


def test_it_is_ready_when_the_producer_has_its_id(scene):
    async def script(output, producer, turns):
        producer.polls_to_id = 3
        await output.know(["a"])
        assert producer.polls_to_id == 0

    scene(script)


def test_it_does_not_wait_for_ever_for_the_id(scene, monkeypatch):
    monkeypatch.setattr(module, "_LOOK_UP", 0.0)

    async def script(output, producer, turns):
        producer.polls_to_id = -1
        await output.know(["a"])

    scene(script)


def test_topics_are_looked_up_again_before_they_are_forgotten_until_the_end(scene, monkeypatch):
    monkeypatch.setattr(module, "_LOOK_UP_EVERY", 0.0)

    async def script(output, producer, turns):
        await output.know(["a"])
        async with asyncio.timeout(20.0):
            while len(producer.looked_up) < 4:  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0)
        await output.close()
        await asyncio.get_running_loop().shutdown_default_executor()
        await turns()
        assert output._knowing.cancelled()

    scene(script)
