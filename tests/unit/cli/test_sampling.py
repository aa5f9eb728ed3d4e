"""Sample queries as `spillway plan profile --sample` names them."""

import sys

import pytest

from spillway.agents.cli.commands.profile import given_samples
from spillway.lineage.errors import UsageError
from spillway.lineage.message import Query
from spillway.lineage.values import codec
from tests.unit.producers.test_recording import message, record


def test_recorded_queries_but_not_poison_or_outcomes(tmp_path):
    values = [codec.encode_query(Query({"x": number}, {}, [])) for number in range(100)]
    messages = [message(number, value=value) for number, value in enumerate(values)]
    messages[1] = message(1, value=b"poison")
    messages.append(message(100, "p.egress", value=values[0]))
    record(tmp_path / "r", messages)
    found = given_samples(str(tmp_path / "r"), 0)
    assert [one["x"] for one in found] == [0, *range(2, 65)]


def test_a_function_is_asked_for_each_with_a_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "sampled_queries.py").write_text(
        "def make(index, rng):\n    return {'i': index, 'x': rng.random()}\n\n\n"
        "def bad(index, rng):\n    return 1 / 0\n"
    )
    first, again = (given_samples("sampled_queries:make", 1) for _ in range(2))
    assert first == again != given_samples("sampled_queries:make", 2)
    assert [one["i"] for one in first] == list(range(64))
    with pytest.raises(UsageError, match=r"the sample function sampled_queries:bad failed: ZeroDivisionError"):
        given_samples("sampled_queries:bad", 0)


def test_a_file_without_a_query(tmp_path):
    (tmp_path / "q").write_text("\n\n")
    with pytest.raises(UsageError, match="holds no query to sample from"):
        given_samples(str(tmp_path / "q"), 0)
    (tmp_path / "q").write_text("[1]\n")
    with pytest.raises(UsageError, match=r"q:1: a JSON object of named inputs is needed, not list"):
        given_samples(str(tmp_path / "q"), 0)
