"""The policy of docs/policies.md, as it stands on the page: in a stage's process on a real broker, and in `whatif`."""

import json
import re

import pytest

from spillway.lineage.message import DROPPED, PREDICTION
from tests.acceptance.serving import ROOT, command

PAGE = (ROOT / "docs/policies.md").read_text()
(EXAMPLE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
OWN = "policies:Impatient:longest=.2"
SPEC = """
partitions: 4
stages:
  - {name: one, emulated: {alpha: 100ms}, batching: {size: 1}, policy: "policies:Impatient"}
"""


@pytest.fixture
def chain(stage):
    made = stage(SPEC)
    (made.folder / "policies.py").write_text(EXAMPLE)
    return made


def said(name, chain, *arguments):
    done = command(name, chain.file, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_drops_in_a_stage_process_what_it_says(chain, until):
    chain.start("one", policy=OWN)
    until(lambda: chain.metrics("one"))
    reader = chain.reader("outcomes")
    chain.send_many(20)  # two seconds of work at once
    reader.wait(20)
    outcomes = [outcome for _, outcome in reader.outcomes()]
    drops = [outcome for outcome in outcomes if outcome.kind == DROPPED]
    assert drops
    assert {(drop.stage, drop.reason) for drop in drops} == {("one", "impatient")}
    assert all(float(re.match(r"waited (\S+) s", drop.text)[1]) >= 0.2 for drop in drops)
    assert {outcome.kind for outcome in outcomes} <= {DROPPED, PREDICTION}


def test_it_is_checked_and_compared_with_ours(chain):
    assert "policies and functions: all were found" in said("check", chain, "--load")
    asked = ("poisson:20", "--duration", "10", "--policy", "naive", "--policy", OWN, "--json")
    rows = {row["policy"]: row for row in json.loads(said("whatif", chain, *asked))["alternatives"]}
    assert (rows["naive"]["dropped"], set(rows)) == (0, {"naive", OWN})
    assert rows[OWN]["dropped"] > 0
