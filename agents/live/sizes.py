"""A pipeline's sizes on its cluster: what the table `<p>.sizes` says, followed, and what is written to it."""

from __future__ import annotations

import getpass
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

from spillway.lineage.errors import CheckpointError, SpillwayError
from spillway.producers.table import READ_SECONDS, Follower, Table, write
from spillway.topology import ensembles, sizes, topics
from spillway.topology.ensembles import Served
from spillway.topology.sizes import Size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from spillway.producers.connection import ClientSettings
    from spillway.producers.kafka.log import KafkaLog
    from spillway.topology.load import Pipeline

log = logging.getLogger(__name__)

_Record = TypeVar("_Record", Size, Served)
_WRITE_SECONDS: Final = 10.0
_ANNOUNCE_SECONDS: Final = 30.0  # as long as the topics are waited for


class Sizes(Follower):
    """What the table says, while the context is open.

    With keys that it `keeps`, a record of one in a lower epoch is answered by writing the one that counts again, so
    that who reads the table from its beginning finds that one.
    """

    def __init__(
        self, settings: ClientSettings, pipeline: str, keeps: Collection[bytes] = (), log: KafkaLog | None = None
    ) -> None:
        """`log`: that of the process, where it has one."""
        self._settings = settings
        self._topic = topics.sizes(pipeline)
        self._keeps = keeps
        self._newest: dict[bytes, Size] = {}
        self._ensembles: dict[bytes, Served] = {}
        self._epochs: dict[bytes, int] = {}  # the highest of variants' orders, by stage
        self._told: Callable[[], object] = bool
        self._table = Table(log or settings, self._topic, self._heard)

    def newest(self, timeout: float = READ_SECONDS) -> dict[bytes, Size]:
        """By key, once the table is read; after `timeout` seconds what is known of it."""
        self._table.rows(timeout)
        return self._newest.copy()

    def ensembles(self, timeout: float = READ_SECONDS) -> dict[bytes, Served]:
        """The ensembles as they are served, in the same way (`spillway.topology.ensembles`)."""
        self._table.rows(timeout)
        return self._ensembles.copy()

    def require(self, timeout: float = READ_SECONDS, *, patient: bool = False) -> dict[bytes, Size]:
        """The same. Raises BrokerError where the table cannot be read (`Table.require`)."""
        self._table.require(timeout, patient=patient)
        return self._newest.copy()

    def follow(self, told: Callable[[], object]) -> None:
        """Call `told` after each change, on the log's thread."""
        self._told = told

    def write(self, rows: Mapping[bytes, Size | Served]) -> None:
        """Raises BrokerError where it is not known whether they stand."""
        written = {
            key: sizes.encode(each) if isinstance(each, Size) else ensembles.encode(each) for key, each in rows.items()
        }
        write(self._settings, self._topic, written, _WRITE_SECONDS)

    def _heard(self, key: bytes, value: bytes | None) -> None:
        try:
            if ensembles.is_record(key):
                self._take(key, self._ensembles, None if value is None else ensembles.decode(value))
                return
            size = None if value is None else sizes.decode(value)
        except CheckpointError as error:
            log.warning("%s: the record of %s is ignored: %s", self._topic, _shown(key), error)
            return
        if size is not None and self._is_void(key, size):
            log.warning("%s: an order of %s belongs to an ended claim and is ignored", self._topic, _shown(key))
        else:
            self._take(key, self._newest, size)

    def _take(self, key: bytes, known: dict[bytes, _Record], new: _Record | None) -> None:
        old = known.get(key)
        if new is not None and (old is None or new.epoch >= old.epoch):
            known[key] = new
            self._told()
        elif old is not None:
            log.warning("%s: %s stays at %s; a record of a lower epoch is ignored", self._topic, _shown(key), old.text)
            if key in self._keeps and not self._table.stale:
                threading.Thread(target=self._write_again, args=(key, old), daemon=True).start()  # it waits

    def _is_void(self, key: bytes, size: Size) -> bool:
        """Whether an order of a variant comes behind one of a later claim, of any variant of its stage."""
        stage, _, pool = key.partition(b"/")
        if pool == sizes.MAIN.encode():
            return False
        highest = self._epochs.get(stage, 0)
        self._epochs[stage] = max(highest, size.epoch)
        return size.epoch < highest

    def _write_again(self, key: bytes, record: Size | Served) -> None:
        try:
            self.write({key: record})
        except SpillwayError as error:
            log.warning("%s", error)


def _shown(key: bytes) -> str:
    return repr(key.decode(errors="replace"))


def writer() -> str:
    """Who writes: a person and a host."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        name = "somebody"
    return f"{name}@{socket.gethostname()}"


def announce(settings: ClientSettings, pipeline: Pipeline, epoch: int, stage: str = "") -> None:
    """Write the pipeline file's sizes, as it begins to be served, unless the table's come from the same file.

    `epoch`: of the claim under which it is served. With a `stage` of this one alone.

    Raises BrokerError where the table cannot be read or written.
    """
    with Sizes(settings, pipeline.spec.name) as table:
        there = table.require(_ANNOUNCE_SECONDS, patient=True)
        told = writer(), time.time(), epoch, stage
        missing: dict[bytes, Size | Served] = {**sizes.from_file(pipeline, there, *told)}
        missing |= ensembles.from_file(pipeline, table.ensembles(), *told)
        if missing:
            table.write(missing)
