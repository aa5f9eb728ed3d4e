"""The client of a pipeline, for threads and for asyncio."""

from spillway.producers.client.asynchronous import AsyncClient
from spillway.producers.client.blocking import Client
from spillway.producers.client.exchange import ClientClosedError, OutcomeTimeoutError, TooManyInFlightError

__all__ = ["AsyncClient", "Client", "ClientClosedError", "OutcomeTimeoutError", "TooManyInFlightError"]
