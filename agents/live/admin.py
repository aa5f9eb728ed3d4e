"""Questions to a cluster, by an admin client that outlives an outage.

An admin request that times out may end the whole process in librdkafka (its issue 4605: an assertion, when the answer
comes after all), and a client that saw a broker go may ask with what it knew of before, for ever. So:

1. Nothing is asked before the broker has given its metadata, which is no such request.
2. What is asked then may take its time: a broker that has just answered is hardly gone.
3. A client that has failed once is not used again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka.admin import AdminClient

from spillway.producers.patience import patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

_T = TypeVar("_T")
ANSWER_SECONDS = 5.0  # what a question gives its request


class Admin:
    """Asks the cluster of `settings` (librdkafka's)."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings}
        self._client: AdminClient | None = None

    def once(self, question: Callable[[AdminClient], _T]) -> _T:
        """Return `question(client)`, if the broker answers at all within `ANSWER_SECONDS`.

        Raises `KafkaException` where it does not, or where `question` does.
        """
        client = self._client or AdminClient(self._settings, logger=log)
        self._client = None
        client.list_topics(timeout=ANSWER_SECONDS)
        answer = question(client)
        self._client = client
        return answer

    def ask(self, question: Callable[[AdminClient], _T], what: str, within: float) -> _T:
        """The same, asked again while nobody answers, for at most `within` seconds and the last try's own.

        Each try has all of its time, however short `patiently` would have it: a broker that takes longer than that
        would never be heard, by a new connection each time. Raises `BrokerError`, saying that one
        could not `what`.
        """
        return patiently(lambda _slice: self.once(question), what, within)
