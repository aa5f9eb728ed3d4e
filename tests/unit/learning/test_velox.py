"""Velox: that updates equal eq. 2.2, what users begin with and keep, and what topK chooses."""

import math

import numpy as np
import pytest

from benchmarks.velox.latency import dual
from examples.velox.ratings import NOISE, World
from spillway.agents.learning.velox import observed
from spillway.agents.learning.velox.als import als
from spillway.agents.learning.velox.model import VeloxModel
from spillway.agents.learning.velox.served import Served
from spillway.agents.learning.velox.weights import ERRORS, learn, naive
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.stateful import SHARED, Machine
from spillway.agents.models.warm_up import rehearse
from spillway.lineage.errors import ModelError, UsageError

D = 4


class Table(VeloxModel):
    dimension, regularization = D, 0.5

    def __init__(self, items=40, seed=3):
        self.items = [f"i{number}" for number in range(items)]
        self.table = np.random.default_rng(seed).normal(size=(items, D))


class Computed(VeloxModel):
    dimension, theta = D, "powers"

    def __init__(self, items=()):
        self.items = items
        self.made = []

    def features(self, item):
        self.made.append(item)
        return np.array([1.0, item, item**2, item**3]) if item < 100 else np.array([np.inf])


def told(key, item, value, **outcome):
    return Inputs({"truth": {"item": item, "value": value}, **outcome}, {}, "id", key)


def of(told, generation=0):
    return told["generations"][str(generation)]


def row(model, state, version=(1, 1), **inputs):
    published = None if state is None else model.publish(state)
    query = {"user": published, "user.version": None if state is None else list(version), **inputs}
    return Inputs(query, {}, f"request-{inputs.pop('request', 0)}", "ada")


def taken(machine, *queries):
    outputs = machine.compute(list(queries))
    machine.update()
    return outputs


def users_of(machine):
    return {key: state for key, state in machine.state.items() if key != SHARED}


def learned(model, observations):
    machine = Machine("here", model, verify=True)
    for item, value in observations:
        taken(machine, told("ada", item, value))
    return machine.state


@pytest.mark.parametrize(("dimension", "regularization"), [(3, 1e-3), (16, 0.1), (48, 1.0)])
def test_ten_thousand_updates_equal_the_batch_solution(dimension, regularization):
    rng = np.random.default_rng(dimension)
    features = rng.normal(size=(10_000, dimension)) * rng.uniform(0.05, 3, dimension)
    prior = rng.normal(size=dimension)
    observed = features @ rng.normal(size=dimension) + rng.normal(size=10_000)
    weights, inverse = prior.copy(), np.eye(dimension) / regularization
    for count, (each, value) in enumerate(zip(features, observed, strict=True), 1):
        learn(weights, inverse, each, value - weights @ each)
        if count in {1, 7, 300, 10_000}:
            so_far = features[:count], observed[:count], regularization, prior
            assert np.abs(weights - naive(*so_far)).max() < 1e-8
            if count <= 300:
                assert np.abs(weights - dual(*so_far)).max() < 1e-8
    assert (inverse == inverse.T).all()


def test_an_error_function_is_a_weight_by_the_residual():
    rng = np.random.default_rng(5)
    features, truth = rng.normal(size=(400, D)), rng.normal(size=D)
    observed = features @ truth + np.where(rng.random(400) < 0.1, 50.0, 0.0)
    far = {}
    for name, weight in ERRORS.items():
        weights, inverse = np.zeros(D), np.eye(D)
        for each, value in zip(features, observed, strict=True):
            residual = value - weights @ each
            learn(weights, inverse, each, residual, weight(residual))
        far[name] = np.abs(weights - truth).max()
    assert far["huber"] < far["squared"] / 4


def test_als_finds_features_that_explain_ratings():
    world = World.made(120, 60, rank=3)
    users, items, ratings = world.ratings(30, 1)
    weights, features = als(users, items, ratings, (120, 61), rank=4, regularization=1.0)
    assert (features[:, 0] == 1).all()
    assert (features[60, 1:] == 0).all()
    assert np.mean(((weights @ features.T)[users, items] - ratings) ** 2) < 1.1 * NOISE**2 < ratings.var() / 2


