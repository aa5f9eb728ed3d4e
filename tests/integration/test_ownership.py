"""Who runs a pipeline's processes, claimed on a real broker: one owner, who is named, asked to leave, or followed."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from spillway.agents.live.topics import ensure
from spillway.agents.supervise import ownership
from spillway.agents.supervise.ownership import OwnedError, Ownership, TakenOverError
from spillway.agents.supervise.registry import ServeEntry
from spillway.agents.supervise.serving import NotServedError, require_served
from spillway.checkpoint import owners
from spillway.checkpoint.owners import Owner
from spillway.producers.connection import ClientSettings
from spillway.topology import topics
from spillway.topology.load import Pipeline
from spillway.topology.topics import TopicRequirement
from tests.waiting import until

ALL = ("gate.0", "a.0", "a.1")


class Bench:
    def __init__(self, broker, name):
        self.settings, self.name = ClientSettings(bootstrap=broker), name
        ensure(self.settings, (TopicRequirement(topics.owners(name), 1, {"cleanup.policy": "compact"}, "owners"),))
        self.said, self.ended = [], threading.Event()

    def ownership(self, names=ALL, **how):
        return Ownership(self.settings, self.name, names, say=self.said.append, **how)

    @contextmanager
    def owned(self, names=ALL, **how):
        made = self.ownership(names, **how)
        try:
            assert made.claim()
            made.keep(self.ended.set)
            yield made
        finally:
            made.leave()


@contextmanager
def claiming(one):
    """Claim in a thread, which has done so when the context ends."""
    thread = threading.Thread(target=one.claim)
    thread.start()
    yield thread
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture
def bench(broker, unique_name):
    return Bench(broker, unique_name)


def refused(bench, names=ALL):
    second = bench.ownership(names)
    try:
        with pytest.raises(OwnedError) as caught:
            second.claim()
    finally:
        second.leave()
    return str(caught.value)


def test_a_second_one_is_refused_and_told_who_serves_since_when(bench):
    with bench.owned() as first:
        for names in (ALL, ("a.1",), ("b.7", "gate.0")):
            text = refused(bench, names)
            assert f"is already served by {first._me.name} since 20" in text
            assert "\n" not in text
            assert "--take-over" in text
        assert not bench.ended.is_set()
        assert bench.said == []
        with bench.owned(["b.0"]):  # nobody's
            pass
    with bench.owned():  # the first has left
        first.require()


def test_who_serves_is_known_before_anything_is_asked(bench, broker, tmp_path):
    stages = [{"name": "a", "model": "m:M"}, {"name": "b", "model": "m:M", "after": "a"}]
    pipeline = Pipeline.parse(json.dumps({"name": bench.name, "slo": "1s", "stages": stages}))
    with bench.owned():
        assert require_served(bench.settings, pipeline) == (
            f"no process serves stage b of {bench.name} now: queries wait there"
        )
        with bench.owned(["b.0"]):
            assert require_served(bench.settings, pipeline) == ""
    never = Pipeline.parse(json.dumps({"name": f"{bench.name}-never", "slo": "1s", "stages": stages}))
    for each in (pipeline, never):
        with pytest.raises(NotServedError, match=f"no process serves {each.spec.name} on {broker}: start it"):
            require_served(bench.settings, each, tmp_path)
        for pid, told in ((os.getpid(), "is being started by process"), (2**22 - 1, "no process serves")):
            ServeEntry(each.spec.name, "p.yaml", broker, None, pid, time.time()).write(tmp_path)
            with pytest.raises(NotServedError, match=told):
                require_served(bench.settings, each, tmp_path)


def test_the_one_that_takes_over_waits_until_the_other_has_left(bench):
    first = bench.ownership()
    assert first.claim()
    first.keep(bench.ended.set)
    second = bench.ownership(take_over=True)
    with claiming(second) as thread:
        until(bench.ended.is_set, 60)
        assert thread.is_alive(), "it waits for the first to stop its processes"
        assert any("asking it to stop, and waiting" in text for text in bench.said)
        first.leave()
    with pytest.raises(TakenOverError, match="was taken over by"):
        first.require()
    second.keep(bool)
    assert second._me.name in refused(bench)
    second.leave()


def test_who_stops_anyway_is_waited_for(bench, monkeypatch):
    first = bench.ownership()
    assert first.claim()
    stopping = threading.Event()
    reading = first._read

    def read():  # it begins to stop while it waits for the question
        words = reading()
        if any(isinstance(word, owners.Ask) for word in words):
            stopping.set()
        return words

    monkeypatch.setattr(first, "_read", read)
    first.keep(bench.ended.set, stopping.is_set)
    second = bench.ownership()
    with claiming(second) as thread:
        thread.join(1.0)
        assert thread.is_alive()
        first.leave()
    assert not bench.ended.is_set()
    second.leave()


def test_who_was_killed_on_this_machine_is_followed_at_once(bench):
    script = """
import sys
from spillway.agents.supervise.ownership import Ownership
from spillway.producers.connection import ClientSettings
owned = Ownership(ClientSettings(bootstrap=sys.argv[1]), sys.argv[2], ["gate.0", "a.0"])
owned.claim()
owned.keep(bool)
print("owned", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", script, bench.settings.bootstrap, bench.name]
    killed = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert killed.stdout.readline() == b"owned\n"
        assert f":{killed.pid}@" in refused(bench)
    finally:
        killed.kill()
        killed.wait()
        killed.stdin.close()
        killed.stdout.close()
    with bench.owned() as next_one:
        asked = [word for word in words(bench) if isinstance(word, owners.Ask) and word.asker == next_one._me]
        assert asked == [], "nobody needs to be asked"


def test_who_is_silent_elsewhere_is_followed_after_its_lease(bench, monkeypatch):
    monkeypatch.setattr(owners, "ASK_SECONDS", 0.05)
    monkeypatch.setattr(ownership, "_PATIENT", 0.2)
    first = bench.ownership()
    first._me = Owner("elsewhere", os.getpid(), time.time(), "another machine")
    assert first.claim()  # and keeps nothing
    with bench.owned() as second:
        lost = []
        first.keep(lambda: lost.append(True))
        until(lambda: lost, 60)
        with pytest.raises(TakenOverError, match=second._me.name):
            first.require()
        assert any("checking whether it is still running" in text for text in bench.said)
        first.leave()
        assert second._me.name in refused(bench), "whose epoch is another"


def test_it_is_confirmed_that_nobody_has_taken_over(bench):
    with bench.owned() as first:
        confirmed = threading.Event()
        first.confirm(confirmed.set)
        until(confirmed.is_set, 60)
        first._sending.send(*first._slot, b"junk", b"no word")  # is passed over
        again = threading.Event()
        first.confirm(again.set)
        until(again.is_set, 60)


def test_two_at_once_are_one_owner_and_one_refused(bench):
    made = [bench.ownership() for _ in range(2)]
    found = []

    def claim(one):
        try:
            found.append(one.claim())
            one.keep(bool)
        except OwnedError:
            found.append(None)

    threads = [threading.Thread(target=claim, args=(one,)) for one in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found, key=str) == [None, True]
    for one in made:
        one.leave()


def words(bench):
    reader, found, read = bench.ownership(), [], []
    reader._following.when_read(read.append)
    until(lambda: found.extend(reader._read()) or read, 60)
    reader.leave()
    return found
