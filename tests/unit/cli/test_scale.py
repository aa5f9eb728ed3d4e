"""What `spillway change scale` and `spillway change ensemble` refuse before they look for a cluster."""

import pytest
from click.testing import CliRunner

from spillway.agents.cli.commands.ensemble import ensemble
from spillway.agents.cli.commands.scale import scale
from spillway.lineage.errors import UsageError
from spillway.topology.problems import InvalidPipelineError

SPEC = """
name: p
slo: 1s
stages:
  - {name: one, model: "m:M", workers: {fronts: 3}}
  - {name: keeps, model: "m:M", state: {kind: shared, shards: 2}, after: one}
  - {name: kind, after: keeps, workers: {fronts: 2}, ensemble: {members: {a: {model: "m:A", workers: {count: 2}}}}}
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (["oen", "3"], "has no stage 'oen'; did you mean 'one'?"),
        (["one", "2"], "has 3 fronts, and each needs at least one worker: 2 are too few"),
        (["kind", "3"], "has members with their own workers: name one, as in 'kind/a'"),
        (["kind/a", "1"], "has 2 fronts, and each needs at least one worker of it: 1 are too few"),
        (["kind/a", "3", "--hold"], "tuners do not size members"),
        (["one/a", "3"], "stage 'one' has no members"),
        (["keeps", "3"], r"keeps a state: each of its shards \(2\) has one worker"),
    ],
)
def test_what_no_stage_can_have_is_refused(tmp_path, what, said):
    file = tmp_path / "p.yaml"
    file.write_text(SPEC)
    done = CliRunner().invoke(scale, [str(file), *what, "--bootstrap", "127.0.0.1:1"])
    with pytest.raises(UsageError, match=said):
        raise done.exception


def test_what_is_no_ensemble_is_refused(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(SPEC)
    done = CliRunner().invoke(ensemble, [str(file), "one", "--bootstrap", "127.0.0.1:1"])
    with pytest.raises(UsageError, match=r"stage 'one' of .* has no 'ensemble'"):
        raise done.exception
    file.write_text(SPEC.replace("ensemble: {", "ensemble: {selection: exp5, "))
    done = CliRunner().invoke(ensemble, [str(file), "kind", "--bootstrap", "127.0.0.1:1"])
    with pytest.raises(InvalidPipelineError, match="there is no selection 'exp5'"):
        raise done.exception
