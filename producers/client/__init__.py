"""The client of a pipeline, for threads and for asyncio."""

from producers.client.asynchronous import AsyncClient
from producers.client.blocking import Client
from producers.client.exchange import ClientClosedError, OutcomeTimeoutError, TooManyInFlightError

__all__ = ["AsyncClient", "Client", "ClientClosedError", "OutcomeTimeoutError", "TooManyInFlightError"]