def test_users_begin_with_the_mean_of_all_weights_and_it_stays_their_prior():
    machine = Machine("here", Served(Table, {}), verify=True)
    rng = np.random.default_rng(1)
    given = {f"u{number}": [(f"i{rng.integers(40)}", float(rng.normal())) for _ in range(9)] for number in range(5)}
    priors = {}
    for turn in range(9):
        batch = [told(user, *each[turn]) for user, each in given.items()]
        taken(machine, *batch[:2])  # both new at once
        for query in batch[2:]:
            known = [of(state)["w"] for state in users_of(machine).values()]
            priors.setdefault(query.key, np.mean(known, axis=0))
            taken(machine, query)
    table = Table()
    for user, each in given.items():
        state = of(machine.state[user])
        assert np.allclose(state["prior"], priors.get(user, 0))
        rows = table.table[[table.items.index(item) for item, _ in each]]
        assert np.allclose(state["w"], naive(rows, np.array([value for _, value in each]), 0.5, state["prior"]))
    weights = [of(state)["w"] for state in users_of(machine).values()]
    ((_, shared),) = machine.published([SHARED])
    assert np.allclose(of(shared)["w"], np.mean(weights, axis=0))
    assert (shared["n"], of(shared)["error"]) == (0, None)
    assert "inverse" not in of(shared)


def test_the_running_error_is_of_predictions_before_they_were_learned_and_the_pool_of_what_was_drawn():
    machine = Machine("here", Served(Table, {}))
    losses, pool = [], []
    for turn in range(12):
        outcome = {"outputs": {"items": ["i1", "i2"]}, "flags": {"rank": {"random": [[1, 0.01]]}, "x": {}}}
        item = "i1" if turn % 3 else "i2"
        (answer,) = taken(machine, told("ada", item, float(turn), **outcome))
        losses.append(answer["loss"])
        assert answer["loss"] == pytest.approx((turn - answer["predicted"]) ** 2)
        if item == "i2":
            pool.append(answer["loss"])
    ((_, row),) = machine.published(["ada"])
    assert row["n"] == 12
    assert of(row)["error"] == pytest.approx(np.mean(losses))
    assert of(row)["pool"] == pytest.approx(np.mean(pool))


def test_the_learner_keeps_the_contract_of_stateful_models():
    rng = np.random.default_rng(2)
    batches = [
        [told(f"u{rng.integers(3)}", f"i{rng.integers(40)}", float(rng.normal())) for _ in range(6)] for _ in range(4)
    ]
    assert rehearse("velox", lambda: Served(Table, {}), batches).repeats


@pytest.mark.parametrize(
    ("truth", "words"),
    [
        ({"item": "i1"}, "true answer of an observation must be"),
        ({"item": "i1", "value": True}, "true answer of an observation must be"),
        ({"item": "i1", "value": float("nan")}, "true answer of an observation must be"),
        (3.0, "true answer of an observation must be"),
        ({"item": "i99", "value": 1.0}, "'i99' is not in the table of Table"),
    ],
)
def test_what_is_no_observation_is_refused_before_the_state_changes(truth, words):
    machine = Machine("here", Served(Table, {}))
    with pytest.raises(ModelError, match=words):
        machine.compute([Inputs({"truth": truth}, {}, "id", "ada")])
    assert not machine.pending


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e300])
def test_a_loss_that_would_ruin_the_running_error_is_refused_before_the_state_changes(loss):
    machine = Machine("here", Served(type("Odd", (Table,), {"loss": lambda *_: loss}), {}))
    with pytest.raises(ModelError, match=r"Odd.loss of 'i1' returned .*: return a number of at most"):
        machine.compute([told("ada", "i1", 1.0)])
    assert not machine.pending


def test_weights_of_other_features_are_refused_by_both():
    state = learned(Served(Table, {}), [("i1", 1.0)])
    other = Served(Table, {"seed": 4})
    with pytest.raises(ModelError, match="learned over the features"):
        Machine("here", other, state).compute([told("ada", "i1", 1.0)])
    with pytest.raises(ModelError, match="learned over the features"):
        other.predict([row(Served(Table, {}), state["ada"])])


