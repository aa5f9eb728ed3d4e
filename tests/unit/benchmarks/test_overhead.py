"""`python -m benchmarks overhead`: how a broker's log of requests is counted, and how its figures are shown."""

import json

from benchmarks.overhead.command import tables
from benchmarks.overhead.requests import count

WHO = {5000: "gate", 5001: "first"}
TOPICS = {"aA-_": "chain.second.versions"}


def line(api, port, request=None, listener="BROKER"):
    told = {
        "requestHeader": {"requestApiKeyName": api, "clientId": "x"},
        "request": request or {},
        "connection": f"127.0.0.1:9092-127.0.0.1:{port}-0-17",
        "listener": listener,
    }
    return f"2026-01-01 [thread-1] DEBUG kafka.request.logger - Completed request:{json.dumps(told)}\n"


def test_requests_are_told_apart_by_process_api_and_kind_of_topic():
    lines = [
        "another line\n",
        line("ADD_OFFSETS_TO_TXN", 5000),
        line("ADD_OFFSETS_TO_TXN", 5000),
        line("FETCH", 5000, {"topics": [{"topic": "chain.outcomes"}]}),
        line("FETCH", 5001, {"topics": [{"topicId": "aA-_"}, {"topicId": "unknown"}]}),
        line("FETCH", 5001, {"topics": [{"topic": "chain.second"}, {"topic": "chain.third"}]}),
        line("PRODUCE", 5001, {"topicData": [{"name": "chain.third"}]}),
        line("HEARTBEAT", 6000),
        line("BROKER_HEARTBEAT", 6001, listener="CONTROLLER"),
        line("FETCH", 5000)[:-40],  # it is being written
    ]
    assert count(lines, WHO, TOPICS, "chain") == {
        ("gate", "AddOffsetsToTxn"): 2,
        ("gate", "Fetch outcomes"): 1,
        ("first", "Fetch ?+versions"): 1,
        ("first", "Fetch stage"): 1,
        ("first", "Produce stage"): 1,
        ("others", "Heartbeat"): 1,
    }


def test_the_table_shows_medians_and_spread():
    cell = ("CPU", "kafka", "40/s")
    (table,) = tables([[(cell, 2.0), (("CPU", "new", "150/s"), 1.0)], [(cell, 3.0)], [(cell, 7.0)]])
    assert table.rows == [["kafka", "3.00 (2.00 to 7.00)", "-"], ["new", "-", "1.00"]]
    assert table.text().splitlines() == [
        "CPU",
        f"{'40/s':>26}  150/s",
        "kafka  3.00 (2.00 to 7.00)      -",
        f"new{'-':>23}   1.00",
    ]
