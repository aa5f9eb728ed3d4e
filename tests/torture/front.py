"""The pipeline whose learner is struck: its queries go on, and see what the learner has taken."""

from collections import Counter

from confluent_kafka.admin import AdminClient

from spillway.agents.live.topics import ensure
from spillway.lineage.headers import decode
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import PREDICTION
from spillway.lineage.schemas import SchemaBook
from spillway.lineage.values.codec import Decoder
from spillway.producers.connection import ClientSettings
from spillway.producers.published import decode_row
from spillway.topology import topics
from tests.oracle import outcome_problems
from tests.state_topics import Recorder
from tests.torture.load import ANSWER_SECONDS, Load
from tests.torture.models import USERS
from tests.waiting import until

_OF_OBSERVATIONS = 30.0  # seconds until what is durable is published


class Front:
    """From when its topics are made until it is judged."""

    def __init__(self, bootstrap, pipeline, learner):
        self.name = pipeline.spec.name
        self._bootstrap, self._pipeline = bootstrap, pipeline
        self._table = topics.table_of(pipeline.spec, learner)
        self._load = None

    def begin(self):
        ensure(ClientSettings(bootstrap=self._bootstrap), topics.topic_plan(self._pipeline.spec))
        self._recorder = Recorder(self._bootstrap, self._pipeline)

    def load(self, rate, count):
        self._load = Load(self._bootstrap, self.name, rate=rate, count=count, users=USERS)

    def close(self):
        if self._load is not None:
            self._load.abandon()
        self._recorder.close()

    def forget(self):
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for future in admin.delete_topics([topic.name for topic in topics.topic_plan(self._pipeline.spec)]).values():
            future.result(ANSWER_SECONDS)

    def problems(self, learned, observations):
        """What is wrong with the outcomes of queries, and with what is published after these observations.

        `learned`: what is recorded of the learner's topics. Call it while both still serve.
        """
        asked = self._load.enough()
        egress = self._recorder.recording.topics[topics.egress(self.name)]
        wanted = Counter(f"user-{int(each[1:]) % USERS}" for each in observations)
        found = []
        for condition, what, seconds in (
            (lambda: len(egress) >= len(asked), f"{len(asked)} outcomes of queries", ANSWER_SECONDS),
            (lambda: self._published(learned) == wanted, f"the table says {wanted}", _OF_OBSERVATIONS),
        ):
            try:
                until(condition, seconds, what)
            except AssertionError as error:
                found.append(str(error))
        decoder = Decoder(DEFAULT_LIMITS, SchemaBook())
        told = [(decode(each.headers).request_id, decoder.outcome(each.value)) for each in list(egress)]
        answers = [(request_id, outcome.kind, outcome.outputs) for request_id, outcome in told]
        found += outcome_problems(asked, answers, lambda _id, kind, _told: kind == PREDICTION)
        if not any(outcome.outputs["user"] for _, outcome in told if outcome.kind == PREDICTION):
            found.append("no query was given what is published: the run says nothing about tables")
        return found

    def _published(self, learned):
        """By key: how many observations its newest row has; a row of a lower version is passed over."""
        rows = {}
        decoder = Decoder(DEFAULT_LIMITS)
        for record in list(learned.topics[self._table]):
            row = decode_row(record.value, decoder)
            if record.key not in rows or row.version >= rows[record.key].version:
                rows[record.key] = row
        return {key.decode(): row.value["queries"] for key, row in rows.items()}
