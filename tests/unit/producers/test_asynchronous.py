"""Tasks that wait for the same query by asyncio, without Kafka."""

import asyncio
import time

import pytest

from spillway.lineage.errors import BrokerError
from spillway.lineage.message import PREDICTION, Outcome
from spillway.producers.client import AsyncClient
from spillway.producers.connection import ClientSettings


class Exchange:
    """Keeps who waits, by request id."""

    def __init__(self):
        self.waiting = {}

    def flying(self, request_id):
        return self.waiting.get(request_id)

    def send(self, query, waiter):
        return self.waiting.setdefault(query.request_id, waiter)


@pytest.mark.parametrize("error", [None, BrokerError("gone")])
def test_who_is_cancelled_takes_nothing_from_others_that_wait_for_the_same_query(error):
    async def scenario():
        client = AsyncClient("p", ClientSettings(bootstrap="127.0.0.1:1"), slo=60)
        client._exchange = exchange = Exchange()
        first, second, third = (asyncio.create_task(client.predict({}, request_id="same")) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        (waiter,) = exchange.waiting.values()
        if error is None:
            waiter.answered(Outcome(PREDICTION, {"n": 1}), time.monotonic())
        else:
            waiter.failed(error)
        return await asyncio.wait_for(asyncio.gather(first, second, third, return_exceptions=True), 10)

    cancelled, *others = asyncio.run(scenario())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert [each if error else each.outputs for each in others] == [error or {"n": 1}] * 2
