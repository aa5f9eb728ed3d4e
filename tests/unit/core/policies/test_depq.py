"""The double-ended queue against a sorted list, for any sequence of what can be done to it."""

from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.policies.adaptive import Depq
from tests.unit.core.builders import request

DEADLINES = st.one_of(st.integers(0, 5).map(float), st.floats(0, 5, allow_nan=False))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), DEADLINES),
        st.tuples(st.sampled_from(["low", "high"]), st.just(0.0)),
        st.tuples(st.sampled_from(["expired", "remove"]), DEADLINES),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_gives_what_a_sorted_list_gives(steps):
    queue, model = Depq(), []
    for number, (step, value) in enumerate(steps):
        if step == "push":
            queue.push(request(str(number), within=value))
            model.append((value, number))
            model.sort()
        elif step == "remove":
            gone = queue.remove(lambda each, value=value: each.deadline <= value)
            assert [each.deadline for each in gone] == [deadline for deadline, _ in model if deadline <= value]
            model = [each for each in model if each[0] > value]
        else:
            if step == "expired":
                taken = queue.pop_expired(value)
                expected = model.pop(0) if model and model[0][0] < value else None
            else:
                taken = queue.pop_low() if step == "low" else queue.pop_high()
                expected = model.pop(0 if step == "low" else -1) if model else None
            assert (taken and (taken.deadline, int(taken.request_id))) == expected
        assert len(queue) == len(model)
