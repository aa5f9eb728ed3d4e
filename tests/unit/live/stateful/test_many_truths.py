"""A message of many truths: each is a query of its own to the model, counts once, and fails alone."""

import json
from types import SimpleNamespace

import pytest

from spillway.agents.core.actions import Ok
from spillway.agents.core.request import Delivery, Request, Taken
from spillway.agents.core.share import Share
from spillway.agents.models.stateful import Machine
from spillway.agents.run.emission import Carried
from spillway.agents.run.intake import Intake, PoisonError, Signature
from spillway.agents.run.truths import divide
from spillway.lineage import reasons
from spillway.lineage.headers import MOST_TRUTHS, REQUEST_ID, TRUTHS
from spillway.lineage.limits import Limits
from spillway.lineage.message import PREDICTION, Query
from spillway.lineage.ports import Record
from spillway.lineage.values.codec import Decoder, encode_query
from tests.unit.live.stateful.builders import stateful_work


class Sums:
    """A keyed model that refuses texts, and whose update raises for what is negative."""

    def __init__(self):
        self.batches = []

    def initialize(self):
        return {"seen": ()}

    def key(self, query):
        return query.key

    def compute(self, states, batch):
        self.batches.append(len(batch))
        return [{"before": len(states[query.key]["seen"]), "double": query["truth"] * 2.0} for query in batch]

    def update(self, states, batch, _outputs):
        for query in batch:
            if query["truth"] < 0:
                raise RuntimeError("half way")
            seen = states[query.key]["seen"]
            states[query.key] = {"seen": (*seen, (query.request_id, query["truth"], query.get("flags", {}).get("s")))}
        return states


def truth(value, key="ada", **more):
    return {"key": key, "inputs": {"truth": value}, **more}


def bundle(offset, ids, truths, repeated=()):
    carried = Carried(
        Record("in", 0, offset, 5_000, log_append=False, key=b"ada", value=None, headers=()),
        None,
        Query({"truths": truths}, {}),
    )
    ids = tuple(ids.split())
    delivery = Delivery(f"m{offset}", 0, offset, 1.0, 9.0, "", None, payload=carried, ids=ids, repeated=repeated)
    delivery.truths = divide(delivery, ids, Signature({"truth": {"dtype": None, "shape": None}}).check)
    return Request(delivery.request_id, 0, 1.0, 9.0, 2.0, (delivery,), {}, 2.5, 3.0)


@pytest.fixture
def made():
    return make(Limits())


def make(limits):
    model = Sums()
    return stateful_work(limits=limits), Machine("s", model), model


def taken(made, *requests, tried=False):
    """What came of each truth, of each message."""
    work, machine, _ = made
    batch = SimpleNamespace(requests=list(requests))
    done = work.compute(machine, batch, tried=tried)
    assert work.update(machine, batch).error is None
    return [[told(each) for each in results(result)] for result in done.results]


def results(result):
    return Decoder().outcome(result.payloads[None]).outputs["results"]


def told(value):
    """An outcome's outputs; of one that failed its reason and text; of a truth that came before nothing."""
    if not value:
        return None
    one = Decoder().outcome(value)
    return one.outputs if one.kind == PREDICTION else (one.reason, one.text)


def test_all_truths_of_a_batch_are_computed_at_once_and_each_by_its_own_key_and_id(made):
    said = json.dumps({"s": {"p": 0.1 + 0.2}})
    first = bundle(0, "a b", [truth(1, flags=said), truth(2, "bob")])
    assert taken(made, first, bundle(1, "c", [truth(3)])) == [
        [{"before": 0, "double": 2.0}, {"before": 0, "double": 4.0}],
        [{"before": 0, "double": 6.0}],
    ]
    assert made[2].batches == [3]
    assert made[1].state == {
        "ada": {"seen": (("a", 1, {"p": 0.1 + 0.2}), ("c", 3, None))},
        "bob": {"seen": (("b", 2, None),)},
    }


def test_a_bad_truth_fails_alone(made):
    made[0].placed = lambda inputs, _partition: inputs.key != "elsewhere"
    truths = [
        truth(1),
        {"key": "ada", "inputs": {}},
        {"key": "ada"},
        truth(2, flags="{"),
        truth(3, flags="[]"),
        truth(3, flags=r'{"s": "\ud800"}'),
        truth(3, flags='{"s": 9223372036854775808}'),
        truth(3, flags=16_000 * "["),
        truth(3, flags=5),
        truth(4, flags='{"s": "' + "x" * 20_000 + '"}'),
        truth(5, "elsewhere"),
        "nothing",
        truth(6),
    ]
    ((first, *bad, last),) = taken(made, bundle(0, "a b c d e f g h i j k l m", truths))
    assert (first["double"], last["double"]) == (2.0, 12.0)
    assert {reason for reason, _ in bad} == {reasons.BAD_INPUT}
    assert "partition 0 is not the partition" in bad[9][1]
    assert [one for one, *_ in made[1].state["ada"]["seen"]] == ["a", "m"]


