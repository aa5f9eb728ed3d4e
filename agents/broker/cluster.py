"""The embedded Kafka as its users start it: one node, or a cluster of several, each broker and controller at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from spillway.agents.broker.embedded import PORT_TAKEN, PORT_TRIES, EmbeddedBroker, Seat, end_all, new_cluster
from spillway.agents.broker.folder import DataFolder, Membership
from spillway.agents.broker.ports import free_port, is_free
from spillway.lineage.errors import BrokerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

HEAP = "512m"  # of one node
NODE_HEAP = "192m"  # of each of several
SIZES = (1, 3)  # two nodes tolerate the loss of none, and five are not on one machine


class EmbeddedCluster:
    """One Kafka node or three on loopback, with their data under `data_dir`, kept across restarts.

    `nodes`: how many; None: as many as the folder has, or one. With three every record is on three disks and
    acknowledged once it is on two. `port` is node 1's wanted port, of the others the ones that follow; what else may be
    said is said at `EmbeddedBroker`. A node is an `EmbeddedBroker` of its own, to be stopped, killed and started again.
    Raises `BrokerError` or `UsageError` with what to do.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        nodes: int | None = None,
        port: int = 0,
        strict_port: bool = False,
        detached: bool = False,
        cache_dir: Path | str | None = None,
        heap: str | None = None,
        start_timeout: float = 60.0,
        notice: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.folder = DataFolder(Path(data_dir))
        self.start_seconds = 0.0  # how long the last start took, until all nodes answered
        count = self._count(nodes)
        folders = [self.folder] if count == 1 else [self.folder.node(number) for number in range(1, count + 1)]
        self.nodes = [
            EmbeddedBroker(
                folder.path,
                port=_wanted(folder, port, number, strict=strict_port),
                strict_port=strict_port,
                detached=detached,
                cache_dir=cache_dir,
                heap=heap or (HEAP if count == 1 else NODE_HEAP),
                start_timeout=start_timeout,
                notice=notice,
            )
            for number, folder in enumerate(folders, 1)
        ]

    def _count(self, wanted: int | None) -> int:
        there = len(self.folder.nodes())
        used = self.folder.membership() is not None or self.folder.formatted
        if wanted is not None and wanted not in SIZES:
            raise UsageError(f"a cluster must have 1 or 3 nodes, not {wanted}")
        if wanted is not None and used and wanted != there:
            raise UsageError(
                f"{self.folder.path} holds the data of {_nodes(there)}, and cannot be used for {_nodes(wanted)}: "
                "name another folder with --broker-dir, or delete it with 'spillway broker reset'"
            )
        return there if wanted is None else wanted

    @property
    def bootstrap(self) -> str:
        """The address for clients, of all nodes; known once started."""
        return ",".join(node.bootstrap for node in self.nodes)

    def start(self) -> Self:
        if len(self.nodes) == 1:
            self.start_seconds = self.nodes[0].start().start_seconds
            return self
        began = time.monotonic()
        with self.folder.claimed():
            self.folder.prepare()
            for last_try in (False,) * (PORT_TRIES - 1) + (True,):
                problem = self._start_nodes()
                if problem is None:
                    break
                if last_try or not problem.startswith(PORT_TAKEN):
                    raise BrokerError(f"Kafka did not start: {problem}")
        self.start_seconds = time.monotonic() - began
        return self

    def _start_nodes(self) -> str | None:
        """Start all together, as they answer once most of them run; returns what went wrong, if anything did."""
        self._take_seats()
        started = [node for node in self.nodes if node.folder.running() is None]
        try:
            for node in started:
                node.prepare()
            for node in started:
                node.launch()
            problems = [(node.await_answer(), node.folder.log) for node in started]
        except BaseException:  # Ctrl-C too: brokers that nobody waited for must not go on
            _end(started)
            raise
        for problem, log in problems:
            if problem is not None:
                _end(started)
                return f"{problem}\n(its log is {log})"
        return None

    def _take_seats(self) -> None:
        """Agree on an id and on the controllers' ports: the earlier ones, unless they were taken meanwhile."""
        agreed = self.folder.membership()
        ports = agreed.controllers if agreed is not None else ()
        if not self.folder.brokers() and not (ports and all(map(is_free, ports))):
            ports, taken = (), [node.port for node in self.nodes]
            for _ in self.nodes:
                ports += (free_port(but_not=[*ports, *taken]),)
        membership = Membership(agreed.id if agreed is not None else new_cluster(), ports)
        self.folder.agree(membership)
        for number, node in enumerate(self.nodes, 1):
            node.seat = Seat(number, membership.id, membership.controllers)

    def stop(self, timeout: float = 20.0) -> None:
        end_all(self.folder.brokers(), timeout, of=len(self.nodes))
        for node in self.nodes:
            node.stop(timeout=0.0)

    def leave(self) -> None:
        """Let all nodes go on without this process, for another one that adopts them."""
        for node in self.nodes:
            node.leave()

    def adopt(self) -> bool:
        """Keep the nodes that were left on the folder, as if they had been started here; False where there is none."""
        with self.folder.claimed():
            adopted = [node for node in self.nodes if node.adopt()]
            if adopted and len(self.nodes) > 1:
                self._take_seats()
        return bool(adopted)

    def kill(self) -> None:
        """End all nodes at once, as a power cut would."""
        self.stop(timeout=0.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()


def _end(nodes: list[EmbeddedBroker]) -> None:
    for node in nodes:
        node.stop(timeout=0.0)


def _wanted(folder: DataFolder, port: int, number: int, *, strict: bool) -> int:
    last = folder.last()
    if last is not None and not strict:
        return last.port
    return port + number - 1 if port else 0


def _nodes(count: int) -> str:
    return "one node" if count == 1 else f"{count} nodes"
