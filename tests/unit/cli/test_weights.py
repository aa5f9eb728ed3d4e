"""`spillway change ensemble --weights`: what is learned of an ensemble's members, for a person."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.cli.commands import ensemble as command
from spillway.agents.learning.selection import Exp4
from spillway.producers.published import Row, encode_row, key_of_shared
from spillway.topology.ensembles import record_key
from spillway.topology.load import parse

FILE = """
name: p
slo: 1s
stages:
  - name: kind
    default: {y: 0}
    ensemble: {selection: SELECTION, members: {one: {model: m:M}, two: {model: m:M}}}
"""


def told(tmp_path, rows, served=None, selection="exp4"):
    file = tmp_path / "p.yaml"
    file.write_text(FILE.replace("SELECTION", selection))
    table = {key if isinstance(key, bytes) else key.encode(): encode_row(Row(*row)) for key, row in rows.items()}
    records = {} if served is None else {record_key("kind"): SimpleNamespace(section=served)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spillway.agents.cli.cluster.find_cluster", lambda *_, **__: None)
        sizes = SimpleNamespace(require=dict, ensembles=lambda: records)
        patch.setattr(command, "Sizes", lambda *_: nullcontext(sizes))
        told = SimpleNamespace(require=lambda: table)
        patch.setattr(command, "Table", lambda _settings, topic, partitions: nullcontext(told))
        return CliRunner().invoke(command.ensemble, [str(file), "kind", "--weights", "--run-dir", str(tmp_path)])


@given(st.dictionaries(st.text("abü", min_size=1), st.tuples(st.floats(-9, 0), st.floats(-9, 0)), max_size=4))
def test_each_context_is_shown_with_the_weights_that_queries_get(tmp_path_factory, contexts):
    rows = {context: ({"one": [a], "two": [b]}, 2, 7) for context, (a, b) in contexts.items()}
    done = told(tmp_path_factory.mktemp("p"), {**rows, key_of_shared(0): ({}, 1, 0)})
    assert done.exit_code == 0, done.output
    expected = []
    for context in sorted(contexts):
        weights = Exp4().weights(rows[context][0], ["one", "two"])
        expected.append(f"{context}: one {weights['one']:.4f}, two {weights['two']:.4f} (version e2.v7)")
    assert done.output.splitlines() == (expected or ["nothing was learned yet"])


def test_members_are_those_that_are_served_and_odd_rows_are_named(tmp_path):
    served = parse(FILE.replace("SELECTION", "exp4").replace("two:", "three:")).spec.stage("kind").ensemble
    done = told(tmp_path, {"all": ({"one": [0.0], "two": [0.0]}, 1, 1), "odd": (["x"], 1, 2)}, served)
    assert done.exit_code == 0, done.output
    assert "all: one 0.5000, three 0.5000" in done.output
    assert "odd: cannot be used" in done.output


def test_a_stage_that_learns_nothing_is_refused(tmp_path):
    done = told(tmp_path, {}, selection="static")
    assert "learns no weights: its selection is static" in str(done.exception)
