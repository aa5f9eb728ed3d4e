"""Whatever a row is or comes to, it has one line in the outputs, and the job goes on and ends."""

import json
import queue
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.lineage import reasons
from spillway.lineage.errors import BrokerError, WireError
from spillway.lineage.headers import REQUEST_ID
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import DROPPED, FAILED, PREDICTION, Outcome, Query
from spillway.lineage.ports import Record
from spillway.lineage.values.codec import encode_query
from spillway.producers.offline import job, listening
from spillway.producers.offline.job import Job
from spillway.producers.offline.listening import Released
from tests.unit import odd_values
from tests.unit.lineage.strategies import values
from tests.unit.odd_values import HostileDict, HostileList

HOSTILE = (HostileDict, HostileList)


def nested(depth, of=1, mapping=False):
    for _ in range(depth):
        of = {"n": of} if mapping else [of]
    return of


texts = st.text(st.characters(), max_size=8) | st.sampled_from(["\ud800", "a\udfffb", "\udcff", "\n", "\u2028", "\x00"])
SOUND = [each for each in odd_values.ODD if not isinstance(each, HOSTILE)]  # an outcome comes from a decoder
ODD = [*SOUND, nested(5_000), nested(5_000, mapping=True)]
ODD += [{key: 1} for key in (1, None, "\ud800", ("a",))] + [np.array([value]) for value in (1j, "\ud800", None)]
odd = values | texts | st.integers(0, len(ODD) - 1).map(lambda n: ODD[n])
maps = st.dictionaries(texts, odd, max_size=3)
outcomes = st.builds(
    Outcome, st.sampled_from([PREDICTION, DROPPED, FAILED]), maps | odd, texts, texts, texts, flags=maps | odd
)
lines = st.one_of(
    st.sampled_from(
        [
            b"nonsense",
            b'{"x": 1}',
            b'{"\\ud800": 1}',
            b'{"x": "\\ud800"}',
            b'{"\\ud800": {"dtype": "float32", "data": "\\udfff"}}',
            b'{"\\ud800": {"base64": 7}}',
            b'{"x": {"dtype": "\\ud800", "data": []}}',
            b'{"x": ' + b"[" * 400 + b"]" * 400 + b"}",
            b'{"x": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
            b'{"x": ' + b"[" * 90_000 + b"]" * 90_000 + b"}",
            b'{"x": ' + b"9" * 5_000 + b"}",
            b'{"x": NaN}',
            b"\xff\xfe\x00",
            b"",
            b"[]",
        ]
    ),
    st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")),
)
raised = st.sampled_from(
    [
        WireError(reasons.BAD_INPUT, "input '\ud800' is none"),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"),
        RecursionError("deep"),
        TypeError("\udfff"),
        OverflowError("much"),
    ]
)


class Heard:
    """A pipeline's words, of which there are none, and the outcomes that came while nobody waited."""

    found = ()

    def __init__(self, *_):
        self._found = iter([*self.found])

    def take(self):
        return ()

    def to_the_end(self):
        return self._found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def run(folder, rows, answers, killed=None):
    """Run a job whose queries come to the answers, in turn; after `killed` queries its cluster is away, for once."""
    inputs, outputs = folder / "in.jsonl", folder / "out.jsonl"
    inputs.write_bytes(b"".join(row + b"\n" for row in rows))
    outputs.unlink(missing_ok=True)
    outputs.with_name("out.jsonl.job").unlink(missing_ok=True)
    asked = queue.SimpleQueue()

    def submit(inputs, parameters, **_options):
        number = asked.qsize()
        asked.put(inputs)
        if number == killed:
            raise BrokerError("the cluster is away")
        encode_query(Query(dict(inputs), dict(parameters)), DEFAULT_LIMITS)
        answer, future = answers[number % len(answers)], Future()
        if isinstance(answer, tuple):
            raise answer[0]
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def begin():
        return Job("p", {}, DEFAULT_LIMITS, submit, parameters={}).run(inputs, outputs)

    try:
        done = begin()
    except BrokerError:
        assert killed is not None
        done = begin()
    read = [json.loads(line) for line in outputs.read_text("utf-8").split("\n") if line]
    assert [each["row"] for each in read] == list(range(len(rows)))
    assert done.done
    return read


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "Words", Heard)
        patch.setattr(job, "Released", Heard)
        patch.setattr(job, "_POLL", 0.0)
        patch.setattr(job, "_AGAIN", 0.0)
        yield tmp_path_factory.mktemp("offline")


@settings(deadline=None)
@given(
    st.lists(lines, min_size=1, max_size=6),
    st.lists(outcomes.filter(lambda one: one.reason != "no-spare-time") | raised | st.tuples(raised), min_size=1),
    st.none() | st.integers(0, 3),
)
def test_every_row_has_a_line_and_the_job_ends(folder, rows, answers, killed):
    for row in run(folder, rows, answers, killed):
        assert ("error" in row) != ("outputs" in row)
        for text in row.get("error", {}).values():
            text.encode()


def test_half_of_a_surrogate_pair_is_the_rows_error_and_no_others(folder):
    fine = Outcome(PREDICTION, {"y": 1})
    rows = run(folder, [b'{"x": 1}'] * 3, [fine, Outcome(PREDICTION, {"y": "\ud800"}), fine])
    assert [row.get("outputs") for row in rows] == [{"y": 1}, None, {"y": 1}]
    assert rows[1]["error"]["reason"] == "bad-result"
    assert "surrogates not allowed" in rows[1]["error"]["text"]
    told = run(folder, [b'{"x": 1}'], [Outcome(FAILED, {}, "model-raised", "no \ud800")])[0]["error"]
    assert told == {"kind": "failed", "reason": "model-raised", "text": "no \\ud800"}


def test_an_outcome_on_the_egress_that_cannot_be_read_is_its_rows_error(monkeypatch):
    records = [Record("p.egress", 0, 0, 0, False, None, b"nonsense", ((REQUEST_ID, b"job-3-0"),))]
    monkeypatch.setattr(
        listening, "SchemaLog", lambda *_, **_options: SimpleNamespace(open=lambda: None, relearn=lambda: False)
    )
    monkeypatch.setattr(listening, "slots_of", lambda *_: ())
    monkeypatch.setattr(listening, "Reading", lambda *_, **_options: SimpleNamespace(to_the_end=lambda: records))
    ((request_id, outcome),) = Released(None, "p", DEFAULT_LIMITS, "job-", 0.0).to_the_end()
    assert (request_id, outcome.kind, outcome.reason) == ("job-3-0", FAILED, reasons.NOT_AVRO)
