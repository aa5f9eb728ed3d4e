"""Many truths in one call: messages by partition and size, and to each its own answer."""

import json
import threading

import pytest

from spillway.lineage.errors import BrokerError, SpillwayError, UsageError
from spillway.lineage.headers import MOST_TRUTHS, TRUTHS
from spillway.lineage.keys import partition_for
from spillway.lineage.limits import Limits
from spillway.lineage.message import FAILED, PREDICTION, Outcome
from spillway.lineage.values.codec import Decoder, encode_outcome
from spillway.producers.client import feedback as module
from spillway.producers.client.exchange import ClientClosedError, OutcomeTimeoutError, TooManyInFlightError
from spillway.producers.client.feedback import Learners, Truth
from spillway.producers.client.queries import QueryMaker
from spillway.producers.connection import ClientSettings
from tests.waiting import until

PARTITIONS = 3


def results(*outcomes):
    return Outcome(PREDICTION, {"results": [b"" if one is None else encode_outcome(one) for one in outcomes]})


class Exchange:
    """What is sent, each as its ids, truths and waiter."""

    partitions = PARTITIONS

    decode = staticmethod(Decoder().outcome)

    def __init__(self, broken=None):
        self.sent, self.broken = [], broken

    def send(self, query, waiter):
        if self.broken is not None:
            raise self.broken
        ids = dict(query.headers)[TRUTHS].decode().split(" ")
        truths = Decoder().query(query.value).inputs["truths"]
        own = partition_for(query.key, PARTITIONS)
        assert {partition_for(each["key"].encode(), PARTITIONS) for each in truths} == {own}
        self.sent.append((ids, truths, waiter))
        return waiter


@pytest.fixture
def learners(monkeypatch):
    return lambda **more: made(monkeypatch, **more)


def made(monkeypatch, limits=None, broken=None):
    exchange = Exchange(broken)
    queries = QueryMaker("p-taste", slo=0.2, grace=0.1)
    queries.limits = limits or queries.limits
    learners = Learners("p", ClientSettings(bootstrap="x:1"), grace=1.0, timeout=1.0, replies="all")
    monkeypatch.setattr(learners, "_way", lambda _learner: (queries, exchange))
    return learners, exchange


def outcome(key="ada", request="r1"):
    said = {"rank": {"keys": {"taste": key}, "request": request, "odd": [1, None, "ä"]}}
    return Outcome(PREDICTION, {"label": 7}, flags=said)


def test_truths_of_a_partition_go_together_and_each_is_told_its_own_result(learners):
    sender, exchange = learners()
    keys = [f"k{n}" for n in range(30)]
    sent = sender.send_many("taste", [(outcome(), 1.5), *[(key, n) for n, key in enumerate(keys)]])
    assert len(exchange.sent) == PARTITIONS
    assert sum(len(ids) for ids, *_ in exchange.sent) == 31
    assert sent[0].id == "r1/taste"
    assert len({each.id for each in sent}) == 31
    first = next(each for _, truths, _ in exchange.sent for each in truths if each["key"] == "ada")
    assert json.loads(first["flags"]) == outcome().flags
    assert first["inputs"] == {"outputs": {"label": 7}, "truth": 1.5}
    with pytest.raises(TimeoutError):
        sent[0].outcome(0.0)
    for ids, _, waiter in exchange.sent:
        waiter.answered(results(*(Outcome(PREDICTION, {"id": each}) for each in ids)), 1.0)
    assert [each.outcome(0.0).outputs["id"] for each in sent] == [each.id for each in sent]


def test_a_message_has_so_many_truths_at_most_and_what_is_too_large_is_divided(learners):
    sender, exchange = learners()
    sender.send_many("taste", (("ada", n) for n in range(2 * MOST_TRUTHS + 1)))
    assert [len(ids) for ids, *_ in exchange.sent] == [MOST_TRUTHS, MOST_TRUTHS, 1]
    sender, exchange = learners(limits=Limits(max_values=40))
    sent = sender.send_many("taste", [("ada", n) for n in range(20)] + [("ada", list(range(50)))])
    assert [each["inputs"]["truth"] for _, truths, _ in exchange.sent for each in truths] == list(range(20))
    with pytest.raises(UsageError, match=r"^truths\[20\]: .*max_values"):
        sent[20].token(0.0)


