"""A producer that has looked its topics up asks nothing with their first messages, by librdkafka's own count."""

import asyncio
import json
import time

import pytest

from agents.live.output import Output

from .conftest import make_topics

WITHIN = 20.0


class Counted:
    """An output, and how many times it has asked where topics are."""

    def __init__(self, broker, loop):
        self._told = []
        self._since = 0.0
        self.stored = []
        settings = {"bootstrap.servers": broker, "statistics.interval.ms": 20, "stats_cb": self._note}
        self.output = Output(settings, loop, on_stored=self.stored.extend, on_lost=pytest.fail)

    async def until(self, holds):
        end = time.monotonic() + WITHIN
        while not holds():
            assert time.monotonic() < end
            self.output._producer.poll(0)
            await asyncio.sleep(0.005)

    async def asked(self):
        """Count the requests for metadata, when statistics made from now on have told of the same number a few times."""
        self._since = time.monotonic() * 1e6  # librdkafka's own clock; what was made before may still wait to be heard
        self._told.clear()
        await self.until(lambda: len(set(self._told[-5:])) == 1 and len(self._told) > 5 and self._told[-1])
        return self._told[-1]

    def _note(self, statistics):
        found = json.loads(statistics)
        if found["ts"] > self._since:
            self._told.append(sum(broker["req"].get("Metadata", 0) for broker in found["brokers"].values()))


@pytest.mark.parametrize("looks_up", [True, False])
def test_what_was_looked_up_is_not_asked_for_again(broker, unique_name, looks_up):
    topics = [f"{unique_name}-{number}" for number in range(3)]
    make_topics(broker, dict.fromkeys(topics, 2))

    async def run():
        counted = Counted(broker, asyncio.get_running_loop())
        await counted.output.know(topics if looks_up else topics[:1])
        before = await counted.asked()
        for topic in topics:
            counted.output.send(topic, 1, None, b"first", [], topic)
        await counted.until(lambda: sorted(counted.stored) == topics)
        more = await counted.asked() - before
        counted.output.close()
        return more

    assert (asyncio.run(run()) == 0) is looks_up
