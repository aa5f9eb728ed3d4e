"""The Kafka that a served pipeline brings along: started for it, started again when it dies, ended with it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from agents.broker import EmbeddedBroker
from agents.broker.folder import DataFolder
from agents.broker.settings import DEFAULT_PORT
from lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_MOST_DEATHS = 3
_WINDOW_SECONDS = 60.0


class KeptBroker:
    """A broker at one address for as long as the pipeline is served. `keep` is called now and then."""

    def __init__(self, broker: EmbeddedBroker | None, bootstrap: str, say: Callable[[str], None]) -> None:
        self.bootstrap = bootstrap
        self._broker = broker  # None where somebody else keeps it
        self._say = say
        self._deaths: list[float] = []

    def keep(self, now: float) -> None:
        """Start the broker again if it died. Raises `BrokerError` if it cannot be, or died too often."""
        if self._broker is None or self._broker.pid is not None:
            return
        self._deaths = [death for death in self._deaths if now - death < _WINDOW_SECONDS] + [now]
        if len(self._deaths) >= _MOST_DEATHS:
            raise BrokerError(
                f"Kafka died {_MOST_DEATHS} times within {_WINDOW_SECONDS:g} s and is given up; "
                f"its log is {self._broker.folder.log}"
            )
        self._say("Kafka died; it is started again")
        self._broker.stop()
        self._broker.start()
        self._say(f"Kafka is back after {self._broker.start_seconds:.1f} s")


@contextmanager
def kept_broker(
    data_dir: Path, *, port: int = DEFAULT_PORT, cache_dir: Path | None = None, say: Callable[[str], None]
) -> Iterator[KeptBroker]:
    """The broker that runs on the folder already, or one that runs until the end of the context."""
    running = DataFolder(data_dir).running()
    if running is not None:
        say(f"using the Kafka that runs at {running.bootstrap}")
        yield KeptBroker(None, running.bootstrap, say)
        return
    last = DataFolder(data_dir).last()
    wanted = last.port if last is not None else port
    with EmbeddedBroker(data_dir, port=wanted, cache_dir=cache_dir, notice=say) as broker:
        say(f"started Kafka at {broker.bootstrap} in {broker.start_seconds:.1f} s (data in {broker.folder.path})")
        yield KeptBroker(broker, broker.bootstrap, say)