def test_who_makes_the_model_raise_fails_alone(made):
    ((one, two, three),) = taken(made, bundle(0, "a b c", [truth(1), truth(None), truth(3)]))
    assert (two[0], "TypeError" in two[1]) == (reasons.MODEL_RAISED, True)
    assert (one["double"], three["double"]) == (2.0, 6.0)
    ((one, two),) = taken(made, bundle(1, "d e", [truth(-1), truth(4)]), tried=True)
    assert "update raised RuntimeError: half way" in one[1]
    assert two == {"before": 2, "double": 8.0}
    assert [number for _, number, _ in made[1].state["ada"]["seen"]] == [1, 3, 4]


def test_outputs_that_do_not_fit_into_one_message_are_left_out_and_the_truths_count():
    made = make(Limits(max_message_bytes=4_096 + 90))
    ((one, two), (three,)) = taken(made, bundle(0, "a b", [truth(1), truth(2)]), bundle(1, "c", [truth(3)]))
    assert (one, two, three) == ({}, {}, {"before": 0, "double": 6.0})
    assert len(made[1].state["ada"]["seen"]) == 3


def test_a_truth_that_came_before_is_not_computed_again(made):
    assert taken(made, bundle(0, "a b", [truth(1), truth(2)], repeated=(0,))) == [[None, {"before": 0, "double": 4.0}]]
    work, machine, _ = made
    again = work.compute(machine, SimpleNamespace(requests=[bundle(1, "a", [truth(1)], repeated=(0,))]))
    assert isinstance(again.results[0], Ok)
    assert not again.changes


def share(offset=0):
    return Share(0, offset, None)


def record(offset, *ids):
    return Delivery(f"m{offset}", 0, offset, 1.0, 9.0, "", None, appended=float(offset), ids=ids)


def test_an_id_counts_once_in_whichever_message_it_comes():
    of = share()
    single = Delivery("b", 0, 0, 1.0, 9.0, "", None, appended=0.0)
    both, again = record(1, "a", "b", "a"), record(2, "c", "a")
    assert [of.take(each) for each in (single, both, again)] == [Taken.FIRST] * 3
    assert (both.repeated, again.repeated) == ((1, 2), (1,))
    assert of.take(Delivery("c", 0, 3, 1.0, 9.0, "", None, appended=3.0)) is Taken.REPEATED
    rebuilt = share(2)
    for each in (single, both):
        rebuilt.remember(each)
    once_more = record(2, "c", "a")
    rebuilt.take(once_more)
    assert once_more.repeated == (1,)


def intake(**more):
    metrics = SimpleNamespace(clock_skew=0)
    return Intake(predecessors=(), decoder=Decoder(), signature=None, slo=1.0, metrics=metrics, **more)


def kafka(ids, truths=None):
    count = len(ids.split())
    value = encode_query(Query({"truths": [truth(1)] * count if truths is None else truths}, {}))
    return Record("in", 0, 7, 5_000, log_append=False, key=b"ada", value=value,
                  headers=((REQUEST_ID, b"m"), (TRUTHS, ids.encode())))  # fmt: skip


def test_the_ids_are_in_the_headers_and_are_known_without_the_value():
    came = intake(truths=True).delivery(kafka("a b"))
    assert came.ids == ("a", "b")
    assert [(each.request_id, each.payload.message.inputs) for each in came.truths] == [
        ("a", {"truth": 1}),
        ("b", {"truth": 1}),
    ]
    assert intake(truths=True).remembered(kafka("a b")).ids == ("a", "b")
    assert intake().delivery(kafka("a b")).truths == ()  # of a stage that is no learner it is a query as any other


@pytest.mark.parametrize(
    "message",
    [
        kafka("a b", [truth(1)]),
        kafka("a", "text"),
        kafka(" ".join(f"t{n}" for n in range(MOST_TRUTHS + 1))),
        kafka("a\tb"),
        kafka(""),
        kafka("x" * 200),
    ],
)
def test_a_message_whose_truths_are_not_as_its_headers_say_is_refused(message):
    reads = intake(truths=True)
    with pytest.raises(PoisonError, match="1 to 256 ids in spillway-truths") as caught:
        reads.delivery(message)
    assert caught.value.reason == reasons.BAD_INPUT
    assert caught.value.delivery.ids == reads.remembered(message).ids  # memory counts them alike
