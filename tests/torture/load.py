"""A steady load of small queries, from a producer of the tests' own: what the broker has is what is accepted."""

import threading
import time
from typing import Any

from confluent_kafka import Producer

from spillway.lineage import headers
from spillway.lineage.keys import partition_for
from spillway.lineage.message import Query
from spillway.lineage.values.codec import encode_query
from spillway.producers.connection import ClientSettings
from spillway.topology import topics
from tests.waiting import GivenTime

SLO = 600  # seconds: what is late here is late for a fault's sake, and must come all the same
PARTITIONS = 3
ANSWER_SECONDS = 60.0
BACKLOG_SECONDS = 20.0


class Load:
    """Queries at a steady rate until `enough` is called, and at least `count` of them; the first `burst` at once.

    The rate is one of the time that the machine is given: else a run that is waited for while a host takes the
    processors would have a backlog of thousands.
    """

    def __init__(
        self, bootstrap: str, pipeline: str, *, rate: float, count: int, burst: int = 0, users: int = 0
    ) -> None:
        """`users`: so many have the queries in turn, each on the partition of its key; 0: each query is alone."""
        self.accepted: list[str] = []
        self.count = count + burst
        self._burst = burst
        self._topic = topics.ingress(pipeline)
        self._rate = rate
        self._users = users
        self._producer = Producer(
            {
                **ClientSettings(bootstrap=bootstrap).confluent(),
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        self.error: str | None = None
        self._more = threading.Event()
        self._more.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def enough(self) -> list[str]:
        """Send the rest; gives the ids of all that the broker has."""
        self._more.clear()
        self._thread.join(ANSWER_SECONDS)
        assert not self._thread.is_alive()
        assert self._producer.flush(ANSWER_SECONDS) == 0
        assert self.error is None, self.error
        return self.accepted

    def abandon(self) -> None:
        self.count = 0
        self._more.clear()

    def _run(self) -> None:
        given, number = GivenTime(), 0
        while number < self.count or self._more.is_set():
            while (early := (number - self._burst) / self._rate - given.seconds) > 0:
                time.sleep(early)
            self._send(number, late=-early if number >= self._burst else 0.0)
            number += 1

    def _send(self, number: int, late: float) -> None:
        request_id = f"q{number}"
        due = time.time_ns() // 1_000 - round(late * 1_000_000)  # a client waits from then on
        said = headers.Headers(request_id, due, due + SLO * 1_000_000)

        def delivered(error: Any, _message: Any) -> None:
            if error is None:
                self.accepted.append(request_id)
            else:
                self.error = f"{request_id}: {error}"

        value = encode_query(Query({"x": number}))
        key, partition = request_id.encode(), number % PARTITIONS
        if self._users:
            key = b"user-%d" % (number % self._users)
            partition = partition_for(key, PARTITIONS)
        self._producer.produce(self._topic, value, key, partition, on_delivery=delivered, headers=headers.encode(said))
        self._producer.poll(0)
