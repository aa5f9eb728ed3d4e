"""Queries that wait before they enter the queue: they take no room in it, wait no longer than they may, and leave."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.token_wait import MOST_SECONDS, TokenWait, Want
from tests.unit.core.builders import NOW, delivery, finish, stage_core


class Behind(set):
    """Ids of queries that have to wait, each for a version of its own."""

    def wants(self, work):
        return (Want(work.request_id, (1, 1)),) if work.request_id in self else ()

    def news(self):
        return {name: (1, 1) for name in ("q0", "q1") if name not in self}


@pytest.fixture
def behind():
    return Behind({"q0", "q1"})


@pytest.fixture
def core(behind):
    core = stage_core("chain", "b", queue_limit=1, steps=[TokenWait(behind)])
    for offset in range(3):
        core.deliver(NOW, delivery(f"q{offset}", offset, "a", deadline=NOW + 10.0 if offset else NOW + 1.0))
    return core


def ran(core, now=NOW):
    return [emit.request_id for emit in finish(core, "c", now=now)]


def test_it_enters_after_half_of_what_its_deadline_leaves_or_a_second(core):
    assert ran(core) == ["q2"]
    core.advance(NOW + 0.49)
    assert ran(core) == []
    core.advance(NOW + 0.51)
    assert ran(core, NOW + 0.51) == ["q0"]
    core.advance(NOW + MOST_SECONDS)
    assert ran(core, NOW + MOST_SECONDS) == ["q1"]
    assert core.next_wake(NOW + 2) is None


def test_what_waits_leaves_with_its_partition(core):
    (emit,) = finish(core, "c")
    core.acked(emit)
    core.revoke(NOW, 0)
    assert core.unsettled == 0
    core.advance(NOW + 2)
    assert ran(core, NOW + 2) == []


class Rows:
    """Rows of which a query wants one, its own if that is there and else the common one, to have a version."""

    def __init__(self, most=10**9):
        self.rows, self.changed, self.most, self.asked = {}, {}, most, 0

    def put(self, name, version):
        self.rows.pop(name, None) if version is None else self.rows.update({name: version})
        self.changed[name] = version

    def behind(self, work):
        return self.rows.get(work.name, self.rows.get("common", (0, 0))) < work.version

    def wants(self, work):
        self.asked += 1
        names = (work.name,) if work.name in self.rows else (work.name, "common")
        return tuple(Want(name, work.version) for name in names) if self.behind(work) else ()

    def news(self):
        changed, self.changed = self.changed, {}
        return None if len(changed) > self.most else changed


names = st.sampled_from(["a", "b", "c"])
versions = st.tuples(st.integers(1, 2), st.integers(0, 4))
steps = st.lists(
    st.tuples(st.just("query"), names, versions, st.sampled_from([0.0, 0.4, 9.0]))
    | st.tuples(st.just("row"), names | st.just("common"), st.none() | versions)
    | st.tuples(st.just("time"), st.sampled_from([0.0, 0.01, 0.3, 1.0]))
    | st.tuples(st.just("remove"), names),
    max_size=40,
)


@given(steps, st.sampled_from([0, 1, 100]))
def test_whoever_waits_enters_when_a_look_at_all_would_find_that_it_may(steps, most):
    rows, now, waiting, entered, expected = Rows(most), NOW, [], [], []
    holding = TokenWait(rows)
    holding.begin(None, lambda _now, work: entered.append(work))
    for what, *told in steps:
        if what == "query":
            work = SimpleNamespace(name=told[0], version=told[1], deadline=now + told[2])
            work.until = now + min(MOST_SECONDS, told[2] / 2)
            holding.admit(now, work)
            (waiting if rows.behind(work) else expected).append(work)
        elif what == "row":
            rows.put(*told)
        elif what == "remove":
            assert holding.remove(lambda work, name=told[0]: work.name == name) == sum(
                work.name == told[0] for work in waiting
            )
            waiting = [work for work in waiting if work.name != told[0]]
        else:
            now += told[0]
            holding.advance(now)
            expected += [work for work in waiting if work.until <= now or not rows.behind(work)]
            waiting = [work for work in waiting if work.until > now and rows.behind(work)]
        assert [id(work) for work in entered] == [id(work) for work in expected]
        assert (holding.next_wake(now) is None) == (not waiting)
    holding.remove(lambda _work: True)
    assert [*holding._held, *holding._by_name, *holding._dues] == []


def test_those_whose_version_has_not_come_are_not_looked_at():
    rows, entered = Rows(), []
    holding = TokenWait(rows)
    holding.begin(None, lambda _now, work: entered.append(work.version))
    for number in range(1_000):
        holding.admit(NOW, SimpleNamespace(name="a", version=(1, number + 1), deadline=NOW + 100))
    rows.asked = 0
    for number in range(50):
        rows.put("common", (1, number + 1))
        holding.advance(NOW + 0.01 * number)
    assert entered == [(1, number + 1) for number in range(50)]
    assert rows.asked == 50
    holding.advance(NOW + 1.0)
    assert (len(entered), rows.asked) == (1_000, 50)