def test_a_bad_truth_fails_alone_and_names_its_place(learners):
    sender, exchange = learners()
    unknown = Outcome(PREDICTION, {}, flags={})
    bad = [("ada", object()), (unknown, 1), Truth("ada", 1, None, "two words"), ("\ud800", 1), ("ada",)]
    sent = sender.send_many("taste", [("ada", 1), *bad, ("ada", 2)])
    ((ids, _, waiter),) = [each for each in exchange.sent if each[0]][-1:]
    for place, each in enumerate(sent[1:-1], 1):
        with pytest.raises(UsageError, match=rf"^truths\[{place}\]: "):
            each.accepted(0.0)
    assert sorted(one for ids, *_ in exchange.sent for one in ids) == sorted([sent[0].id, sent[-1].id])
    waiter.answered(results(*[Outcome(FAILED, reason="model-raised", text="no", stage="taste")] * len(ids)), 1.0)
    late = sent[-1].outcome(0.0)
    assert (late.kind, late.reason, late.text, late.stage) == (FAILED, "model-raised", "truths[6]: no", "taste")
    with pytest.raises(SpillwayError, match=r"taste did not accept .*: failed, model-raised truths\[6\]: no"):
        sent[-1].token(0.0)


def test_a_repetition_is_told_at_once_and_a_failed_message_to_all(learners):
    sender, exchange = learners()
    sent = sender.send_many("taste", [("ada", 1, None, "x"), ("ada", 2)])
    ((_, _, waiter),) = exchange.sent
    waiter.stored()
    waiter.answered(results(None, Outcome(PREDICTION)), 1.0)
    sent[0].accepted(0.0)  # the broker has it, all the same
    with pytest.raises(OutcomeTimeoutError, match="x was sent before: it counts once"):
        sent[0].token(0.0)
    assert sent[1].outcome(0.0).outputs == {}
    sent = sender.send_many("taste", [("ada", 1), ("ada", 2)])
    exchange.sent[-1][2].answered(Outcome(FAILED, reason="no-worker", text="gone"), 1.0)
    assert {each.outcome(0.0).reason for each in sent} == {"no-worker"}


def test_room_is_given_back_however_a_message_ends(learners, monkeypatch):
    monkeypatch.setattr(module, "_MESSAGES", 1)
    sender, exchange = learners()
    sender.send_many("taste", [("ada", 1)])
    (full,) = sender.send_many("taste", [("ada", 2)])
    with pytest.raises(TooManyInFlightError):
        full.accepted(0.0)
    exchange.sent[0][2].failed(OutcomeTimeoutError("late"))
    sender.send_many("taste", [("ada", 3)])
    assert len(exchange.sent) == 2
    waiting = threading.Thread(target=sender.send_many, args=("taste", [("ada", 4)]))
    waiting.start()
    exchange.sent[1][2].answered(results(Outcome(PREDICTION)), 1.0)
    waiting.join(30.0)
    assert len(exchange.sent) == 3
    sender, _ = learners(broken=BrokerError("away"))
    for _ in range(2):
        (lost,) = sender.send_many("taste", [("ada", 1)])
        with pytest.raises(BrokerError, match="away"):
            lost.accepted(0.0)


def test_a_learner_that_is_being_reached_holds_up_no_other(monkeypatch):
    there, made = threading.Event(), []

    class Slow:
        def __init__(self, _settings, pipeline, **_options):
            self.closed = False
            made.append(self)
            assert pipeline.endswith("quick") or there.wait(60)

        def close(self):
            self.closed = True

    def reach():
        with pytest.raises(ClientClosedError):
            learners._way("slow")

    monkeypatch.setattr(module, "Exchange", Slow)
    learners = Learners("p", ClientSettings(bootstrap="x:1"), grace=1.0, timeout=1.0, replies="all")
    slow = threading.Thread(target=reach)
    slow.start()
    until(lambda: made, 60)
    assert learners._way("quick") is learners._way("quick")
    learners.close()
    there.set()
    slow.join(60)
    assert [each.closed for each in made] == [True, True]
