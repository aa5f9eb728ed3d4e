import json
import logging
import sys
import time

import pytest
from confluent_kafka import Producer

from spillway.agents import log
from spillway.agents.log import JsonFormatter, Repetitions, Services, TextFormatter
from spillway.lineage import headers

REFUSED = (
    "[thrd:b:1/bootstrap]: b:1/bootstrap: Connect to ipv4#b:1 failed: Connection refused (after 0ms in state CONNECT)"
)


class Hearing(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def heard():
    """A handler with the filter, and a way to have it hear a client at a time."""
    handler = Hearing()
    handler.addFilter(Repetitions(every=10.0))

    def say(at, text=REFUSED, client="rdkafka#producer-1", facility="FAIL"):
        record = logging.makeLogRecord({"msg": "%s [%s] %s", "args": (facility, client, text)})
        record.created = at
        handler.handle(record)

    handler.say = say
    return handler


def test_what_a_client_repeats_is_logged_once_in_a_while_and_counted(heard):
    for n in range(400):
        heard.say(1000.0 + n * 0.05, REFUSED.replace("0ms", f"{n}ms"))
    assert len(heard.lines) == 2
    assert heard.lines[0].startswith("FAIL [rdkafka#producer-1] [thrd:b:1/bootstrap]")
    assert heard.lines[1].endswith("; and 199 times before this")


@pytest.mark.parametrize("seconds", [0.1, 9.0, 15.0, 31.0])
def test_a_wait_for_a_coordinator_is_said_once_it_takes_long(heard, seconds):
    for n in range(int(seconds * 10)):
        heard.say(1000.0 + n / 10, "Failed to acquire idempotence PID: load in progress: retrying", facility="GETPID")
    assert len(heard.lines) == seconds // 10


def test_each_client_and_each_reason_is_heard(heard):
    heard.say(1000.0)
    heard.say(1000.1, client="rdkafka#consumer-2")
    heard.say(1000.2, REFUSED.replace("Connection refused", "No route to host"))
    assert len(heard.lines) == 3


def test_all_else_passes(heard):
    for _ in range(3):
        heard.say(1000.0, "another thing", facility="SESSTMOUT")
        heard.handle(logging.makeLogRecord({"msg": "a line of ours"}))
    assert len(heard.lines) == 6


def test_what_is_remembered_is_bounded(heard):
    for n in range(5000):
        heard.say(1000.0, client=f"rdkafka#producer-{n}")
    assert len(heard.lines) == 5000
    assert len(heard.filters[0]._seen) <= 1000


def test_a_client_says_it_in_the_form_that_is_looked_for(heard):
    logger = logging.getLogger("a-client")
    records = []
    logger.addFilter(lambda record: records.append(record) or False)
    client = Producer({"bootstrap.servers": "127.0.0.1:1"}, logger=logger)
    until = time.monotonic() + 60
    while not records and time.monotonic() < until:
        client.poll(0.1)
    for at in (1000.0, 1001.0):
        records[0].created = at
        heard.handle(records[0])
    assert len(heard.lines) == 1
    assert "Connection refused" in heard.lines[0]


def test_what_goes_to_a_file_is_filtered(tmp_path, monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    log.to_file(tmp_path / "log")
    for _ in range(100):
        logging.getLogger("client").error("%s [%s] %s", "FAIL", "rdkafka#producer-1", REFUSED)
    assert (tmp_path / "log").read_text().count("Connection refused") == 1


def test_what_fausts_services_say_of_their_start_is_for_debugging(monkeypatch):
    line = {"name": "faust.app", "levelno": logging.INFO, "msg": "[^--Conductor]: Starting..."}
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    services = Services()
    assert not services.filter(logging.makeLogRecord(line))
    assert services.filter(logging.makeLogRecord({**line, "levelno": logging.ERROR}))
    assert not services.filter(logging.makeLogRecord({**line, "msg": "Executing _on_partitions_assigned"}))
    assert services.filter(logging.makeLogRecord({**line, "msg": "takes part", "name": "spillway.agents.live"}))
    monkeypatch.setattr(logging.getLogger(), "level", logging.DEBUG)
    assert services.filter(logging.makeLogRecord(line))


def line_about_a_query():
    pairs = [("x-request-id", b"q1"), ("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01")]
    told = {"name": "spillway.x", "levelname": "ERROR", "msg": "it %s", "args": ("raised",), **headers.about(pairs)}
    return logging.makeLogRecord({**told, "created": 1_800_000_000.25})


def test_a_line_about_a_query_names_it():
    assert TextFormatter().format(line_about_a_query()).endswith("ERROR spillway.x: it raised [request q1]")
    assert json.loads(JsonFormatter("act", 1).format(line_about_a_query())) == {
        "time": "2027-01-15T08:00:00.250+00:00", "level": "ERROR", "logger": "spillway.x", "message": "it raised",
        "stage": "act", "replica": 1, "request_id": "q1", "trace_id": "1" * 32,
    }  # fmt: skip


def test_a_line_about_no_query_is_as_it_was_and_has_nulls_in_json():
    record = logging.makeLogRecord({"name": "x", "levelname": "INFO", "msg": "said", **headers.about([])})
    assert TextFormatter().format(record).endswith("INFO x: said")
    told = json.loads(JsonFormatter(None, None).format(record))
    assert [told[name] for name in ("stage", "replica", "request_id", "trace_id")] == [None] * 4


def test_a_traceback_is_part_of_the_message_in_json():
    try:
        raise ValueError("why")  # noqa: TRY301 - as it is to be raised
    except ValueError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()})
    lines = JsonFormatter(None, None).format(record).splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["message"].startswith("failed\nTraceback")