def expected(policy, alpha, table, state, places):
    scores = table[places] @ of(state)["w"]
    if policy != "linucb":
        return scores
    return scores + alpha * np.sqrt(np.einsum("nd,de,ne->n", table[places], of(state)["inverse"], table[places]))


@pytest.mark.parametrize("policy", ["greedy", "linucb"])
@pytest.mark.parametrize("cache", [0, "1MiB"])
def test_topk_orders_candidates_or_the_catalogue(policy, cache):
    model = Served(Table, {"topk": {"policy": policy, "alpha": 2.0, "cache": cache}})
    rng = np.random.default_rng(4)
    table = Table().table
    for version in range(1, 6):  # a new version is not answered by what was remembered of the one before
        state = learned(model, [(f"i{rng.integers(40)}", float(rng.normal())) for _ in range(version)])["ada"]
        for candidates in (None, rng.choice(40, 12, replace=False), rng.choice(40, 30, replace=False)):
            places = np.arange(40) if candidates is None else candidates
            asked = {} if candidates is None else {"items": [f"i{place}" for place in candidates]}
            (answer,) = model.predict([row(model, state, (1, version), k=6, **asked)])
            order = places[np.argsort(-expected(policy, 2.0, table, state, places))[:6]]
            assert answer["items"] == [f"i{place}" for place in order]
            assert answer["scores"] == pytest.approx((table[order] @ of(state)["w"]).tolist())
            assert "random" not in answer.flags
    (one,) = model.predict([row(model, state, item="i7")])
    assert one == {"item": "i7", "score": pytest.approx(float(table[7] @ of(state)["w"]))}


def test_scores_are_remembered_by_theta_user_and_version_within_so_many_bytes():
    model = Served(Table, {"topk": {"cache": 1100}})
    learner = learned(model, [("i1", 1.0)])
    theta = model.thetas.own.theta
    for number in (1, 2, 1, 3):  # a column takes 320 bytes, and 200 for its key
        model.predict([row(model, learner["ada"], (4, number), k=3)])
        assert model._recent.bytes <= 1100
    assert model._recent.keys() == [(theta, "ada", 4, number, 1, "score") for number in (1, 3)]


def test_thompson_draws_as_wide_as_the_user_is_unknown_and_the_same_for_a_request():
    model = Served(Table, {"topk": {"policy": "thompson", "alpha": 1.0, "k": 1}})
    few, many = (learned(model, [(f"i{n % 40}", 1.0) for n in range(count)])["ada"] for count in (1, 400))
    firsts = [
        {model.predict([row(model, state, request=number)])[0]["items"][0] for number in range(60)}
        for state in (few, many)
    ]
    assert len(firsts[0]) > 2 * len(firsts[1])
    assert model.predict([row(model, few, request=3)]) == model.predict([row(model, few, request=3)])


def test_thompson_draws_where_single_precision_has_left_nothing():
    class Wide(Table):
        dimension, regularization = 120, 1e-3

        def __init__(self):
            rng = np.random.default_rng(1)
            self.items, self.table = range(300), rng.normal(size=(300, 4)) @ rng.normal(size=(4, 120)) * 10

    model = Served(Wide, {"topk": {"policy": "thompson"}})
    state = learned(model, [(item % 300, 1.0) for item in range(900)])["ada"]
    assert np.linalg.eigvalsh(of(state)["inverse"].astype(np.float32)).min() < 0
    assert len(model.predict([row(model, state)])[0]["items"]) == 10


@pytest.mark.parametrize("asked", [{"k": 0}, {"k": True}, {"k": "3"}, {"items": "i3"}])
def test_what_is_no_question_is_refused(asked):
    model = Served(Table, {})
    with pytest.raises(ModelError, match="'items' is a list of items and 'k' a whole number above 0"):
        model.predict([row(model, None, **asked)])


