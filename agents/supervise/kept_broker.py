"""The Kafka that a served pipeline brings along: started for it, started again when it dies, ended with it."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agents.broker import EmbeddedCluster
from agents.broker.folder import DataFolder
from agents.broker.settings import DEFAULT_PORT
from lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agents.broker import EmbeddedBroker

_MOST_DEATHS = 3
_WINDOW_SECONDS = 60.0


class KeptBroker:
    """A broker, or a cluster of them, at one address while the pipeline is served. `keep` is called now and then."""

    def __init__(self, cluster: EmbeddedCluster | None, bootstrap: str, say: Callable[[str], None]) -> None:
        self.bootstrap = bootstrap
        self.nodes = cluster.nodes if cluster is not None else []  # none where somebody else keeps them
        self._say = say
        self._deaths: defaultdict[str, list[float]] = defaultdict(list)

    def keep(self, now: float) -> None:
        """Start again what died. Raises `BrokerError` if it cannot be started, or died too often."""
        for node in self.nodes:
            if node.pid is None:
                self._revive(node, now)

    def _revive(self, node: EmbeddedBroker, now: float) -> None:
        who = f"Kafka's node {node.seat.node}" if node.seat is not None else "Kafka"
        deaths = [death for death in self._deaths[who] if now - death < _WINDOW_SECONDS] + [now]
        self._deaths[who] = deaths
        if len(deaths) >= _MOST_DEATHS:
            raise BrokerError(
                f"{who} died {_MOST_DEATHS} times within {_WINDOW_SECONDS:g} s and is given up; "
                f"its log is {node.folder.log}"
            )
        self._say(f"{who} died; it is started again")
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
    if running is not None:
        say(f"using the Kafka that runs at {running}")
        yield KeptBroker(None, running, say)
        return
    with EmbeddedCluster(data_dir, port=port, cache_dir=cache_dir, notice=say) as cluster:
        say(f"started Kafka at {cluster.bootstrap} in {cluster.start_seconds:.1f} s (data in {cluster.folder.path})")
        yield KeptBroker(cluster, cluster.bootstrap, say)
