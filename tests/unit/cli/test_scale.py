"""What `spillway scale` refuses before it looks for a cluster."""

import pytest
from click.testing import CliRunner

from agents.cli.commands.scale import scale
from lineage.errors import UsageError

SPEC = """
name: p
slo: 1s
stages:
  - {name: one, model: "m:M", workers: {fronts: 3}}
  - {name: keeps, model: "m:M", state: {kind: shared, shards: 2}, after: one}
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (["oen", "3"], "has no stage 'oen'; did you mean 'one'?"),
        (["one", "2"], "has 3 fronts, each with a worker at least: 2 are too few"),
        (["keeps", "3"], r"keeps a state: each of its shards \(2\) has one worker"),
    ],
)
def test_what_no_stage_can_have_is_refused(tmp_path, what, said):
    file = tmp_path / "p.yaml"
    file.write_text(SPEC)
    done = CliRunner().invoke(scale, [str(file), *what, "--bootstrap", "127.0.0.1:1"])
    with pytest.raises(UsageError, match=said):
        raise done.exception
