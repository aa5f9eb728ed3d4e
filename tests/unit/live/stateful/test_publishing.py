"""What reigns publish, whatever dies between: only what was durable, and in the end what is."""

import asyncio
import copy
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.agents.live.stateful import publishing
from spillway.agents.live.stateful.publishing import Publishing, Where
from spillway.agents.live.stateful.threads import Thread
from spillway.agents.metrics import StateMetrics
from spillway.agents.models.execution import Runner
from spillway.agents.models.stateful import SHARED, Machine
from spillway.lineage.keys import partition_for
from spillway.lineage.limits import Limits
from spillway.lineage.values.codec import Decoder
from spillway.producers import published
from spillway.producers.published import Published, decode_row, key_of_shared
from tests.unit.core.test_odd_answers import ERRORS
from tests.unit.models.stateful_models import Pooled

PARTITIONS = 3
LIMITS = Limits(max_message_bytes=4096)
SPOILT = 7.0
"""Of such a value nothing can be published."""


class Shy(Pooled):
    """Its `publish` does, of a spoilt value, what the test says."""

    does = Pooled
    """Of this class: no value is spoilt."""

    def publish(self, state):
        if state["value"] != SPOILT or self.does is Pooled:
            return super().publish(state)
        if isinstance(self.does, BaseException):
            raise self.does
        return object() if self.does is None else self.does


class Log:
    """A compacted topic: the last value of each key, and who follows it."""

    def __init__(self):
        self.rows, self.followers, self.check = {}, [], lambda _key, _value: None

    def append(self, partition, key, value):
        assert partition == (0 if key == key_of_shared(0) else partition_for(key, PARTITIONS))
        self.check(key, value)
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value
        for follower in self.followers:
            follower(key, value)

    def table(self, _settings, _topic, heard, _partitions=None):
        def start():
            for key, value in self.rows.items():
                heard(key, value)
            self.followers.append(heard)

        return SimpleNamespace(
            stale=False,
            start=start,
            close=lambda: self.followers.remove(heard),
            rows=lambda: dict(self.rows),
            get=self.rows.get,
        )


async def at_once(run):
    return run()


class Reign:
    """A primary as publishing knows it: its versions are copied, and become durable, one after the other."""

    def __init__(self, log, epoch, base, state):
        self.machine = Machine("test", Shy(), copy.deepcopy(state))
        self.recorded = self.durable_n = base
        self.emits, self.copied = True, None
        self.since = []  # the states after each update, until they are durable
        means = SimpleNamespace(
            may_emit=lambda: self.emits,
            output=SimpleNamespace(send=lambda record, _token: log.append(*record[1:4]), room=True),
            models=SimpleNamespace(call=at_once),
            crashed=lambda error: pytest.fail(repr(error)),
            metrics=SimpleNamespace(state=StateMetrics()),
            kafka=None,
        )
        self.figures = means.metrics.state
        where = Where("t", PARTITIONS, 0, 1, LIMITS)
        self.publishing = Publishing(where, epoch, base, lambda: self.recorded, self.machine, means)
        self.publishing.begin()

    def observe(self, key, value):
        self.machine.compute([{"user": key, "x": float(value)}])
        self.recorded += 1
        self.publishing.touched(self.machine.update())
        self.since.append((self.recorded, copy.deepcopy(self.machine.state)))

    def copy(self):
        if self.copied is None or self.copied[0] <= self.durable_n < self.recorded:
            n = self.recorded
            self.publishing.taken(self.publishing.rows(self.publishing.due(), n), n)
            self.copied = n, copy.deepcopy(self.machine.state)


class World:
    """The reigns one after the other, and what was durable."""

    def __init__(self):
        self.log = Log()
        self.log.check = self.check
        self.been = {}
        self.durable = 0, {}
        self.note({})

    def begin(self):
        self.epoch, self.before, self.reign = 1, None, Reign(self.log, 1, *self.durable)

    def note(self, state):
        for key, value in rows_of(state).items():
            self.been.setdefault(key, []).append(value)

    def check(self, key, value):
        assert value is None or decode_row(value, Decoder()).value in self.been[key], "it was never durable"

    def do(self, event, *arguments):
        getattr(self, event)(*arguments)

    def observe(self, key, value):
        self.reign.observe(key, value)

    def copies(self):
        self.reign.copy()

    def is_durable(self):
        if self.reign.copied is not None and self.reign.copied[0] > self.reign.durable_n:
            self.durable = self.reign.copied
            for n, state in self.reign.since:
                if n <= self.durable[0]:
                    self.note(state)
            self.reign.durable_n = self.durable[0]
            self.reign.publishing.durable(self.durable[0])

    def falls(self):
        self.reign.emits = False  # its lease is over
        self.epoch, self.before = self.epoch + 1, self.reign
        self.reign = Reign(self.log, self.epoch, *self.durable)

    def rewinds(self):
        self.durable = self.durable[0], {}
        self.falls()

    def holds(self):
        self.reign.emits = False

    def goes_on(self):
        self.reign.emits = True
        self.reign.publishing.publish()

    def zombie_writes(self):
        if self.before is not None:
            self.before.emits = True  # what it had sent before arrives now
            self.before.publishing.publish()
            self.before.emits = False


