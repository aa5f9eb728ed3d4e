"""The process of a gateway: it connects, listens, registers itself, and drains when it is asked to stop.

While it drains it takes no new connection and answers not ready, and what is under way gets its answer. It has no state
but what is under way, so any number of replicas may run beside one another.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spillway.agents.gateway.asking import GRACE, Pipelines, Served
from spillway.agents.gateway.connections import allow_files
from spillway.agents.gateway.feedback import Signer, secret_in
from spillway.agents.gateway.page import Page
from spillway.agents.gateway.receiving import Room
from spillway.agents.gateway.security import Gatekeeper, read_tokens, tls_context
from spillway.agents.gateway.server import HttpFront
from spillway.agents.live.registry import Address, Registration, turns
from spillway.agents.metrics import Families, ProcessMetrics
from spillway.agents.supervise.view import View
from spillway.lineage import metric_names as names
from spillway.lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from prometheus_client import Metric

    from spillway.agents.core.calibration import Histogram
    from spillway.agents.gateway.grpc_service import GrpcFront
    from spillway.agents.gateway.security import Caller
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

log = logging.getLogger(__name__)

SECRET: Final = "gateway.secret"  # in the run directory, where no file is named  # noqa: S105


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """What a gateway is told when it starts."""

    pipelines: tuple[Pipeline, ...]
    settings: ClientSettings
    run_dir: Path
    http: Address
    grpc: Address | None = None
    replica: int = 0
    tokens: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    secret: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    metrics: Address = Address()  # noqa: RUF009 - immutable


class GatewayMetrics(ProcessMetrics):
    """What a gateway counts of one pipeline."""

    stage = role = names.GATEWAY

    def __init__(self, served: Served, replica: int, room: Room) -> None:
        self._served, self._room = served, room
        self.pipeline, self.replica = served.name, replica
        self.label = f"{names.GATEWAY}.{replica}"

    def collect(self) -> Iterator[Metric]:
        make = Families(self.pipeline, self.stage, self.replica)
        traffic = self._served.traffic.copy()
        by_code: dict[tuple[str, ...], float] = {
            (name, code): n for name, each in traffic.items() for code, n in each.by_status.copy().items()
        }
        of = (names.PROTOCOL,)
        passed: dict[tuple[str, ...], float] = {(name,): each.passed_over for name, each in traffic.items()}
        seconds: dict[tuple[str, ...], Histogram] = {(name,): each.seconds for name, each in traffic.items()}
        yield make.counters(names.REQUESTS_TOTAL, "Queries that were answered", (*of, names.CODE), by_code)
        yield make.distributions(names.REQUEST_SECONDS, "From a query's arrival to its answer", of, seconds)
        yield make.gauge(names.REQUESTS_UNDER_WAY, "Queries that wait for their outcomes", self._served.under_way)
        yield make.counters(names.PASSED_OVER_TOTAL, "Outcomes that came when their clients had gone", of, passed)
        yield make.gauge(names.BYTES_UNDER_WAY, "Bytes of requests, of all pipelines together", self._room.taken)


def run(config: GatewayConfig, ready: Callable[[int], None] = lambda _: None) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. `ready` is called with the port.

    Raises SpillwayError where it cannot serve.
    """
    allow_files()
    asyncio.run(_serve(config, ready))
    return 0


async def _serve(config: GatewayConfig, ready: Callable[[int], None]) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    pipelines, room = Pipelines(config.pipelines, config.settings), Room()
    tokens = read_tokens(config.tokens) if config.tokens is not None else None
    named = frozenset[str]().union(*(each.pipelines or () for each in (tokens or {}).values()))
    for name in sorted(named - set(pipelines.served)):
        log.warning("%s: there is no pipeline %r here, which a token is for", config.tokens, name)
    gatekeeper = Gatekeeper(tokens, config.http.host, config.allowed_hosts)
    signer = Signer(secret_in(config.secret or config.run_dir / SECRET))
    tls = tls_context(config.tls_cert, config.tls_key, config.tls_client_ca)
    everything = [GatewayMetrics(served, config.replica, room) for served in pipelines.served.values()]
    front = HttpFront(pipelines, gatekeeper, signer, room, everything)
    Page(View(config.run_dir, pipelines.served).gather, config.pipelines, config.settings).add(front.app)
    calls = _grpc_front(config, pipelines, gatekeeper, room)
    (host, first), registrations = config.metrics, list[Registration]()
    for place, each in enumerate(everything):
        address = Address(host, first + place if first else 0)
        registrations.append(Registration(config.run_dir, each, address, turns(loop)))
    try:
        await pipelines.open()
        slowest = max(served.slo for served in pipelines.served.values())
        port = await front.start(*config.http, tls, slowest + GRACE)
        if calls is not None:
            log.info("gateway.%d: gRPC at port %d", config.replica, await calls.start())
        for registration in registrations:
            registration.mark_ready()
        log.info("gateway.%d: %s at %s:%d", config.replica, ", ".join(pipelines.served), config.http.host, port)
        ready(port)
        gc.freeze()
        loss = asyncio.create_task(pipelines.lost.wait())
        await asyncio.wait([loss, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        log.info("gateway.%d: draining", config.replica)
        pipelines.draining = True
        await asyncio.gather(front.stop(), *([] if calls is None else [calls.stop(slowest + GRACE)]))
        if loss.done():
            raise BrokerError("the gateway's Kafka client has failed for good (see above): start the gateway again")
    finally:
        await pipelines.close()
        for registration in registrations:
            registration.close()


def _grpc_front(config: GatewayConfig, pipelines: Pipelines, gatekeeper: Gatekeeper, room: Room) -> GrpcFront | None:
    if config.grpc is None:
        return None
    from spillway.agents.gateway.grpc_service import GrpcFront, credentials_of  # noqa: PLC0415 - an extra

    def authorize(metadata: Mapping[str, str]) -> Caller:
        return gatekeeper.caller(metadata.get("authorization", ""), None)

    host, port = config.grpc
    credentials = credentials_of(config.tls_cert, config.tls_key, config.tls_client_ca)
    return GrpcFront(pipelines, authorize, host=host, port=port, credentials=credentials, room=room)
