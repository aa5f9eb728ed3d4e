"""Members' scores that are stacked: what is learned, when it answers, and what is refused."""

import functools

import numpy as np
import pytest

from spillway.agents.core.query import Query
from spillway.agents.core.request import Request
from spillway.agents.core.routes.ensemble import Ensemble, Rules, Weights
from spillway.agents.learning.learner import Learner
from spillway.agents.learning.selection import Exp4, Observed, combine, zero_one
from spillway.agents.learning.stacking import Stacked
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.stateful import SHARED, Machine
from spillway.lineage.errors import UsageError
from spillway.lineage.flags import bounded

MEMBERS = ["a", "b", "c"]
CLASSES = 4


def answered(chance, truth, swaps):
    """Scores of each member, of which some answer another class in place of a certain one."""
    scores = {}
    for member, swap in swaps.items():
        said = swap.get(truth, truth) if chance.random() < 0.9 else int(chance.integers(CLASSES))
        scores[member] = 0.6 * np.eye(CLASSES)[said] + 0.4 * chance.dirichlet(np.ones(CLASSES))
    return scores


def observed(scores, truth):
    return {member: Observed(1.0, zero_one(truth, own), own, truth) for member, own in scores.items()}


def answer(policy, state, scores):
    averaged = functools.partial(policy.combine, state) if isinstance(policy, Stacked) else None
    return combine(scores, policy.weights(state, list(scores)), len(scores), averaged=averaged).answer


def played(policy, swaps, queries=600):
    chance, state, wrong = np.random.default_rng(1), policy.initial(MEMBERS), []
    for _ in range(queries):
        truth = int(chance.integers(CLASSES))
        scores = answered(chance, truth, swaps)
        wrong.append(zero_one(truth, answer(policy, state, scores)))
        state = policy.observe(state, list(swaps), observed(scores, truth))
    return wrong, state


CONFUSED = {"a": {0: 1, 1: 0}, "b": {1: 0, 0: 1}, "c": {2: 3, 3: 2}}


def test_what_members_confuse_is_learned_and_before_that_the_answer_is_exp4s():
    ours, state = played(Stacked(), CONFUSED)
    theirs, logs = played(Exp4(), CONFUSED)
    assert ours[:2] == theirs[:2]
    assert sum(ours[300:]) < 0.2 * sum(theirs[300:])
    assert {member: numbers[:1] for member, numbers in state.items()} == logs


def test_where_nothing_is_to_be_learned_exp4s_mean_answers():
    chance, policy = np.random.default_rng(2), Stacked()
    state, apart = policy.initial(MEMBERS), 0
    for _ in range(400):
        scores = {member: chance.dirichlet(np.ones(CLASSES)) for member in MEMBERS}
        apart += bool(np.any(answer(policy, state, scores) != answer(Exp4(), state, scores)))
        state = policy.observe(state, MEMBERS, observed(scores, int(chance.integers(CLASSES))))
    assert apart < 200
    _, ahead, count = state["a"][:3]
    assert abs(ahead) <= count


def test_a_step_goes_down_the_gradient_of_the_log_loss():
    policy, chance = Stacked(eta=0.5, forgetting=0.0), np.random.default_rng(3)
    state = functools.reduce(
        lambda before, truth: policy.observe(before, MEMBERS, observed(answered(chance, truth, CONFUSED), truth)),
        [0, 1, 2, 3, 0],
        policy.initial(MEMBERS),
    )
    scores, truth = answered(chance, 1, CONFUSED), 1

    def loss(change, at):
        sure = {m: [n[0], 9.0, 9.0, *n[3:]] for m, n in state.items()}
        sure["b"][4 + at] += change
        return -np.log(answer(policy, sure, scores)[truth])

    after = policy.observe(state, MEMBERS, observed(scores, truth))
    steps = np.subtract(after["b"][4:], state["b"][4:])
    gradient = np.array([(loss(1e-6, at) - loss(-1e-6, at)) / 2e-6 for at in range(CLASSES**2)])
    assert after["b"][3] == pytest.approx(state["b"][3] + (gradient**2).sum(), rel=1e-5)
    assert steps == pytest.approx(-0.5 * gradient / np.sqrt(after["b"][3]), abs=1e-6)


