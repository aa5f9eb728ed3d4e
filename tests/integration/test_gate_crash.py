"""The gate is replaced while it sleeps, shared, and ousted: still one outcome per query."""

import json
import random
import signal
import subprocess
import sys
from collections import Counter

from confluent_kafka import Consumer

from spillway.agents.live.gate.pulled_input import member_settings
from spillway.lineage.errors import FencedError
from spillway.topology import topics
from tests.waiting import until

from .gate_bench import PARTITIONS, ids


class Stream:
    """Reports of a stage that crashes now and then, and repeats what it had not committed."""

    def __init__(self, bench, seed):
        self.bench = bench
        self.rng = random.Random(seed)
        self.sent = 0
        self.sequences = [0] * PARTITIONS
        self.committed = [0] * PARTITIONS
        self.open = [[] for _ in range(PARTITIONS)]

    def go_on(self, count):
        for number in range(self.sent, self.sent + count):
            partition = self.rng.randrange(PARTITIONS)
            sequence = self.sequences[partition]
            self.sequences[partition] += 1
            self.open[partition].append((f"r{number}", sequence))
            self.bench.report(f"r{number}", partition, sequence, self.committed[partition])
            chance = self.rng.random()
            if chance < 0.02:
                for request_id, again in self.open[partition]:
                    self.bench.report(request_id, partition, again, self.committed[partition])
            elif chance < 0.07:
                self.committed[partition] = self.sequences[partition]
                self.open[partition].clear()
        self.sent += count
        self.bench.producer.flush()

    def assert_one_outcome_each(self):
        until(lambda: len(set(ids(self.bench.released()))) >= self.sent, 180)
        seen = Counter(ids(self.bench.released()))
        assert seen.keys() == {f"r{number}" for number in range(self.sent)}
        assert [request_id for request_id, times in seen.items() if times > 1] == []


def test_a_gate_that_was_replaced_while_it_slept_writes_nothing_more_and_says_why(make_gate):
    bench = make_gate()
    stream = Stream(bench, 5)
    sleeper = bench.gate()
    stream.go_on(100)
    bench.await_released(100)
    for _ in range(20):  # it falls asleep at work
        stream.go_on(20)
    sleeper.send_signal(signal.SIGSTOP)
    stream.go_on(200)
    successor = bench.gate()
    until(lambda: len(set(ids(bench.released()))) >= stream.sent, 180)
    sleeper.send_signal(signal.SIGCONT)
    stream.go_on(200)
    assert sleeper.wait(600) == FencedError.exit_code
    said = bench.said(sleeper)
    assert "was fenced: another gate has taken its place" in said, said[-3000:]
    stream.assert_one_outcome_each()
    bench.stop(successor)


def test_two_gates_share_the_partitions_and_hand_them_over(make_gate):
    bench = make_gate()
    stream = Stream(bench, 6)
    first = bench.gate(0)
    stream.go_on(100)
    bench.await_released(100)
    second = bench.gate(1, session=4_000)
    until(lambda: len(owners(bench)) == 2 and (stream.go_on(20) or True), 120)
    until(lambda: sum(map(len, owners(bench).values())) == PARTITIONS and min(map(len, owners(bench).values())), 120)
    stream.go_on(200)
    stream.assert_one_outcome_each()
    bench.stop(first)
    stream.go_on(200)
    until(lambda: [len(partitions) for partitions in owners(bench).values()] == [PARTITIONS], 120)
    stream.assert_one_outcome_each()
    second.kill()  # with nobody of its name to come back, its session has to end first
    second.wait()
    third = bench.gate(0)
    stream.go_on(100)
    stream.assert_one_outcome_each()
    bench.stop(third)


DIES_GIVING_UP = """
import json, os, sys
from confluent_kafka import Consumer
settings, topic = json.loads(sys.argv[1]), sys.argv[2]
consumer = Consumer(settings)
consumer.subscribe([topic], on_assign=lambda _consumer, places: print(len(places), flush=True),
                   on_revoke=lambda *_: os._exit(9))
while True:
    consumer.poll(0.1)
"""


def test_what_a_gate_gave_up_as_it_died_is_dealt_again(make_gate):
    """It restarts within its session, gets what it was to keep without a rebalance, and the rest was nobody's."""
    bench = make_gate()
    settings = json.dumps(member_settings(bench.settings, bench.name, 0))
    first = subprocess.Popen(
        [sys.executable, "-c", DIES_GIVING_UP, settings, topics.outcomes(bench.name)], stdout=subprocess.PIPE
    )
    assert int(first.stdout.readline()) == PARTITIONS
    bench.gate(1)
    assert first.wait(120) == 9
    bench.gate(0)
    stream = Stream(bench, 8)
    stream.go_on(100)
    stream.assert_one_outcome_each()


def test_a_gate_that_lost_its_place_to_no_successor_takes_it_again(make_gate):
    """What a broker does to a static member that it hears twice after an outage, done on purpose."""
    bench = make_gate()
    gate = bench.gate()
    stream = Stream(bench, 7)
    stream.go_on(100)
    bench.await_released(100)
    usurper = Consumer(member_settings(bench.settings, bench.name, 0))
    usurper.subscribe([topics.outcomes(bench.name)])
    until(lambda: usurper.poll(0.1) or usurper.assignment(), 120)
    stream.go_on(100)
    stream.assert_one_outcome_each()
    usurper.close()
    stream.go_on(100)
    stream.assert_one_outcome_each()
    bench.stop(gate)


def owners(bench):
    group = bench.admin.describe_consumer_groups([f"{bench.name}.gate"])[f"{bench.name}.gate"].result()
    return {
        member.group_instance_id: [place.partition for place in member.assignment.topic_partitions]
        for member in group.members
    }
