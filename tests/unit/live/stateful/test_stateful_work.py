"""Computing and updating a batch: what is updated is what leaves, and nobody fails for a neighbour."""

import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.crash_suspects import Crashes
from spillway.agents.live.stateful.work import UpdateError
from spillway.agents.models.plain import BareModel
from spillway.agents.models.stateful import Machine
from spillway.lineage import reasons
from spillway.lineage.values import codec
from tests.unit.live.stateful import builders

DECODER = codec.Decoder()


class Adds:
    """Its state is the list of what it was updated with."""

    def __init__(self):
        self.computed = []

    def initialize(self):
        return {"seen": ()}

    def reads(self, query):
        return bool(query.get("read"))

    def compute(self, state, batch):
        self.computed.append([query["x"] for query in batch])
        if any(query.get("bad") for query in batch) or sum(bool(query.get("alone")) for query in batch) > 1:
            raise ValueError("no")
        return [{"y": object() if query.get("strange") else len(state["seen"])} for query in batch]

    def update(self, state, batch, _outputs):
        if any(query.get("worse") for query in batch) or sum(bool(query.get("pair")) for query in batch) > 1:
            raise RuntimeError("half way")
        if any(query.get("unkept") for query in batch):
            return {"seen": object()}
        return {"seen": (*state["seen"], *(query["x"] for query in batch))}


def line_of(method, raising):
    lines, first = inspect.getsourcelines(method)
    number = first + next(at for at, line in enumerate(lines) if raising in line)
    return f"{Path(__file__).relative_to(Path.cwd())}:{number}"


RAISING = line_of(Adds.compute, "raise ValueError")
HALF_WAY = f"RuntimeError: half way ({line_of(Adds.update, 'raise RuntimeError')} in update)"


def request(number, **inputs):
    return builders.request(number, {"x": number, **inputs})


@pytest.fixture
def made():
    model = Adds()
    return builders.stateful_work(), Machine("s", model), model


def compute(made, *requests, tried=False):
    work, machine, _ = made
    return work.compute(machine, SimpleNamespace(requests=list(requests)), tried=tried)


def update(made, *requests):
    work, machine, _ = made
    return work.update(machine, SimpleNamespace(requests=list(requests)))


def test_a_batch_is_computed_from_the_state_and_then_changes_it(made):
    done = compute(made, request(1), request(2))
    assert [DECODER.outcome(result.payloads[None]).outputs for result in done.results] == [{"y": 0}, {"y": 0}]
    assert done.changes
    assert made[1].state == {"seen": ()}
    update(made)
    assert made[1].state == {"seen": (1, 2)}


def test_a_query_that_raises_fails_alone_and_changes_nothing(made):
    done = compute(made, request(1), request(2, bad=True), request(3))
    assert [type(result) for result in done.results] == [Ok, Failed, Ok]
    assert done.results[1].reason == reasons.MODEL_RAISED
    assert made[2].computed == [[1, 2, 3], [1], [2], [3], [1, 3]]
    update(made)
    assert made[1].state == {"seen": (1, 3)}


def test_a_query_whose_result_cannot_be_encoded_changes_nothing(made):
    done = compute(made, request(1), request(2, strange=True))
    assert [type(result) for result in done.results] == [Ok, Failed]
    assert done.results[1].reason == reasons.BAD_RESULT
    update(made)
    assert made[1].state == {"seen": (1,)}


def test_where_only_all_together_raise_all_fail(made):
    done = compute(made, request(1, alone=True), request(2, alone=True))
    assert {result.reason for result in done.results} == {reasons.MODEL_RAISED}
    assert not done.changes


def test_reading_alone_changes_nothing(made):
    assert not compute(made, request(1, read=True)).changes


def test_an_update_that_raises_is_told_with_model_and_queries(made):
    compute(made, request(1), request(2, worse=True))
    error = update(made, request(1), request(2)).error
    assert isinstance(error, UpdateError)
    assert f"model 'm': update raised {HALF_WAY} for the queries 'r1', 'r2'" in str(error)


