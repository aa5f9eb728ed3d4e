"""The gate: one process between `<p>.outcomes` and `<p>.egress`, so that each query gets exactly one outcome.

It is built on confluent-kafka and not on Faust, which runs the stages. Faust's transactions take the transactional id
from the output partition, know only the first version of the protocol, commit on a timer of their own, and have open
bugs that lose or repeat messages; and they cannot carry the note beside an offset from which the memory is rebuilt.
What the gate needs of Kafka is one consumer, one transactional producer and exact control over both.

The gate is `spillway.agents.run.gate`, which says what may go wrong and what answers it. Its ports are those of this
process: each call blocks, on the one thread that owns the consumer (`blocking`). Kafka's own troubles are met here:

* a transaction that is over, of which the broker did not tell every partition: it is ended there (`hanging`);
* ousted from its group with no successor at work, which happens to a static member that the broker hears twice after
  an outage: it makes sure of that by its transactional id, and joins anew.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer

from spillway.agents.core.board import word_of
from spillway.agents.core.gate import GateCore
from spillway.agents.core.policy import StageState
from spillway.agents.live.clock import Clock
from spillway.agents.live.gate.blocking import block, complete, in_thread
from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.gate.pulled_input import KafkaPulledInput, leave, member_settings
from spillway.agents.live.gate.states import GateStates
from spillway.agents.live.gate.stuck_transactions import StuckTransactions
from spillway.agents.live.gate.trace_exporter import TraceExporter
from spillway.agents.live.gate.transaction import KafkaTransactions, TransactionalWriter
from spillway.agents.live.gate.unassigned import GroupWatch
from spillway.agents.live.groups import group_id, instance_id
from spillway.agents.live.registry import Address, Registration
from spillway.agents.live.spans import KafkaSpans, at_once
from spillway.agents.metrics import Distribution
from spillway.agents.run.gate import Gate
from spillway.agents.run.gate_context import POLL_SECONDS, GateContext, GateTopics, gather_of
from spillway.agents.run.gate_wire import GateWire
from spillway.agents.run.inputs import Inputs, of_gate, writes_transactions
from spillway.lineage.errors import OustedError, SpillwayError
from spillway.lineage.metric_names import GATE
from spillway.lineage.values.codec import Decoder, encode_word
from spillway.producers.kafka.log import ALONE, KafkaLog
from spillway.producers.schema_log import SchemaLog
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

log = logging.getLogger(__name__)


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


_LOAD_SECONDS = 120.0
_MEND_SECONDS = 30.0


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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
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
    pulled = pulled_input(config)
    largest = config.pipeline.spec.limits.merged().max_message_bytes + 2 * topics.HEADERS_BYTES
    ident = instance_id(name, GATE, config.replica)
    writer = TransactionalWriter(config.settings.confluent(), ident, max_message_bytes=largest)
    teller = Teller(config.settings, name, config.replica, metrics, config.plan_period)
    places, states = config.pipeline.spec.places, None
    if places:
        follower = KafkaLog(config.settings, ALONE)
        states = GateStates(follower.through, name, places, block)
    if config.otlp is not None:
        metrics.traces = TraceExporter(config.otlp, name, config.replica, config.trace_sample)
    gate = build(config, pulled, writer, metrics, teller.tell, states)
    leaving, watch = False, None
    try:
        if states is not None:
            metrics.hold = Distribution()
            complete(states.await_ends(stopping))
        complete(gate.start())
        watch = GroupWatch(
            config.settings.confluent(), group_id(name, GATE), config.pipeline.spec.partitions, pulled.leave
        )
        registration = Registration(config.run_dir, metrics, config.metrics, gate.what_hangs, metrics.recent)
        work(gate, lambda: stopping() or bool(gate.partitions) or bool(metrics.stopped))
        registration.mark_ready()
        log.info("gate %s.%d: serving", name, config.replica)
        work(gate, stopping)
        leaving = True
    finally:
        if watch is not None:
            watch.close()
        teller.close()
        writer.close()
        if states is not None:
            states.close()
            follower.shut()
        complete(pulled.close(leave=leaving))
        if metrics.traces is not None:
            metrics.traces.close()
    registration.close()


def work(gate: Gate, stopping: Callable[[], bool]) -> None:
    """Run a gate, which joins its group anew where the broker has ousted it."""
    while True:
        try:
            complete(gate.run(stopping))
        except OustedError as error:
            log.warning("%s; rejoining the group", error)
            complete(gate.rejoin())
        else:
            return


def build(
    config: GateProcessConfig,
    pulled: KafkaPulledInput,
    writer: TransactionalWriter,
    metrics: GateMetrics,
    tell: Callable[[float], None] = lambda _now: None,
    states: GateStates | None = None,
) -> Gate:
    """Put a gate together around the input and the writer that are given; `tell` is called every round.

    `states` where the pipeline has stateful stages.
    """
    durability = states.logs if states is not None else None
    pipeline, settings = config.pipeline, config.settings.confluent()
    spec, limits = pipeline.spec, pipeline.spec.limits.merged()
    schemas = SchemaLog(config.settings, spec.name)
    schemas.open()
    names = GateTopics(topics.outcomes(spec.name), topics.egress(spec.name), topics.dead(spec.name))
    group = group_id(spec.name, GATE)
    mender = StuckTransactions(settings, group=group, outcomes=names.outcomes, outputs=(names.egress, names.dead))

    async def mend() -> None:
        mender.mend(writer, _MEND_SECONDS)

    again, clock = KafkaSpans(settings, at_once), Clock()  # the first is for another thread
    context = GateContext(
        name=f"{spec.name}.{config.replica}",
        topics=names,
        input=pulled,
        transactions=KafkaTransactions(writer, names.outcomes, pulled.membership),
        spans=KafkaSpans(settings, at_once, _LOAD_SECONDS),
        clock=clock,
        sleep=block,
        begin=ThreadPoolExecutor(1, "json").submit,
        reread=lambda places: in_thread("rereading", lambda: complete(again.pick(names.outcomes, places))),
        wire=GateWire(pipeline.graph.order, Decoder(limits, schemas.book), limits, clock, schemas.relearn, spec.places),
        inputs=Inputs(
            names.outcomes,
            of_gate(group, names.outcomes),
            metrics.stopped,
            markers=writes_transactions(spec, pipeline.graph.order),
        ),
        recorder=metrics,
        core=lambda: GateCore(pipeline.graph, sinks=spec.sinks, durability=durability),
        mend=mend,
        tell=tell,
        versions=states,
        gather=gather_of(spec.slo),
        poll=min(POLL_SECONDS, config.plan_period),  # its word goes out between two rounds
        trace=metrics.traces.offer if metrics.traces is not None else None,
    )
    return Gate(context)


def pulled_input(config: GateProcessConfig) -> KafkaPulledInput:
    """Return the gate's input, which `Gate.start` joins."""
    pipeline, settings = config.pipeline.spec.name, config.settings
    spans, topic = KafkaSpans(settings.confluent(), at_once, _LOAD_SECONDS), topics.outcomes(pipeline)
    return KafkaPulledInput(
        topic,
        member_settings(settings, pipeline, config.replica),
        lambda partition: complete(spans.bounds(topic, [partition]))[partition],
        lambda member_id: leave(settings, group_id(pipeline, GATE), member_id),
    )
