"""The learner of an ensemble: its state is what the selection makes of the truths, in order, by context."""

import math
import random

import pytest

from spillway.agents.core.query import Query
from spillway.agents.core.request import Request
from spillway.agents.core.routes.ensemble import Ensemble, Rules, Weights
from spillway.agents.learning.chosen import POLICIES, selection_of
from spillway.agents.learning.learner import Learner
from spillway.agents.learning.selection import Observed
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.stateful import SHARED, Machine
from spillway.lineage.errors import UsageError
from spillway.topology.ensembles import Served
from spillway.topology.load import parse
from spillway.topology.sections import EnsembleSpec

MEMBERS = ["good", "fair", "bad"]
RIGHT = {"good": 0.95, "fair": 0.7, "bad": 0.2}


def learner(selection="exp3", **parameters):
    return Learner("kind", MEMBERS, {"name": selection, **parameters}, "zero_one")


def feedback(truth, members, key="all", **more):
    return Inputs({"truth": truth, "flags": {"kind": {"members": members}}, **more}, {}, "id", key)


def test_truths_are_observed_in_order_and_by_context():
    machine = Machine("learner", learner("exp4", eta=0.5), verify=True)
    asked = {"good": {"p": 1.0, "answer": 3}, "fair": {"p": 1.0, "answer": 4}, "bad": {"p": 0.5}}
    gone = {"gone": {"p": 1.0, "answer": 3}}
    batch = [feedback(3, asked), feedback(3, asked | gone), feedback(4, asked, key="ada")]
    machine.compute(batch)
    machine.update()
    policy = POLICIES["exp4"](eta=0.5)
    observed = {"good": Observed(1.0, 0.0), "fair": Observed(1.0, 1.0), "bad": Observed(0.5, 1.0)}
    twice = policy.observe(policy.observe(policy.initial(MEMBERS), MEMBERS, observed), MEMBERS, observed)
    assert machine.state["all"] == twice
    over_all = policy.observe(twice, MEMBERS, {**observed, "good": Observed(1.0, 1.0), "fair": Observed(1.0, 0.0)})
    assert machine.state[SHARED] == over_all
    machine.compute([feedback(3, asked, key="bob")])
    machine.update()
    assert machine.state["bob"] == policy.observe(over_all, MEMBERS, observed)
    assert machine.state["ada"]["fair"] > machine.state["ada"]["good"]
    assert learner().publish(twice) == twice


@pytest.mark.parametrize("selection", ["exp3", "exp4", "epsilon"])
def test_with_feedback_a_member_that_fails_is_left_and_found_again(selection):
    """The route and the learner together, and between them nothing but what travels in flags and rows."""
    model, draw = learner(selection), random.Random(5)
    states = {"all": model.share(), SHARED: model.share()}
    route = Ensemble(
        Rules(POLICIES[selection]()), lambda *_: Weights(model.publish(states["all"])), draw, learner="kind-weights"
    )
    right = dict(RIGHT)
    wrong = []
    for n in range(6_000):
        if n in (2_000, 4_000):
            right["good"] = 0.1 if n == 2_000 else RIGHT["good"]
        query = Query(Request(str(n), 0, 0.0, 1.0, 0.0, (), {}), 0.0)
        query.asked = route.select(query, MEMBERS)
        truth = n % 10
        query.answers = {
            m: truth if draw.random() < right[m] else (truth + 1 + MEMBERS.index(m)) % 10 for m in query.asked
        }
        joint = route.combine(query)
        wrong.append(joint.outputs["label"] != truth)
        batch = [feedback(truth, joint.flags["members"])]
        states = model.update(states, batch, model.compute(states, batch))
    error = [sum(wrong[start : start + 1_000]) / 1_000 for start in (1_000, 3_000, 5_000)]
    assert error[0] < 0.2
    assert error[1] < 0.55  # fair alone has .3, good .9 now
    assert error[2] < 0.25


def test_a_truth_without_members_or_with_a_loss_that_is_none_is_refused():
    model = learner()
    with pytest.raises(UsageError, match="belongs to no outcome that stage 'kind' combined"):
        model.compute({}, [Inputs({"truth": 3}, {}, "id", "all")])
    with pytest.raises(UsageError, match="probability"):
        model.compute({}, [feedback(3, {"good": {"p": 0.0, "answer": 3}})])


def observed(model, states, *feedbacks):
    for each in feedbacks:
        states = model.update(states, [each], model.compute(states, [each]))
    return states


def outcome(epoch, members, selection, **asked):
    """A truth of 3 on an outcome, which comes while this section stands in the table of sizes."""
    section = EnsembleSpec(selection=selection, members={name: {"model": "m:M"} for name in members})
    served = Served(section, "me", "", 0.0, epoch, "digest", "file")
    flags = {"members": {name: {"p": p, "answer": answer} for name, (p, answer) in asked.items()}}
    return Inputs({"truth": 3, "flags": {"kind": flags}}, {}, "id", "all", served)


