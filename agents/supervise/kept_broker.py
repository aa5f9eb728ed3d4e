"""The Kafka that a served pipeline brings along: started for it, started again when it dies, ended with it.

Who is taken over leaves it to the successor, which uses it already and keeps it from then on.
"""

from __future__ import annotations

import math
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spillway.agents.broker import EmbeddedCluster
from spillway.agents.broker.folder import DataFolder
from spillway.agents.broker.settings import DEFAULT_PORT
from spillway.agents.supervise.ownership import TakenOverError
from spillway.lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from spillway.agents.broker import EmbeddedBroker

_MOST_DEATHS = 3
_WINDOW_SECONDS = 60.0
_LOOK_SECONDS = 0.5


class KeptBroker:
    """A broker, or a cluster of them, at one address while the pipeline is served. `keep` is called now and then."""

    def __init__(self, cluster: EmbeddedCluster, bootstrap: str, say: Callable[[str], None]) -> None:
        self.bootstrap = bootstrap
        self.nodes: list[EmbeddedBroker] = []  # none while somebody else keeps them
        self._cluster = cluster
        self._looked_at = -math.inf
        self._say = say
        self._deaths: defaultdict[str, list[float]] = defaultdict(list)

    def keep(self, now: float) -> None:
        """Start again what died. Raises `BrokerError` if it cannot be started, or died too often."""
        if not self.nodes and now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self.adopt()
        for node in self.nodes:
            if node.pid is None:
                self._revive(node, now)

    def adopt(self) -> None:
        if self._cluster.adopt():
            self.nodes = self._cluster.nodes
            self._say(f"the Kafka at {self.bootstrap} now belongs to this process and ends with it")

    def _revive(self, node: EmbeddedBroker, now: float) -> None:
        who = f"Kafka's node {node.seat.node}" if node.seat is not None else "Kafka"
        deaths = [death for death in self._deaths[who] if now - death < _WINDOW_SECONDS] + [now]
        self._deaths[who] = deaths
        if len(deaths) >= _MOST_DEATHS:
            raise BrokerError(
                f"{who} died {_MOST_DEATHS} times within {_WINDOW_SECONDS:g} s and is given up; "
                f"its log is {node.folder.log}"
            )
        self._say(f"{who} died; restarting it")
        node.stop()
        if node.seat is None:
            node.start()
            self._say(f"{who} is back after {node.start_seconds:.1f} s")
        else:  # the others serve meanwhile, and so does this process
            node.prepare()
            node.launch()


@contextmanager
def kept_broker(
    data_dir: Path, *, port: int = DEFAULT_PORT, cache_dir: Path | None = None, say: Callable[[str], None]
) -> Iterator[KeptBroker]:
    """What runs on the folder already, or one broker, or the folder's cluster, until the end of the context."""
    running = DataFolder(data_dir).bootstrap()
    cluster = EmbeddedCluster(data_dir, port=port, cache_dir=cache_dir, notice=say)
    kept = KeptBroker(cluster, running or cluster.start().bootstrap, say)
    if running is not None:
        say(f"using the running Kafka at {running}")
        kept.adopt()
    else:
        kept.nodes = cluster.nodes
        say(f"started Kafka at {cluster.bootstrap} in {cluster.start_seconds:.1f} s (data in {cluster.folder.path})")
    try:
        yield kept
    except TakenOverError:
        if kept.nodes:
            cluster.leave()
            kept.nodes = []
        raise
    finally:
        if kept.nodes:
            cluster.stop()
