"""The gate: one process between `<p>.outcomes` and `<p>.egress`, so that each query gets exactly one outcome.

It is built on confluent-kafka and not on Faust, which runs the stages. Faust's transactions take the transactional id
from the output partition, know only the first version of the protocol, commit on a timer of their own, and have open
bugs that lose or repeat messages; and they cannot carry the note beside an offset from which the memory is rebuilt.
What the gate needs of Kafka is one consumer, one transactional producer and exact control over both.

What may go wrong, and what answers it:

* killed at any moment: its open transaction is aborted when a gate with the same ids starts, or by the broker after
  ten seconds; memory is rebuilt from the committed offsets, their notes and the egress (`memory`);
* paused while another gate takes its place: the broker voids what it still writes, by the producer's epoch or by the
  group's generation, and it ends with a message that says so (`transaction`);
* a transaction that is over, of which the broker did not tell every partition: it is ended there (`hanging`);
* an aborted transaction: the core is dropped, and the gate begins again from what is committed (`loop`);
* ousted from its group with no successor at work, which happens to a static member that the broker hears twice after
  an outage: it makes sure of that by its transactional id, and joins anew.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer

from spillway.agents.core.board import word_of
from spillway.agents.core.gate import GateCore
from spillway.agents.core.policy import StageState
from spillway.agents.live.admin import Admin
from spillway.agents.live.gate.fencing import OustedError
from spillway.agents.live.gate.hanging import Mender
from spillway.agents.live.gate.loop import GATHER_SECONDS, GATHER_SHARE, Gate, GateTopics, Means
from spillway.agents.live.gate.memory import Memory, Rereading
from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.gate.states import GateStates
from spillway.agents.live.gate.trace_exporter import TraceExporter
from spillway.agents.live.gate.transaction import TransactionalWriter
from spillway.agents.live.gate.wire import Wire
from spillway.agents.live.groups import group_id, instance_id
from spillway.agents.live.registry import Address, serve_metrics
from spillway.agents.live.spans import SpanReader
from spillway.agents.metrics import Distribution
from spillway.agents.run.inputs import Inputs, of_gate, writes_transactions
from spillway.lineage.errors import SpillwayError
from spillway.lineage.metric_names import GATE
from spillway.lineage.values.codec import Decoder, encode_word
from spillway.producers.kafka.log import ALONE, KafkaLog
from spillway.producers.schema_log import SchemaLog
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from spillway.agents.live.gate.transaction import Writer
    from spillway.lineage.limits import Limits
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

log = logging.getLogger(__name__)


# The gate's membership in its consumer group: static, cooperative, and left in an orderly way.
#
# Static, so that a gate that is restarted within its session gets its partitions back at once and nobody else has to
# read their memory. That has a price: neither librdkafka nor aiokafka tells the broker when a static member leaves for
# good, and its partitions would lie idle for a whole session. So `leave` says it in their stead.

SESSION_MS = 10_000
_HEARTBEAT_MS = 500  # how soon a member hears of a rebalance
_LEAVE_SECONDS = 3.0


def member_settings(settings: ClientSettings, pipeline: str, replica: int) -> dict[str, Any]:
    """How a gate takes part in its group; it commits nothing by itself."""
    return {
        **settings.confluent(),
        "group.id": group_id(pipeline, GATE),
        "group.instance.id": instance_id(pipeline, GATE, replica),
        "client.id": instance_id(pipeline, GATE, replica),
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": _HEARTBEAT_MS,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # each partition is assigned with where it begins
        "isolation.level": "read_committed",  # also makes it wait for offsets that a transaction is moving
        "fetch.wait.max.ms": 250,
        "fetch.queue.backoff.ms": 10,
        "queued.min.messages": 2_000,
        "queued.max.messages.kbytes": 16_384,
    }


def member(settings: ClientSettings, pipeline: str, replica: int) -> Consumer:
    return Consumer(member_settings(settings, pipeline, replica), logger=log)


def leave(settings: ClientSettings, pipeline: str, member_id: str) -> None:
    """Tell the broker that a static member, whose consumer is closed, will not come back.

    Where that fails, the partitions move on when the session ends, so it is not worth more than a log line.
    """
    try:
        asyncio.run(asyncio.wait_for(_leave(settings.aiokafka(), group_id(pipeline, GATE), member_id), _LEAVE_SECONDS))
    except (TimeoutError, OSError) as error:
        log.warning("could not leave the group %s: %s", group_id(pipeline, GATE), error)


async def _leave(connection: dict[str, Any], group: str, member_id: str) -> None:
    # Imported here, as aiokafka is needed for this one request at the very end.
    from aiokafka.client import AIOKafkaClient  # noqa: PLC0415
    from aiokafka.errors import KafkaError as AIOKafkaError  # noqa: PLC0415
    from aiokafka.protocol.group import LeaveGroupRequest  # noqa: PLC0415

    client = AIOKafkaClient(**connection)
    try:
        await client.bootstrap()
        coordinator = await client.coordinator_lookup(0, group)
        answer = await client.send(coordinator, LeaveGroupRequest(group, member_id))
        log.info("left the group %s (answer %s)", group, answer.error_code)
    except AIOKafkaError as error:
        raise OSError(str(error)) from error
    finally:
        await client.close()


# The gate's word for the stages: how long an outcome takes through it, which their estimates have to reach beyond.
#
# The gate is no stage and has no policy; of what a stage tells, it tells only the hops. Its word goes out beside the
# transactions, by a producer of its own: what it says commits nothing, and may get lost.

_LOST_AFTER_MS = 2_000


class Teller:
    """Says the gate's word once a period, when `tell` is called often enough."""

    def __init__(
        self, settings: ClientSettings, pipeline: str, replica: int, metrics: GateMetrics, period: float
    ) -> None:
        self._topic = topics.plan(pipeline)
        self._key = f"{GATE}.{replica}".encode()
        self._replica = replica
        self._metrics = metrics
        self._period = period
        self._began_us = time.time_ns() // 1000
        self._said = 0.0  # unix seconds
        self._producer = Producer(
            {**settings.confluent(), "linger.ms": 0, "message.timeout.ms": _LOST_AFTER_MS}, logger=log
        )

    def tell(self, now: float) -> None:
        if now - self._said < self._period:
            return
        span, self._said = min(now - self._said, self._period), now
        hops = self._metrics.transfer.samples(now)
        word = word_of(StageState(GATE, self._replica, now, span=span, hops=hops), self._began_us)
        try:
            self._producer.produce(self._topic, encode_word(word), self._key, partition=0)
        except (BufferError, KafkaException) as error:
            log.warning("the gate's status was not sent: %s", error)
        self._producer.poll(0)

    def close(self) -> None:
        self._producer.purge()