@pytest.mark.parametrize("topk", [{"policy": "epsilon"}, {"policy": "greedy", "random": 0.3}])
def test_a_share_of_slots_is_drawn_at_random_with_its_probability(topk):
    model = Served(Table, {"topk": topk})
    share = topk.get("random", 0.1)
    state = learned(model, [("i1", 1.0)])["ada"]
    seen, drawn = 0, []
    for number in range(400):
        (answer,) = model.predict([row(model, state, k=5, request=number)])
        assert len(set(answer["items"])) == 5
        for slot, probability in answer.flags.get("random", []):
            assert probability == pytest.approx(share / (40 - slot))
            drawn.append(answer["items"][slot])
        seen += 5
    assert len(drawn) / seen == pytest.approx(share, abs=0.05)
    assert len(set(drawn)) > 30


def test_computed_features_are_made_once_and_mix_with_the_catalogue():
    made = Computed([1, 2, 3])
    model = Served(lambda: made, {"topk": {"policy": "linucb"}})
    state = learned(model, [(2, 4.0), (5, 25.0), (5, 25.0)])["ada"]
    (answer,) = model.predict([row(model, state, items=[5, 1, 7, 3], k=4)])
    assert sorted(answer["items"]) == [1, 3, 5, 7]
    (again,) = model.predict([row(model, state, items=np.array([7, 3, 5, 1]), k=4)])
    assert again == answer
    assert made.made == [1, 2, 3, 5, 7]
    with pytest.raises(ModelError, match=r"Computed.features\(100\) must be 4 finite numbers"):
        model.predict([row(model, state, items=[100])])


def test_of_nobody_all_is_unknown():
    model = Served(Table, {"topk": {"policy": "linucb"}})
    ((_, shared),) = Machine("here", model).published([SHARED])
    for user in (None, shared):
        (answer,) = model.predict([Inputs({"user": user, "user.version": [1, 0], "k": 3}, {}, "id", "ada")])
        assert answer["scores"] == [0, 0, 0]
        assert answer["items"] == [f"i{place}" for place in np.argsort(-np.square(Table().table).sum(1))[:3]]
    with pytest.raises(ModelError, match=r"give the stage 'tables: \{user: {of: LEARNER}}'"):
        model.predict([Inputs({}, {}, "id", "ada")])


@pytest.mark.parametrize(
    ("topk", "words"),
    [
        ({"policy": "gredy"}, "did you mean 'greedy'"),
        ({"polcy": "greedy"}, "did you mean 'policy'"),
        ({"random": 2}, "must be from 0 to 1"),
        ("linucb", "topk must be a mapping"),
    ],
)
def test_a_wrong_topk_is_refused(topk, words):
    with pytest.raises(UsageError, match=words):
        Served(Table, {"topk": topk})


def test_models_whose_parts_do_not_fit_are_refused():
    class Silent(Table):
        publish_inverse = False

    class Odd(Table):
        error = "square"

    def twice(items):
        made = Table()
        made.items[:2] = items
        return made

    def endless():
        made = Table()
        made.table[3, 1] = np.inf
        return made

    with pytest.raises(ModelError, match="did you mean 'squared'"):
        Served(Odd, {})
    for make in (lambda: twice(["i5", "i6"]), endless):
        with pytest.raises(
            ModelError, match="in the catalogue twice, or a feature in the table is not a finite number"
        ):
            Served(make, {})
    with pytest.raises(ModelError, match="dict is not a VeloxModel"):
        Served(dict, {})
    model = Served(Silent, {"topk": {"policy": "linucb"}})
    with pytest.raises(ModelError, match="set publish_inverse = True"):
        model.predict([row(model, learned(model, [("i1", 1.0)])["ada"])])


@pytest.mark.parametrize("most", [0, 1, 3])
def test_no_more_observations_are_kept_than_the_class_says(most):
    kept = observed.none()
    for number in range(5):
        kept = observed.added(kept, f"i{number}", float(number), most)
    assert kept["n"] == 5
    assert kept["values"].tolist() == [float(number) for number in range(5 - most, 5)]
    assert observed.items_of(kept) == [f"i{number}" for number in range(5 - most, 5)]
