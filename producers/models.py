"""The table of registered models, `spillway.models`, followed: what manifests (`topology.variants.manifest`) there are.

It belongs to no pipeline: all pipelines of a cluster read the same.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from spillway.lineage.errors import SpecError, TopicError
from spillway.producers.table import READ_SECONDS, Table, TableView, write
from spillway.topology.topics import MODELS
from spillway.topology.variants.manifest import decode, encode, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.producers.connection import ClientSettings
    from spillway.producers.kafka.log import KafkaLog
    from spillway.topology.variants.manifest import Manifest

log = logging.getLogger(__name__)

_WRITE_SECONDS: Final = 10.0


class Models(TableView):
    """What is registered on a cluster, while the context is open."""

    def __init__(self, settings: ClientSettings, *, log: KafkaLog | None = None) -> None:
        """`log`: that of the process, where it has one."""
        self._manifests: dict[bytes, Manifest] = {}
        self._told: Callable[[], object] = bool
        self._table = Table(log or settings, MODELS, self._heard)

    def require(self, timeout: float = READ_SECONDS) -> Mapping[bytes, Manifest]:
        """All manifests, by key. Raises BrokerError where the table cannot be read."""
        try:
            self._table.require(timeout)
        except TopicError:  # nobody has registered a model yet
            return {}
        return self._manifests.copy()

    def now(self) -> list[Manifest]:
        return list(self._manifests.values())

    def follow(self, told: Callable[[], object]) -> None:
        """Call `told` after each change, on the log's thread."""
        self._told = told

    def _heard(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._manifests.pop(key, None)
        else:
            try:
                self._manifests[key] = decode(value)
            except SpecError as error:
                log.warning("%s: the record of %r is ignored: %s", MODELS, key.decode(errors="replace"), error)
                return
        self._told()


def put(settings: ClientSettings, manifest: Manifest) -> None:
    """Raises BrokerError where it is not known whether it stands."""
    key = key_of(manifest.app, manifest.name, manifest.version)
    write(settings, MODELS, {key: encode(manifest)}, _WRITE_SECONDS)
