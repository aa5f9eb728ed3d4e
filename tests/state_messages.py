"""The messages in a recording: decoded, and whether a recovery keeps what they rest on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.live.stage.batch_work import UserFunctions
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.state import fingerprint
from spillway.checkpoint.logs import Fate
from spillway.lineage import headers
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import PREDICTION, Outcome
from spillway.lineage.schemas import SchemaBook
from spillway.lineage.values.codec import Decoder
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.checkpoint.logs import Logs
    from spillway.lineage.headers import Headers
    from spillway.lineage.replication import Batch, InputRecord
    from tests.state_topics import Recording, Written


class Messages:
    """What stages have sent to one another and to the gate, as the version logs `logs` judge it."""

    def __init__(self, recording: Recording, logs: Logs) -> None:
        self.recording = recording
        self.spec = recording.pipeline.spec
        self.graph = recording.pipeline.graph
        self.decoder = Decoder(DEFAULT_LIMITS, SchemaBook())
        self._logs = logs
        self._sent: list[tuple[str, Written, Headers]] | None = None

    def of(self, topic: str) -> list[Written]:
        return [record for record in self.recording.topics.get(topic, ()) if record.value is not None]

    def sent(self) -> list[tuple[str, Written, Headers]]:
        """Every message that a stage has sent: its topic, its record and its headers."""
        if self._sent is None:
            name = self.spec.name
            inputs = [topics.stage_input(name, stage.name) for stage in self.spec.stages if stage.after]
            self._sent = [
                (topic, record, read_headers(record))
                for topic in (*inputs, topics.outcomes(name))
                for record in self.of(topic)
            ]
        return self._sent

    def live(self, told: Headers) -> bool:
        """Whether a recovery keeps what a message rests on; what is never decided, the oracle's `progress` tells."""
        return told.hop is not None and all(self._logs.fate(mark) is not Fate.DEAD for mark in told.hop.marks)

    def carries_marks(self, stage: str) -> bool:
        """Whether everything that a stage sends rests on a state."""
        return self.spec.stage(stage).replicated or bool(self.graph.rests_on(stage))

    def content(self, record: Written) -> tuple[str, Any]:
        """What a message says, without the times that its making took."""
        message = self.decoder.message(record.value or b"")
        if isinstance(message, Outcome):
            return message.kind, message.outputs if message.kind == PREDICTION else {"reason": message.reason}
        return "query", message.inputs

    def inputs(self, stage: str, batches: list[Batch]) -> Iterator[list[Inputs]]:
        """The queries of recorded batches, read again from the stage's input."""
        name = self.spec.name
        topic = topics.stage_input(name, stage) if self.graph.predecessors[stage] else topics.ingress(name)
        by_place = {(record.partition, record.offset): record for record in self.of(topic)}
        functions = UserFunctions(
            self.spec.stage(stage), self.graph.successors[stage], partial(self.graph.expected, stage)
        )
        for batch in batches:
            parts: dict[str, list[InputRecord]] = {}
            for record in batch.taken:
                parts.setdefault(record.request, []).append(record)
            made = []
            for request, records in parts.items():
                written = [by_place[record.partition, record.offset] for record in records]
                told = [(read_headers(one), one) for one in written]
                # Of a join that goes on with what came, the parts that were lost are on record as well.
                queries = [(h, self.decoder.query(one.value or b"")) for h, one in told if not h.lost]
                inputs, parameters = queries[0][1].inputs, queries[0][1].parameters
                if self.graph.is_join(stage):
                    inputs = functions.join({h.hop.stage: query.inputs for h, query in queries if h.hop is not None})
                key = (written[0].key or b"").decode("utf-8", "backslashreplace")
                made.append(Inputs(inputs, parameters, request, key))
            yield made


def read_headers(record: Written) -> Headers:
    return headers.decode(record.headers)


def print_of(content: Any) -> str:
    """By what contents are compared, bit for bit."""
    return fingerprint(content) if content else ""
