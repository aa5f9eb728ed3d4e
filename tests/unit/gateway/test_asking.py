"""What a gateway makes of a client that cannot go on."""

import asyncio

from spillway.agents.gateway.asking import Asked, Pipelines
from spillway.agents.gateway.parameters import ask_of
from spillway.producers.client import ClientClosedError, OutcomeTimeoutError
from spillway.producers.connection import ClientSettings
from spillway.topology.load import Pipeline

FILE = "name: one\nslo: 1s\nstages:\n  - {name: act, model: module:Act}\n"


class Client:
    """Ends every query in the same way."""

    def __init__(self, error):
        self.error = error

    async def predict(self, *_inputs, **_options):
        raise self.error


def test_a_gateway_whose_client_has_failed_for_good_is_not_ready_and_ends():
    async def run():
        pipelines = Pipelines([Pipeline.parse(FILE)], ClientSettings(bootstrap="127.0.0.1:1"))
        served = pipelines.served["one"]
        loss = asyncio.create_task(pipelines.lost.wait())
        served.client = Client(OutcomeTimeoutError("no outcome", "an-id"))
        answered = await served.ask(Asked({}, ask_of({})), "json")
        assert (answered.status.http, answered.request_id, pipelines.ready) == (504, "an-id", True)
        served.client = Client(ClientClosedError("the producer has failed permanently"))
        answered = await served.ask(Asked({}, ask_of({})), "json")
        assert (answered.status.http, pipelines.ready) == (503, False)
        await asyncio.wait_for(loss, 10)

    asyncio.run(run())