def test_a_record_that_cannot_be_replayed_is_an_error(made):
    work, machine, _ = made
    with pytest.raises(UpdateError, match=r"half way .* for the queries 'r2'"):
        work.again(machine, [request(2, worse=True)])


def test_tried_on_a_copy_a_query_whose_update_raises_fails_alone(made):
    done = compute(made, request(1), request(2, worse=True), request(3), tried=True)
    assert [type(result) for result in done.results] == [Ok, Failed, Ok]
    assert done.results[1] == Failed(reasons.MODEL_RAISED, f"update raised {HALF_WAY}")
    assert (done.guilty, done.changes) == (1, True)
    assert made[1].state == {"seen": ()}
    update(made)
    assert made[1].state == {"seen": (1, 3)}


def test_tried_where_compute_raises_too_each_fails_for_its_own(made):
    done = compute(made, request(1, bad=True), request(2, worse=True), request(3), tried=True)
    assert [result.text for result in done.results[:2]] == [
        f"ValueError: no ({RAISING} in compute)",
        f"update raised {HALF_WAY}",
    ]
    assert isinstance(done.results[2], Ok)
    assert done.guilty == 1


def test_where_updates_raise_only_together_nobody_is_found_guilty(made):
    done = compute(made, request(1, pair=True), request(2, pair=True), tried=True)
    assert [type(result) for result in done.results] == [Ok, Ok]
    assert done.guilty == 0
    assert update(made, request(1), request(2)).error is not None


def test_a_state_that_cannot_be_kept_is_its_queries_fault(made):
    done = compute(made, request(1), request(2, unkept=True), tried=True)
    assert [type(result) for result in done.results] == [Ok, Failed]
    assert "cannot be encoded" in done.results[1].text
    update(made)
    assert made[1].state == {"seen": (1,)}


def test_tried_a_batch_of_guilty_ones_changes_nothing(made):
    done = compute(made, request(1, worse=True), request(2, worse=True), tried=True)
    assert (done.guilty, done.changes) == (2, False)
    assert [type(result) for result in compute(made, request(3, read=True), tried=True).results] == [Ok]


def test_what_was_computed_before_is_computed_again_without_being_sent(made):
    work, machine, _ = made
    work.again(machine, [request(4), request(5)])
    assert machine.state == {"seen": (4, 5)}


def test_a_bare_model_computes_and_updates():
    bare = BareModel("stage 's'", Adds())
    assert bare.predict([{"x": 1}]) == [{"y": 0}]
    assert bare.predict([{"x": 2}]) == [{"y": 1}]


def test_a_query_that_members_died_of_while_it_was_alone_never_gets_near_the_state(made):
    alone = frozenset({(0, 2)})
    made[0].guard.deaths = Crashes([alone] * 4)
    done = compute(made, request(1), request(2), request(3))
    assert [type(result) for result in done.results] == [Ok, Failed, Ok]
    assert done.results[1].reason == reasons.MODEL_DIED
    assert "in[0] offset 2" in done.results[1].text
    assert made[2].computed == [[1, 3]]
    update(made)
    assert made[1].state == {"seen": (1, 3)}


def test_a_backup_rehearses_with_no_query_that_a_member_may_have_died_of(made):
    work, machine, model = made
    work.guard.deaths = Crashes([frozenset({(0, 2), (0, 1)})] * 2)
    work.rehearse(machine, request(2))
    assert model.computed == []
    work.rehearse(machine, request(3))
    assert model.computed == [[3]]


def test_a_query_off_the_partition_of_its_key_fails_where_states_are_looked_up(made):
    made[0].placed = lambda query, partition: query["x"] == 2 and partition == 0
    done = compute(made, request(1), request(2))
    assert [type(result) for result in done.results] == [Failed, Ok]
    assert done.results[0].reason == reasons.BAD_INPUT
    assert "not the partition of its state's key" in done.results[0].text
    update(made)
    assert made[1].state == {"seen": (2,)}
