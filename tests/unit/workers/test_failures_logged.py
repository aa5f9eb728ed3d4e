"""What a model raises is logged alike from a thread and from a worker: a traceback a minute for each place."""

import logging
from types import SimpleNamespace

import pytest

from tests.unit.workers.answers import Worker, in_thread, plain_functions


def plain(n):
    raise ValueError(f"no {n}")


def group(n):
    raise ExceptionGroup(f"all of {n}", [ValueError(n), KeyError(n)])


def chained(n):
    try:
        int(f"x{n}")
    except ValueError as error:
        raise RuntimeError(f"while {n}") from error


def lines(n):
    raise ValueError(f'first {n}\n  File "of_{n}.py", line {n}, in f\n    code')


def outer(n):
    plain(n)


def panic(n):
    raise BaseException(n)  # noqa: TRY002 - as of Rust


def assertion(n):
    assert n < 0, f"{n} is too many"


ACTS = {each.__name__: each for each in (plain, group, chained, lines, outer, panic, assertion)}


def predict(batch):
    return [ACTS[each["act"]](each["n"]) for each in batch]


@pytest.fixture
def worker():
    made = Worker(SimpleNamespace(predict=predict))
    yield made
    made.close()


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("where", ["thread", "worker"])
def test_a_hundred_failures_of_one_line_are_one_traceback(worker, caplog, act, where):
    same = plain_functions()
    served = SimpleNamespace(predict=predict)
    with caplog.at_level(logging.ERROR):
        for at in range(0, 100, 20):
            inputs = [{"act": act, "n": n} for n in range(at, at + 20)]
            results = worker.run(inputs, same) if where == "worker" else in_thread(served, inputs, same)
            assert {each.reason for each in results} == {"model-raised"}
    (record,) = caplog.records
    assert "Traceback (most recent call last)" in record.getMessage()
    assert "test_failures_logged.py" in record.getMessage()