def test_a_new_member_and_another_number_of_classes_begin_with_nothing_learned():
    policy, (_, state) = Stacked(), played(Stacked(), CONFUSED)
    chance = np.random.default_rng(4)
    scores = answered(chance, 2, {"a": {}, "new": {}})
    answer(policy, state, scores)
    after = policy.observe(state, ["a", "new"], observed(scores, 2))
    assert set(after) == {"a", "new"}
    assert after["new"][1:3] == after["a"][1:3]
    assert 0 < np.abs(after["new"][4:]).max() <= policy.eta
    fewer = {member: np.array([0.7, 0.3]) for member in MEMBERS}
    answer(policy, state, fewer)
    assert all(len(numbers) == 4 + 2 * 2 for numbers in policy.observe(state, MEMBERS, observed(fewer, 0)).values())
    assert policy.observe(state, MEMBERS, observed(fewer, "cat"))["a"][1:] == state["a"][1:]  # no class: no step


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ([[0.5, 1.5], [0.5, 0.5]], "takes probabilities of classes"),
        ([[float("nan"), 0.5], [0.5, 0.5]], "takes probabilities of classes"),
        ([[0.01] * 100] * 2, "at most 32 classes of 2 members, not 100; take 'exp4'"),
        ([[0.5, 0.5], [0.2, 0.2, 0.6]], "different shapes"),
    ],
)
def test_what_is_no_probability_or_too_much_is_refused(scores, text):
    policy, told = Stacked(), dict(zip("ab", map(np.array, scores), strict=True))
    with pytest.raises(UsageError, match=text):
        answer(policy, policy.initial(["a", "b"]), told)
    with pytest.raises(UsageError, match=text):
        policy.observe(policy.initial(["a", "b"]), ["a", "b"], observed(told, 0))


def stage(model, machine):
    def weights(*_):
        return Weights(model.publish(machine.state["all"]) if "all" in machine.state else {})

    return Ensemble(Rules(Stacked(), members=tuple(MEMBERS)), weights, None, learner="kind-weights")


def test_truths_come_by_the_flags_alone_and_a_replay_comes_to_the_same_bits():
    model, chance = Learner("kind", MEMBERS, {"name": "stacked"}, "zero_one"), np.random.default_rng(5)
    machine, wrong, truths = Machine("learner", model, verify=True), [], []
    route = stage(model, machine)
    for n in range(400):
        truth = int(chance.integers(CLASSES))
        query = Query(Request(str(n), 0, 0.0, 1.0, 0.0, (), {}), 0.0)
        query.asked = route.select(query, MEMBERS)
        query.answers = answered(chance, truth, CONFUSED)
        joint = route.combine(query)
        wrong.append(zero_one(truth, joint.outputs["label"]))
        truths.append(Inputs({"truth": truth, "flags": {"kind": joint.flags}}, {}, str(n), "all"))
        machine.compute(truths[-1:])
        machine.update()
    assert sum(wrong[-40:]) < sum(wrong[:40]) / 2
    again = Machine("again", Learner("kind", MEMBERS, {"name": "stacked"}, "zero_one"))
    again.compute(truths)
    again.update()
    assert again.state == machine.state


def test_scores_that_someone_made_up_are_refused():
    model = Learner("kind", MEMBERS, {"name": "stacked"}, "zero_one")
    states = {key: model.share() for key in ("all", SHARED)}
    for scores in (None, ["x", 1], [True, 0.5], [0.5, 7.0], [float("inf"), 0.0]):
        told = {"members": {"a": {"p": 1.0, "answer": 0, "scores": scores}}}
        with pytest.raises(UsageError, match=r"scores are a list of numbers|probabilities"):
            model.compute(states, [Inputs({"truth": 0, "flags": {"kind": told}}, {}, "id", "all")])


def test_the_most_scores_that_an_outcome_tells_fit_into_its_flags():
    names = [f"member-{n}" for n in range(32)]
    route = Ensemble(Rules(Stacked(), members=tuple(names)), lambda *_: Weights({}), None, learner="kind-weights")
    query = Query(Request("q", 0, 0.0, 1.0, 0.0, (), {}), 0.0)
    query.asked = route.select(query, names)
    query.answers = {name: np.full(8, 0.1234567) for name in names}
    flags = {"kind": route.combine(query).flags}
    assert flags["kind"]["members"]["member-0"]["scores"] == [0.1235] * 8
    assert bounded(flags, "kind") is flags