EXP4 = {"name": "exp4", "eta": 0.5, "forgetting": 0.0}


def test_a_new_member_starts_at_the_mean_and_one_that_is_gone_is_dropped_and_ignored():
    model = Learner("kind", ["a", "b"], EXP4, "zero_one")
    states = {key: model.initialize(model.share()) for key in ("all", SHARED)}
    both = {"a": (1.0, 3), "b": (1.0, 4)}
    states = observed(model, states, *[outcome(1, ["a", "b"], EXP4, **both)] * 2)
    assert states["all"] == {"(epoch)": [1.0], "a": [0.0], "b": [-1.0]}
    # c comes: it starts at -.5 and is wrong, as b is
    states = observed(model, states, outcome(2, ["a", "b", "c"], EXP4, **both, c=(1.0, 4)))
    assert states["all"] == {"(epoch)": [2.0], "a": [0.0], "b": [-1.5], "c": [-1.0]}
    # b goes; of an older outcome what it says of b is ignored, and the rest counts, also where the table is read late
    states = observed(model, states, outcome(3, ["a", "c"], EXP4, a=(1.0, 4), c=(1.0, 3)))
    assert states["all"] == {"(epoch)": [3.0], "a": [0.0], "c": [-0.5]}
    states = observed(model, states, outcome(3, ["a", "c"], EXP4, a=(1.0, 4), b=(1.0, 4)))
    assert states["all"] == {"(epoch)": [3.0], "a": [0.0], "c": [0.0]}
    before = dict(states)
    assert observed(model, states, outcome(1, ["a", "b"], EXP4, b=(1.0, 3))) == before
    assert model.publish(states["all"]) == {"a": [0.0], "c": [0.0]}


def test_a_truth_is_observed_by_the_sections_selection_whatever_the_learner_was_started_with():
    exp3 = {"name": "exp3", "eta": 0.5, "forgetting": 0.0}
    truths = [
        outcome(1, ["a", "b"], EXP4, a=(1.0, 4), b=(1.0, 3)),
        outcome(2, ["a", "b"], exp3, b=(0.25, 4)),
        outcome(3, ["a", "b", "c"], EXP4, a=(1.0, 3), b=(1.0, 3), c=(1.0, 4)),
    ]
    ends = []
    for members, selection in ((["a", "b"], EXP4), (["a", "b", "c"], exp3)):
        model = Learner("kind", members, selection, "zero_one")
        ends.append(
            observed(
                model, {key: Learner("kind", ["a", "b"], EXP4, "zero_one").share() for key in ("all", SHARED)}, *truths
            )
        )
    assert ends[0] == ends[1]
    assert ends[0]["all"] == {"(epoch)": [3.0], "a": [0.0], "b": [-1.5], "c": [-1.25]}


@pytest.mark.parametrize(
    "selection", [{"name": "epsilon"}, {"name": "exp3", "forgetting": 5}, {"name": "exp3", "b": 1}]
)
def test_by_a_section_that_cannot_be_used_nothing_changes(selection, caplog):
    model = Learner("kind", ["a", "b"], EXP4, "zero_one")
    states = {key: model.initialize(model.share()) for key in ("all", SHARED)}
    states = observed(model, states, outcome(1, ["a", "b"], EXP4, b=(1.0, 4)))
    states = observed(model, states, outcome(2, ["a", "c"], selection, b=(1.0, 4)))
    assert states["all"] == {"(epoch)": [1.0], "a": [0.0], "b": [-1.0]}
    assert "it learns by the section before" in caplog.text


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in ("static", "uniform")])
@pytest.mark.parametrize("value", [-1, 5, 1e300, math.inf, math.nan, "x", None, [1], 10**400])
def test_parameters_that_would_spoil_weights_are_refused(name, value):
    for parameter in POLICIES[name].__dataclass_fields__.keys() - {"eta"}:
        with pytest.raises(UsageError, match=parameter):
            selection_of("kind", {"name": name, parameter: value})


def test_the_file_brings_the_learner():
    text = (
        "name: p\nslo: 1s\nstages:\n  - {name: kind, ensemble: {%s members: {a: {model: 'm:A'}, b: {model: 'm:B'}}}}\n"
    )
    pipeline = parse(text % "selection: {name: exp3, eta: .2}, loss: absolute,")
    (served,) = pipeline.learners
    (stage,) = served.spec.stages
    assert (served.spec.name, stage.publish, stage.state.kind) == ("p-kind-weights", True, "keyed")
    assert served.path.name == "pipeline.yaml#kind-weights"
    assert Learner(**stage.arguments).share() == {"a": [0.0, 0.0, 0.0], "b": [0.0, 0.0, 0.0]}
    for fixed in ("selection: static,", "selection: {name: uniform},", "learn: false,"):
        assert parse(text % fixed).learners == ()