_LOGS_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateProcessConfig:
    """What a gate process needs to know."""

    pipeline: Pipeline
    settings: ClientSettings
    run_dir: Path
    replica: int = 0
    plan_period: float = 1.0  # seconds between two of its words to the stages
    metrics: Address = Address()  # noqa: RUF009 - immutable
    otlp: str | None = None  # the base URL of a collector of traces
    trace_sample: float = 0.0  # the share of traces to export where no caller decides


def run(config: GateProcessConfig) -> int:
    """Serve until SIGTERM or SIGINT; return the process's exit code: 0 stopped, 1 failed (said on stderr)."""
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        serve(config, stopping.is_set)
    except SpillwayError as error:
        print(f"spillway: {config.pipeline.spec.name}/gate.{config.replica}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def serve(config: GateProcessConfig, stopping: Callable[[], bool]) -> None:
    """Run a gate until `stopping()`, then leave its group. Raises SpillwayError where it cannot go on.

    A gate that fails stays a member of its group, so that the one which is started in its place is given its
    partitions at once.
    """
    name = config.pipeline.spec.name
    metrics = GateMetrics(name, config.replica, config.pipeline.spec.slo)
    membership = _Membership(config)
    writer = transactional_writer(config)
    teller = Teller(config.settings, name, config.replica, metrics, config.plan_period)
    places, states = config.pipeline.spec.places, None
    if places:
        follower = KafkaLog(config.settings, ALONE)
        states = GateStates(follower.through, name, places)
    if config.otlp is not None:
        metrics.traces = TraceExporter(config.otlp, name, config.replica, config.trace_sample)
    gate = build(config, membership.consumer, writer, metrics, teller.tell, states)
    try:
        if states is not None:
            metrics.hold = Distribution()
            states.await_ends(_LOGS_SECONDS, stopping)
        gate.start()
        registration = serve_metrics(config.run_dir, metrics, config.metrics, gate.what_hangs, metrics.recent)
        membership.work(gate, lambda: stopping() or bool(membership.consumer.assignment()) or bool(metrics.stopped))
        registration.mark_ready()
        log.info("gate %s.%d: serving", name, config.replica)
        membership.work(gate, stopping)
    finally:
        gate.close()
        teller.close()
        writer.close()
        if states is not None:
            states.close()
            follower.shut()
        member_id = membership.consumer.memberid()
        membership.consumer.close()
        if metrics.traces is not None:
            metrics.traces.close()
    registration.close()
    if member_id:
        leave(config.settings, name, member_id)


class _Membership:
    """The consumer by which a gate is a member of its group; a new one where the broker has ousted the old."""

    def __init__(self, config: GateProcessConfig) -> None:
        self._config = config
        self.consumer = self._consumer()

    def _consumer(self) -> Consumer:
        return member(self._config.settings, self._config.pipeline.spec.name, self._config.replica)

    def work(self, gate: Gate, stopping: Callable[[], bool]) -> None:
        while True:
            try:
                gate.run(stopping)
            except OustedError as error:
                log.warning("%s; rejoining the group", error)
                self.consumer.close()
                self.consumer = self._consumer()
                gate.rejoin(self.consumer)
            else:
                return


def build(
    config: GateProcessConfig,
    consumer: Consumer,
    writer: Writer,
    metrics: GateMetrics,
    tell: Callable[[float], None] = lambda _now: None,
    states: GateStates | None = None,
) -> Gate:
    """Put a gate together around the consumer and the writer that are given; `tell` is called every round.

    `states` where the pipeline has stateful stages.
    """
    durability = states.logs if states is not None else None
    pipeline, settings = config.pipeline, config.settings
    spec, limits = pipeline.spec, limits_of(pipeline)
    schemas = SchemaLog(settings, spec.name)
    schemas.open()
    wire = Wire(pipeline.graph.order, Decoder(limits, schemas.book), limits, schemas.relearn, spec.places)
    names = GateTopics(topics.outcomes(spec.name), topics.egress(spec.name), topics.dead(spec.name))
    memory = Memory(
        settings.confluent(),
        consumer,
        Admin(settings.confluent()),
        outcomes=names.outcomes,
        egress=names.egress,
        wire=wire,
        inputs=Inputs(
            names.outcomes,
            of_gate(group_id(spec.name, GATE), names.outcomes),
            metrics.stopped,
            markers=writes_transactions(spec, pipeline.graph.order),
        ),
        **({} if states is None else {"read_logs": states.read_to_ends}),
    )
    mender = Mender(
        settings.confluent(),
        group=group_id(spec.name, GATE),
        outcomes=names.outcomes,
        outputs=(names.egress, names.dead),
    )
    means = Means(
        consumer=consumer,
        writer=writer,
        wire=wire,
        memory=memory,
        rereading=Rereading(lambda: SpanReader(settings.confluent(), names.outcomes)),
        mender=mender,
        metrics=metrics,
        core=lambda: GateCore(pipeline.graph, sinks=spec.sinks, durability=durability),
        tell=tell,
        trace=metrics.traces.offer if metrics.traces is not None else None,
        states=states,
        gather=min(GATHER_SECONDS, GATHER_SHARE * spec.slo),
    )
    return Gate(f"{spec.name}.{config.replica}", names, means)


def transactional_writer(config: GateProcessConfig) -> TransactionalWriter:
    return TransactionalWriter(
        config.settings.confluent(),
        instance_id(config.pipeline.spec.name, GATE, config.replica),
        max_message_bytes=limits_of(config.pipeline).max_message_bytes + 2 * topics.HEADERS_BYTES,
    )


def limits_of(pipeline: Pipeline) -> Limits:
    return pipeline.spec.limits.merged()
