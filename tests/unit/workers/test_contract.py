"""A model in a thread and one in a worker process give a client the same outcome, whatever they answer."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.agents.core.actions import Ok
from spillway.lineage import reasons
from spillway.lineage.values import codec
from spillway.lineage.values.json_text import write_outcome
from tests.unit.odd_values import VALUES
from tests.unit.workers import answers
from tests.unit.workers.answers import Worker, exact, in_thread, shown

DECODER = codec.Decoder()


@pytest.fixture(scope="module")
def worker():
    made = Worker(answers.model())
    yield made
    made.close()


def outcomes(worker, expressions):
    inputs = [{"of": each} for each in expressions]
    threads = [shown(result, DECODER) for result in in_thread(answers.model(), inputs)]
    return threads, [shown(result, DECODER) for result in worker.run(inputs)]


@given(VALUES)
@settings(max_examples=4 * settings.default.max_examples)
def test_a_value_is_the_same_to_a_client_from_a_thread_and_a_process(worker, expression):
    thread, process = outcomes(worker, [expression])
    assert thread == process


@given(st.lists(VALUES, min_size=2, max_size=6))
def test_a_neighbour_changes_nothing(worker, expressions):
    alone = [outcomes(worker, [each])[0][0] for each in expressions]
    assert outcomes(worker, expressions) == (alone, alone)


@given(VALUES)
@settings(max_examples=2 * settings.default.max_examples)
def test_a_client_reads_from_json_what_it_reads_from_avro(expression):
    (result,) = in_thread(answers.model(), [{"of": expression}])
    if isinstance(result, Ok):
        outcome = DECODER.outcome(result.payloads[None])
        told = DECODER.released(write_outcome(outcome, "r", 1.0))
        assert exact(told.outputs) == exact(in_json(outcome.outputs))


def in_json(value):
    """A value as JSON has it: numbers that JSON lacks are texts outside of tensors."""
    if isinstance(value, dict):
        return {name: in_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [in_json(each) for each in value]
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if finite else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("{1: 2}", reasons.BAD_RESULT),
        ("np.ma.masked_array([1.0], [1])", reasons.BAD_RESULT),
        ("np.datetime64('2020-01-01')", reasons.BAD_RESULT),
        ("2**63", reasons.BAD_RESULT),
        ("np.array([2**63 + 1], np.uint64)", {"y": ("uint64", (1,), (2**63 + 1).to_bytes(8, "little"))}),
        ("np.complex64(1j)", {"y": ("complex64", (), b"\0\0\0\0\0\0\x80?")}),
        ("frames.plain.Bfloat16(np.array([16256], np.uint16))", {"y": ("bfloat16", (1,), b"\x80?")}),
        ("[[]] * 70000", reasons.BAD_RESULT),
        ("{str(n): n for n in range(2000)}", reasons.BAD_RESULT),
        ("(lambda l: l.append(l) or l)([])", reasons.BAD_RESULT),
        ("raising(Panic())", reasons.MODEL_RAISED),
        ("raising(SilentError())", reasons.MODEL_RAISED),
    ],
)
def test_the_contracts_table(worker, expression, told):
    assert outcomes(worker, [expression, "7"]) == ([told, {"y": ("int", "7")}],) * 2


@pytest.mark.parametrize("expression", ["None", "[1]", "7", "{1: 2}", "{'a': object()}", "{'confidence': 'much'}"])
def test_flags_are_the_same_from_both(expression):
    def predict(batch):
        class Answer(dict):
            flags = eval(expression)

        return [Answer(y=1) for _ in batch]

    served = answers.SimpleNamespace(predict=predict)
    worker = Worker(served)
    (process,), (thread,) = worker.run([{"x": 1}]), in_thread(served, [{"x": 1}])
    worker.close()
    assert shown(process, DECODER) == shown(thread, DECODER)
    assert getattr(process, "text", None) == getattr(thread, "text", None)
