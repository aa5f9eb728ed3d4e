"""Ports on loopback: which are free, and whether Kafka answers on one."""

from __future__ import annotations

import random
import socket
import struct
from typing import TYPE_CHECKING

from spillway.agents.broker.settings import HOST
from spillway.lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Collection

# Below the ranges from which systems take the local ends of outgoing connections: a port there could be taken by a
# client of the very broker while that restarts, even by one that connects to itself.
_LOWEST, _HIGHEST = 20000, 32000
_TRIES = 200
_PROBE_SECONDS = 1.0
_API_VERSIONS = 18


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port(*, but_not: Collection[int] = ()) -> int:
    """A port that nobody listens on now; somebody may before it is used, so be ready to ask again."""
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, _HIGHEST)  # noqa: S311 - a guess, not a secret
        if port not in but_not and is_free(port):
            return port
    raise BrokerError(f"no free port between {_LOWEST} and {_HIGHEST} on {HOST}")


def kafka_answers(port: int) -> bool:
    """Whether a Kafka broker on the port answers a request (ApiVersions, version 0), and so serves its clients."""
    request = struct.pack(">hhih", _API_VERSIONS, 0, 1, -1)
    try:
        with socket.create_connection((HOST, port), timeout=_PROBE_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(10)
    except OSError:
        return False
    return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (1, 0)  # noqa: PLR2004 - length, id, error code
