"""Tasks that wait for the same query by asyncio, without Kafka."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from spillway.lineage.errors import BrokerError
from spillway.lineage.message import PREDICTION, Outcome
from spillway.producers.client import AsyncClient, feedback
from spillway.producers.client.exchange import ClientClosedError
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


def test_a_client_that_is_entered_again_sends_feedback_again(monkeypatch):
    async def scenario():
        client = AsyncClient("p", ClientSettings(bootstrap="127.0.0.1:1"), slo=60)
        monkeypatch.setattr(client, "_connect", lambda: SimpleNamespace(landing=None, close=bool))
        monkeypatch.setattr(feedback, "Exchange", lambda *_, **__: SimpleNamespace(close=bool))
        monkeypatch.setattr(client._learners, "send", lambda learner, _truth: client._learners._way(learner))
        for _ in range(2):
            async with client:
                assert await client.feedback("taste", "ada", 1.0)
        with pytest.raises(ClientClosedError):
            await client.feedback("taste", "ada", 1.0)

    asyncio.run(scenario())
