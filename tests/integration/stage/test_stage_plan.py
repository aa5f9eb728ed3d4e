"""What stages tell one another on `<p>.plan`, on a real broker: words, restarts, silence, lies."""

import json
import signal
import time
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spillway.lineage import metric_names as names
from spillway.lineage.message import PlanWord
from spillway.lineage.schemas import MARKER
from spillway.lineage.values import codec

from .conftest import Stage

CHAIN = """
partitions: 4
stages:
  - {name: one, emulated: {alpha: 2ms, beta: 1ms}, batching: {size: 4}}
  - {name: two, emulated: {alpha: 5ms, beta: 1ms}, batching: {size: 8}, after: one}
"""
PERIOD = 0.1


def samples(pipeline, stage, replica=0):
    """A process's own samples: (name, labels without the pipeline's) -> value; nothing while it does not answer."""
    try:
        entry = json.loads((pipeline.folder / "run" / pipeline.name / f"{stage}.{replica}.json").read_text())
        with urllib.request.urlopen(f"http://127.0.0.1:{entry['port']}/metrics", timeout=2) as answer:
            text = answer.read().decode()
    except OSError:
        return []
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def word_of(pipeline, at, of):
    """What the process of `at` knows of the first replica of `of`, by what."""
    return {
        sample.labels[names.WHAT]: sample.value
        for sample in samples(pipeline, at)
        if sample.name == names.PLAN_WORD
        and (sample.labels[names.OF_STAGE], sample.labels[names.OF_REPLICA]) == (of, "0")
    }


def silent(pipeline, at, of):
    return [
        sample.value
        for sample in samples(pipeline, at)
        if sample.name == names.PLAN_SILENT and sample.labels[names.OF_STAGE] == of
    ]


def refused(pipeline, at):
    return {
        sample.labels[names.REASON]: sample.value
        for sample in samples(pipeline, at)
        if sample.name == names.PLAN_REFUSED_TOTAL
    }


@pytest.fixture(scope="module")
def chain(broker, tmp_path_factory):
    """Both stages, which all tests of this file find at work."""
    folder = tmp_path_factory.mktemp("chain")
    made = Stage(broker, folder.name, folder, CHAIN)
    for name in ("one", "two"):
        made.start(name, plan_period=PERIOD)
    yield made
    made.close()


def test_two_stages_tell_each_other_how_they_fare(chain, until):
    outcomes = chain.reader("outcomes")
    chain.send_many(100)
    outcomes.wait(100)
    until(lambda: word_of(chain, "one", "two").get("duration", 0) > 0)
    word = word_of(chain, "one", "two")
    assert (word["batch"], word["profile"]) == (8, pytest.approx(0.013))
    assert 0.005 < word["duration"] < 1
    until(lambda: word_of(chain, "two", "one").get("duration", 0) > 0)
    assert word_of(chain, "two", "one")["batch"] == 4
    figures = chain.metrics("one")
    assert figures[names.PLAN_WORDS_TOTAL] > 2
    assert figures["spillway_plan_age_seconds_count"] > 0
    assert figures["spillway_plan_delay_seconds_count"] > 0
    assert figures["spillway_consumed_seconds_count"] == 100
    assert figures[names.HAPPENED_SECONDS_TOTAL] > 0
    kept = [s for s in samples(chain, "one") if s.name == "spillway_budget_seconds_bucket" and s.labels["le"] == "+Inf"]
    assert {s.labels[names.FATE]: s.value for s in kept} == {"kept": 100, "refused": 0}


def test_lies_are_refused_and_counted_and_change_nothing(chain, until):
    until(lambda: silent(chain, "one", "two") == [0])
    truth = PlanWord("two", 0, time.time_ns() // 1000, time.time_ns() // 1000)
    lies = {
        "negative": replace(truth, queueing=-1.0),
        "not-a-number": replace(truth, duration=float("nan")),
        "too-much": replace(truth, duration=1e4),
        "future": replace(truth, at_us=truth.at_us + 3_600_000_000),
        "unknown-stage": replace(truth, stage="three"),
        "outdated": replace(truth, began_us=1, at_us=1),
        "unreadable": None,
    }
    words = [codec.encode_word(lie) if lie is not None else MARKER + b"garbage" for lie in lies.values()]
    for value in [*words, b"", b"\xff" * 60_000, b"no avro at all"]:
        chain.producer.produce(f"{chain.name}.plan", value, b"two.0", 0)
    chain.producer.produce(f"{chain.name}.plan", None, b"\xff.nonsense.-1", 0)
    chain.flush()
    until(lambda: refused(chain, "one").keys() >= lies.keys())
    assert refused(chain, "one") == {**dict.fromkeys(lies, 1.0), "unreadable": 4.0}
    assert silent(chain, "one", "two") == [0]
    assert word_of(chain, "one", "two")["queueing"] >= 0
    assert all(process.poll() is None for process in chain.processes)


def test_a_stopped_process_falls_silent_and_a_killed_one_is_replaced_by_the_one_that_follows(chain, until):
    _, two = chain.processes
    until(lambda: silent(chain, "one", "two") == [0])
    two.send_signal(signal.SIGSTOP)
    until(lambda: silent(chain, "one", "two") == [1])
    assert word_of(chain, "one", "two")["age"] > 3 * PERIOD
    two.send_signal(signal.SIGCONT)
    until(lambda: silent(chain, "one", "two") == [0])
    chain.stop(two, signal.SIGKILL)
    until(lambda: silent(chain, "one", "two") == [1])
    again = chain.start("two", plan_period=PERIOD)
    until(lambda: silent(chain, "one", "two") == [0])
    chain.stop(again)  # in good order, so it is forgotten
    until(lambda: silent(chain, "one", "two") == [])
