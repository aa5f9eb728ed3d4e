"""Who may send truths may send any: what a learner goes by, and what it holds, its owners' logs say alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.learning.learner import EPOCH, Learner
from spillway.agents.learning.velox.prior import Prior
from spillway.agents.learning.velox.served import Served as VeloxServed
from spillway.agents.learning.velox.thetas import write_theta
from spillway.agents.models.contract import copied
from spillway.agents.models.state import fingerprint
from spillway.agents.models.stateful import SHARED
from spillway.topology.ensembles import Served
from spillway.topology.sections import EnsembleSpec
from tests.unit.core.test_odd_answers import Touchy
from tests.unit.live.stateful.builders import request
from tests.unit.live.stateful.test_odd_truths import DOES, FINE, OddModel, Shard, feedbacks
from tests.unit.odd_values import HostileDict, HostileList

COMMANDS = [
    {"generations": {"0": "t", "7": "t"}},
    {"generations": {"0": "../../etc/passwd", "99": "x"}},
    {"follow": True},
    {"report": True},
    {"item": "i", "value": 1.0, "generations": {"7": "t"}},
]
RULES = [
    {"epoch": 2**52 - 1, "members": ["a", "mine"], "selection": {"name": "exp4"}},
    {"epoch": 9, "members": ["a"], "selection": {"name": "exp4", "forgetting": 5}},
    {"epoch": 9, "members": ["a", "b"], "selection": {"name": "exp3", "eta": 1e9}},
]


def travels(rules):
    """Whether rules can be on the wire: a truth with values that cannot be copied fails, whatever they are said of."""
    try:
        copied(rules, frozen=True)
    except BaseException:  # noqa: BLE001 - an odd value raises whatever it likes
        return False
    return True


@st.composite
def forgeries(draw):
    """A feedback that also says what only owners may."""
    made = draw(feedbacks())
    if draw(st.booleans()):
        made["truth"] = draw(st.sampled_from(COMMANDS))
    flags = made.get("flags")
    if type(flags) is dict and type(flags.get("kind")) is dict:
        rules = draw(st.sampled_from(RULES)) if draw(st.booleans()) else flags["kind"].get("rules")
        flags["kind"]["rules"] = rules if travels(rules) else None
    return made | draw(st.dictionaries(st.sampled_from(["follow", "report", "generations", "control"]), st.just(True)))


def plain(made):
    """The same without what it says of rules."""
    flags = made.get("flags")
    if type(flags) is not dict or type(kind := flags.get("kind")) is not dict:
        return made
    return made | {"flags": flags | {"kind": {name: said for name, said in kind.items() if name != "rules"}}}


def played(make, control, batches):
    DOES.clear()
    shard, number = Shard(make), 0
    shard.work.control = lambda: control
    for batch in [[(FINE, "ada")], *batches]:
        requests = [request(number + n, inputs, key) for n, (inputs, key) in enumerate(batch)]
        number += len(batch)
        with np.errstate(all="ignore"):
            shard.take(requests)
    return shard


many = st.lists(st.lists(st.tuples(forgeries(), st.sampled_from(["ada", "bob"])), min_size=1, max_size=3), max_size=3)


def hostile(value):
    """A feedback with a value wherever a forgery may have one."""
    members = {"a": {"p": 1.0, "answer": value}, "b": {"p": 0.5, "answer": 2}}
    return {"truth": 1, "outputs": {"item": value}, "flags": {"kind": {"members": members, "rules": value}}}


def test_rules_that_raise_when_they_are_read_are_as_none_said():
    """Apart from the property, as hypothesis prints its examples, and these raise whatever is asked of them."""
    hostiles = [hostile(Touchy()), hostile(HostileList([1])), hostile(HostileDict(a=1))]
    test_no_truth_changes_an_ensembles_rules.hypothesis.inner_test([[(each, "ada") for each in hostiles]], "exp4")


@given(many, st.sampled_from(["exp3", "exp4"]))
def test_no_truth_changes_an_ensembles_rules(batches, selection):
    def make():
        return Learner("kind", ["a", "b"], {"name": selection}, "zero_one")

    members = {name: {"model": "m:M"} for name in ("a", "b")}
    served = Served(EnsembleSpec(selection={"name": selection}, members=members), "me", "", 0.0, 3, "", "")
    shard = played(make, served, batches)
    for state in shard.machine.state.values():
        assert state[EPOCH] == [3.0] if EPOCH in state else state == make().share()
        assert state.keys() - {EPOCH} == {"a", "b"}
    unsaid = [[(plain(inputs), key) for inputs, key in batch] for batch in batches]
    assert fingerprint(shard.machine.state) == fingerprint(played(make, served, unsaid).machine.state)


@given(many)
def test_no_truth_changes_a_velox_learners_generations(batches):
    shard = played(lambda: VeloxServed(OddModel, {}), {"0": "", "7": ""}, batches)
    assert shard.machine.state[SHARED]["newest"] == 0
    assert all(state["generations"].keys() == {"0"} for state in shard.machine.state.values())
    sent = [inputs for batch in batches for inputs, _ in batch]
    for n, inputs in enumerate(sent, start=1):
        truth = inputs["truth"]
        result = shard.results[f"r{n}"]
        if isinstance(truth, dict) and truth in COMMANDS[:4]:
            assert isinstance(result, Failed)
        assert isinstance(result, Ok) or result.text


def test_what_the_log_says_is_held_when_a_shard_is_asked_to_look_at_it(tmp_path):
    control = {"0": "", "7": write_theta(tmp_path, {"scale": np.ones(1)}, Prior(np.zeros(2), np.eye(2), np.eye(2)))}
    shard = played(lambda: VeloxServed(OddModel, {"folder": str(tmp_path)}), control, [[({"follow": True}, "ada")]])
    assert shard.machine.state["ada"]["generations"].keys() == {"0", "7"}