def rows_of(state):
    """What is published of a state, if all of it can be."""
    machine = Machine("test", Pooled(), copy.deepcopy(state))
    rows = machine.published([*machine.state])
    return {key_of_shared(0) if key == SHARED else key.encode(): value for key, value in rows}


OBSERVE = st.tuples(st.just("observe"), st.sampled_from("abc"), st.integers(0, 9))
VERSION = [("copies",), ("is_durable",)]
EVENTS = st.one_of(
    OBSERVE.map(lambda event: [event]),
    OBSERVE.map(lambda event: [event, *VERSION]),
    OBSERVE.map(lambda event: [("",), ("holds",), event, *VERSION, ("falls",)]),
    st.tuples(OBSERVE, st.integers(0, 9)).map(  # a row of a fallen reign comes after its successor's
        lambda told: [
            *[("",), ("holds",), told[0], *VERSION, ("falls",), ("",)],
            *[("observe", told[0][1], told[1]), *VERSION, ("zombie_writes",)],
        ]
    ),
    st.sampled_from(["copies", "is_durable", "falls", "holds", "goes_on", "zombie_writes", "rewinds", ""]).map(
        lambda name: [(name,)]
    ),
)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(EVENTS, max_size=30))
def test_only_what_was_durable_is_published_and_in_the_end_what_is(events):
    asyncio.run(_play([event for some in events for event in some]))


UNPUBLISHABLE = [*ERRORS, None, {1: 2}, b"x" * LIMITS.max_message_bytes, np.array([object()]), {"x"}, 1j]


@given(
    st.integers(0, len(UNPUBLISHABLE) - 1).map(lambda n: UNPUBLISHABLE[n]),
    st.lists(EVENTS, max_size=30).map(lambda events: [[("observe", "a", SPOILT), *VERSION], *events]),
)
def test_what_cannot_be_published_keeps_its_row_and_everything_else_goes_on(does, events):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shy, "does", does)
        asyncio.run(_play([event for some in events for event in some]))


async def _play(events):
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "Table", world.log.table)
        patch.setattr(published, "Table", world.log.table)
        world.begin()
        with Published(None, "t", partitions=PARTITIONS, shards=1) as reader:
            for event in events:
                if event[0]:
                    world.do(*event)
                else:
                    await asyncio.sleep(0)
            for _ in range(20):
                await asyncio.sleep(0)
            world.goes_on()
            for event in ("is_durable", "copies", "is_durable"):  # as all that is recorded is, sooner or later
                world.do(event)
            wanted = rows_of(world.durable[1])
            spoilt = {key for key, value in wanted.items() if value == SPOILT} if Shy.does is not Pooled else set()
            assert spoilt == world.reign.publishing._unpublished
            assert world.reign.figures.unpublished() == len(spoilt)
            rows = {key: decode_row(value, Decoder()).value for key, value in world.log.rows.items()}
            assert rows.keys() - spoilt == wanted.keys() - spoilt
            assert all(value == wanted[key] for key, value in rows.items() if key not in spoilt)
            for key in "abcd":
                if not spoilt & {key.encode(), key_of_shared(0)}:
                    assert reader.find(key).value == wanted.get(key.encode(), wanted[key_of_shared(0)])


async def test_a_reign_that_ends_while_its_rows_are_compared_raises_nothing(monkeypatch):
    loop, log, raised = asyncio.get_running_loop(), Log(), []
    monkeypatch.setattr(publishing, "Table", log.table)
    loop.set_exception_handler(lambda _loop, context: raised.append(context))
    log.rows[b"ada"] = b"of another"
    reign, comparing, ended = Reign(log, 1, 0, {}), threading.Event(), threading.Event()
    models = reign.publishing._means.models = Thread(Runner("model"), loop, raised.append)
    reign.publishing.rows = lambda *_: comparing.set() or ended.wait(60) or {}
    await asyncio.to_thread(comparing.wait, 60)
    reign.publishing.close()
    await asyncio.sleep(0)
    ended.set()
    await models.call(bool)
    assert raised == []
