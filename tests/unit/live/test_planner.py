"""What a planner says, hears and gives to its policy; the driver's clock stands still here."""

from dataclasses import replace

import pytest

from spillway.agents.core.batching import Batcher
from spillway.agents.core.board import UNREADABLE
from spillway.agents.core.policies.fifo import Fifo
from spillway.agents.core.policy import StageFacts, StageState, StageView
from spillway.agents.core.stage import StageCore
from spillway.agents.metrics import StageMetrics
from spillway.agents.run.planner import Planner, without_words
from spillway.lineage.message import PlanWord
from spillway.lineage.ports import Record
from spillway.lineage.values.codec import Decoder, encode_word
from spillway.topology.spec import PipelineSpec
from tests.unit.core.shapes import SHAPES

SPEC = PipelineSpec.model_validate(
    {
        "name": "p",
        "slo": 1.0,
        "partitions": 4,
        "stages": [
            {"name": "a", "emulated": {"alpha": 0.01}},
            {"name": "b", "emulated": {"alpha": 0.01}, "after": "a"},
        ],
    }
)


class Telling(Fifo):
    def __init__(self, view, state):
        super().__init__(view)
        self.state = state

    def report(self, now, load):
        return self.state and replace(self.state, at=now)


class Out:
    def __init__(self):
        self.room = True
        self.sent = []

    def send(self, record, token, *, vital):
        assert not vital
        self.sent.append((record.topic, record.key, record.value))


class Time:
    at = 1_800_000_000.0

    def now(self):
        return self.at

    monotonic = now


def planner(policy=None):
    view = StageView("a", facts={"a": StageFacts(4, lambda _n: 0.02, 1)}, period=1.0)
    core = StageCore(SHAPES["chain"].graph(), "a", Batcher(Fifo(view) if policy is None else policy, 4))
    return Planner(
        *(SPEC, view, core),
        clock=Time(),
        decoder=Decoder(),
        metrics=StageMetrics("p", "a", 0),
        reload_schemas=lambda: None,
    )


def telling(**said):
    view = StageView("a")
    return planner(Telling(view, StageState("a", 0, 0.0, **said)))


def ticks(made):
    got = []
    made.merge(lambda now, states: got.append(states))
    return got[0]


def test_what_a_policy_tells_is_said_and_merged_as_it_was_said():
    made, out = telling(queueing=0.5, waits=tuple(range(100)), duration=0.25), Out()
    made.say(out)
    ((topic, key, value),) = out.sent
    assert (topic, key) == ("p.plan", b"a.0")
    assert Decoder().word(value).queueing == 0.5
    (own,) = ticks(made)["a"]
    assert (own.queueing, len(own.waits)) == (0.5, 20)
    assert made._metrics.calibration.told_total["visit"] == 0.0  # nothing has happened yet
    assert made._metrics.calibration._told == (0.5, 49.5, 0.25)


def test_a_state_that_is_refused_is_logged_once(caplog):
    made, out = telling(queueing=-1.0), Out()
    for _ in range(3):
        made.say(out)
    assert [record.message.partition(": PlanWord")[0] for record in caplog.records] == [
        "the policy of a reports a state that was refused: negative"
    ]
    assert out.sent == []


def test_of_a_policy_that_tells_nothing_what_was_observed_is_said():
    made, out = planner(), Out()
    made.observed.delays.extend([0.1, 0.3])
    made.say(out)
    assert Decoder().word(out.sent[0][2]).queueing == pytest.approx(0.2)


def test_a_word_is_not_said_while_the_one_before_is_under_way():
    made, out = telling(), Out()
    made.say(out)
    made._clock.at += 1
    made.say(out)
    assert len(out.sent) == 1
    assert made._metrics.plan_unsaid == 1
    stored = []
    without_words(["x", made, "y"], stored.extend)
    assert stored == ["x", "y"]
    rest = []
    without_words([made], rest.append)
    assert rest == [[]]  # the word has left room, of which the driver has to hear
    made._clock.at += 1
    made.say(out)
    assert len(out.sent) == 2


def test_nothing_is_said_where_the_output_has_no_room_but_the_policy_is_ticked():
    made, out = telling(), Out()
    out.room = False
    made.say(out)
    assert out.sent == []
    assert list(ticks(made)) == ["a"]


@pytest.mark.parametrize(
    ("told", "why"), [({"queueing": float("nan")}, "not-a-number"), ({"waits": ("soon",)}, "cannot be encoded")]
)
def test_a_policy_that_tells_nonsense_is_not_passed_on_and_stops_nothing(caplog, told, why):
    made, out = telling(**told), Out()
    made.say(out)
    assert out.sent == []
    assert ticks(made) == {}
    assert why in caplog.text


def words(*said):
    return [Record("p.plan", 0, 0, 0, log_append=False, key=key, value=value, headers=()) for key, value in said]


def test_its_own_state_is_merged_as_the_others_read_it():
    made, out = telling(queueing=0.0123456789), Out()
    made.say(out)
    read = Decoder().word(out.sent[0][2]).queueing
    assert ticks(made)["a"][0].queueing == read != 0.0123456789


def test_others_are_heard_forgotten_and_refused():
    made = planner()
    now = round(Time.at * 1e6)
    word = PlanWord("b", 1, now - 5, now, queueing=0.25)
    made.hear(words((b"b.1", encode_word(word)), (b"b.2", encode_word(replace(word, replica=2))), (None, b"\xff")))
    assert [state.replica for state in ticks(made)["b"]] == [1, 2]
    made.hear(words((b"b.1", None), (None, None), (b"b.\xff", None)))
    assert [state.replica for state in ticks(made)["b"]] == [2]
    assert made.board.refused == {UNREADABLE: 1}
    assert made._metrics.plan_age.counts[0] == 3


def test_its_own_echo_says_how_long_words_take_and_changes_nothing():
    made, out = telling(), Out()
    made.say(out)
    made._clock.at += 0.003
    made.hear(words((b"a.0", out.sent[0][2]), (b"a.0", encode_word(PlanWord("a", 0, 1, 1, queueing=9.0)))))
    assert made._metrics.plan_delay.total == pytest.approx(0.003, abs=1e-5)
    assert ticks(made)["a"][0].queueing == 0.0
    assert made.board.refused == {}
    made.hear(words((b"a.0", None)))  # what the process before it left
    assert "a" in ticks(made)
