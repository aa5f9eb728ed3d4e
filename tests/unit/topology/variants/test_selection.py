"""getVariant against a brute-force search, and each of its rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.infaas.family import family, of
from spillway.lineage.errors import UsageError
from spillway.topology.variants.needs import Needs
from spillway.topology.variants.selection import Choice, How, Selection, Status

APP = "classification"
CPU, NEURON, TRT1, TRT8 = (each.name for each in of("ResNet50")[:4])
MODEL = Needs(APP, 0.3, model="ResNet50")


def selection(told=None, **how):
    found = Selection(family(), **how)
    for name, status in (told or {}).items():
        found.update(name, status)
    return found


def test_the_least_loaded_active_variant_that_meets_the_needs_answers():
    told = {CPU: Status(serves=True, load=0.5), NEURON: Status(serves=True, load=0.2), TRT1: Status(load=0.0)}
    assert selection(told).choose(MODEL) == Choice(NEURON, How.ACTIVE)
    assert selection(told | {NEURON: Status(serves=True, load=0.6)}).choose(MODEL) == Choice(CPU, How.ACTIVE)
    assert selection(told).choose(MODEL._replace(latency=0.05)).variant == NEURON


def test_without_one_the_fastest_to_load_and_infer_is_loaded():
    wait = selection({CPU: Status()}, on_miss="wait")
    assert wait.choose(MODEL) == Choice("resnet50-caffe2-cpu-1", How.LOADING, "resnet50-caffe2-cpu-1")
    assert wait.choose(MODEL._replace(latency=0.1)).load == NEURON
    wait.update(TRT8, Status(loading=0.1))
    assert wait.choose(MODEL).variant == TRT8
    wait.update(TRT8, Status(loading=0.1, usable=False))
    assert wait.choose(MODEL).load == "resnet50-caffe2-cpu-1"


@pytest.mark.parametrize("on_miss", ["closest", "fail"])
def test_a_marked_variant_that_meets_the_needs_answers_while_another_loads(on_miss):
    found = selection({NEURON: Status(serves=True, marked=True)}, on_miss=on_miss).choose(MODEL)
    assert found == Choice(NEURON, How.MARKED, "resnet50-caffe2-cpu-1")


def test_closest_answers_with_what_is_there_and_has_loaded_what_meets_the_needs():
    strict = Needs(APP, 0.02, 0.75)
    found = selection({CPU: Status(serves=True)}, on_miss="closest").choose(strict)
    assert (found.variant, found.how) == (CPU, How.CLOSEST)
    assert found.load is not None
    assert next(each for each in family() if each.name == found.load).latency <= 0.02
    assert selection({CPU: Status(serves=True)}, on_miss="fail").choose(strict) == Choice(None, How.NONE, found.load)


def test_what_is_loaded_in_time_is_waited_for():
    patient = Needs(APP, 30.0, 0.8)
    assert selection({CPU: Status(serves=True)}).choose(patient, 30.0).how is How.LOADING
    assert selection({CPU: Status(serves=True)}).choose(patient, 0.3).how is How.CLOSEST


def test_where_nothing_registered_meets_the_needs_the_closest_is_suggested():
    needs = Needs(APP, 0.001, 0.825)
    served = selection({CPU: Status(serves=True)}).choose(needs)
    assert (served.variant, served.how, served.load) == (CPU, How.CLOSEST, None)
    assert served.suggestion is not None
    for on_miss in ("wait", "fail"):
        refused = selection({CPU: Status(serves=True)}, on_miss=on_miss).choose(needs)
        assert refused == Choice(None, How.NONE, None, served.suggestion)
    assert selection().choose(needs) == Choice(served.suggestion, How.CLOSEST, served.suggestion, served.suggestion)


def test_what_the_deadline_leaves_counts_and_the_wait_with_it_unless_the_budget_is_static():
    told = {CPU: Status(serves=True, wait=0.05), NEURON: Status(serves=True, load=0.9, wait=0.01)}
    assert selection(told).choose(MODEL, 0.3).variant == CPU
    assert selection(told).choose(MODEL, 0.24).variant == NEURON
    assert selection(told, budget="static").choose(MODEL, 0.24).variant == CPU
    found = selection(told)
    found.wait(CPU, 0.2)
    assert found.choose(MODEL, 0.3).variant == NEURON


def test_a_stale_profile_is_corrected():
    found = selection({CPU: Status(serves=True, slower=2.0), NEURON: Status(serves=True, load=0.9)})
    assert found.choose(MODEL).variant == NEURON


def test_a_variant_that_is_named_is_the_only_one():
    told = {CPU: Status(serves=True), NEURON: Status(serves=True)}
    assert selection(told).choose(Needs(APP, variant=NEURON)) == Choice(NEURON, How.ACTIVE)
    assert selection(told).choose(Needs(APP, 0.05, variant=CPU)).how is How.CLOSEST
    assert selection(told).choose(Needs(APP, variant=TRT1)) == Choice(TRT1, How.LOADING, TRT1)


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (Needs("faces"), "there is no application 'faces'"),
        (Needs(APP, model="ResNet"), "has no model 'ResNet'"),
        (Needs(APP, variant="x"), "has no variant 'x'"),
    ],
)
def test_what_is_not_registered_is_refused_by_name(needs, said):
    with pytest.raises(UsageError, match=said):
        selection().choose(needs)
    with pytest.raises(UsageError, match="there is no variant 'x'"):
        selection().update("x", Status())


statuses = st.builds(
    Status,
    serves=st.booleans(),
    marked=st.booleans(),
    load=st.floats(0, 2),
    wait=st.floats(0, 1),
    loading=st.none() | st.floats(0, 5),
    usable=st.booleans(),
    slower=st.sampled_from([1.0, 1.0, 3.0]),
)


@given(
    st.dictionaries(st.sampled_from([each.name for each in family() if each.app == APP]), statuses, max_size=60),
    st.floats(0.001, 3),
    st.floats(0, 1),
    st.floats(0.001, 3),
    st.sampled_from(["remaining", "static"]),
    st.sampled_from(["closest", "wait", "fail"]),
)
def test_a_brute_force_search_finds_the_same(told, latency, accuracy, remaining, budget, on_miss):
    found = selection(told, budget=budget, on_miss=on_miss).choose(Needs(APP, latency, accuracy), remaining)
    left = remaining if budget == "remaining" else latency
    meets, active = [], []
    for each in family():
        status = told.get(each.name, Status())
        takes = each.latency * status.slower
        if each.app != APP or takes > latency or each.accuracy < accuracy:
            continue
        meets.append((each, status, takes))
        waits = takes + (status.wait if budget == "remaining" else 0)
        if status.serves and not status.marked and waits <= left:
            active.append((each, status))
    by_name = {each.name: (status, takes) for each, status, takes in meets}
    if active:
        assert found.how is How.ACTIVE
        assert told[found.variant].load == min(status.load for _, status in active)
        assert found.variant in {each.name for each, _ in active}
        return
    idle = {
        each.name: takes + (each.load if status.loading is None else status.loading)
        for each, status, takes in meets
        if not status.serves and status.usable
    }
    assert found.how is not How.ACTIVE
    if idle:
        assert idle[found.load] == pytest.approx(min(idle.values()))
    elif meets:
        assert found.load is None or found.how is How.CLOSEST
    serving = [name for name, (status, _) in by_name.items() if status.serves]
    if on_miss != "wait" and serving:
        assert found.how is How.MARKED
        assert found.variant in serving
    if found.how is How.CLOSEST:
        assert on_miss == "closest"
