"""Velox over time: what is stale, what a new generation is made of, and that two of them learn every observation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.learning.velox import observed, thetas
from spillway.agents.learning.velox.learning import HELD
from spillway.agents.learning.velox.model import Features, VeloxModel
from spillway.agents.learning.velox.prior import Prior, estimated, plain
from spillway.agents.learning.velox.retraining import _late, retrain
from spillway.agents.learning.velox.rises import added, empty, risen
from spillway.agents.learning.velox.served import Served
from spillway.agents.learning.velox.staleness import NONE, Stale, tallied, together
from spillway.agents.learning.velox.thetas import read_theta, write_theta
from spillway.agents.learning.velox.weights import fitted, naive
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.stateful import SHARED, Machine, fingerprints
from spillway.agents.models.warm_up import rehearse
from spillway.checkpoint.state import flatten, unflatten
from spillway.lineage.errors import ModelError, UsageError
from tests.unit.learning.test_velox import D, Table, taken, told, users_of

OWN = Served(Table, {}).thetas.own.theta
OFF = np.array([[2.0, 0.5, 0.0, 0.0], [0.0, 1.0, 0.0, 0.2], [0.1, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.4]])
PRIOR = Prior(np.full(D, 0.25), OFF @ OFF.T, np.linalg.inv(OFF @ OFF.T))


def follows(key, **held):
    return Inputs({"follow": True}, {}, "id", key, {name[1:]: theta for name, theta in held.items()})


def switches(key, new):
    """From the class's own features to new ones."""
    return follows(key, g0=OWN, g1=new)


def tell(machine, observations):
    for each in observations:
        taken(machine, told(*each))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "thetas"


@pytest.fixture
def machine(folder):
    return Machine("here", served(folder))


def served(folder):
    return Served(Table, {"folder": str(folder)})


def theta(folder, seed=8):
    return write_theta(folder, {"table": Table(seed=seed).table}, PRIOR)


def observations(count, users=3, seed=0):
    rng = np.random.default_rng(seed)
    return [(f"u{rng.integers(users)}", f"i{rng.integers(30)}", float(rng.normal())) for _ in range(count)]


# Staleness


def why(stale, losses, shards=1, every=50):
    """What the model manager is told of losses that come to shards in turn: at which of them, and why."""
    states = [{"errors": NONE, "errors_since": empty()} for _ in range(shards)]
    idle = {"pool": NONE, "pool_since": empty(), "users": 1, "stale": 0}
    found = {}
    for number, loss in enumerate(losses, 1):
        state = states[number % shards]
        state["errors"] = tallied(state["errors"], loss, stale.window)
        if state["errors"][0] > stale.window:
            state["errors_since"] = added(state["errors_since"], loss, state["errors"][3], stale.window)
        if number % every == 0 and (reason := stale.why(together([idle | each for each in states]))):
            found[number] = reason
    return found


def test_an_error_that_stays_is_not_stale_and_one_that_rises_or_is_too_high_is():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=8000) ** 2
    assert not why(Stale(), noise)
    for shards in (1, 3):
        risen = why(Stale(window=100), [*noise[:4000], *(noise[4000:] * 1.6)], shards)
        assert min(risen) > 4000
        assert risen.keys() >= set(
            range(5500, 8001, 50)
        )  # what is risen for good stays so: the reference does not follow
        assert "times what it was until" in risen[8000]
        assert not why(Stale(window=100, rise=3.0), [*noise[:4000], *(noise[4000:] * 1.6)], shards)
    assert not why(Stale(), noise / np.linspace(1, 10, 8000))  # as where users are being learned
    learned_first = [*(100 * noise[:1000]), *noise[1000:4000], *(1.6 * noise[4000:])]
    assert 4000 < min(why(Stale(), learned_first)) < 6000
    high = why(Stale(error=0.5, rise=None), noise)
    assert min(high) == 400
    assert "more than 0.5" in high[1000]


def lasting(kind, rng, count):
    """Squared losses of noise whose level stays, however unevenly it comes."""
    if kind == "users":
        return np.square(np.exp(0.7 * rng.normal(size=500))[rng.integers(500, size=count)] * rng.normal(size=count))
    if kind == "bursts":
        levels = np.zeros(count)
        for at in range(1, count):
            levels[at] = 0.995 * levels[at - 1] + 0.06 * rng.normal()
        return np.exp(2 * levels) * rng.normal(size=count) ** 2
    return rng.standard_t(5, count) ** 2


@pytest.mark.parametrize("kind", ["heavy tails", "users", "bursts"])
def test_losses_that_come_unevenly_are_no_rise_and_a_ramp_is_found_before_it_has_doubled(kind):
    losses = lasting(kind, np.random.default_rng(7), 20_000)
    assert not why(Stale(), losses, every=200)
    if kind != "bursts":
        losses[5000:] *= 1 + np.arange(15_000) / 10_000
        assert 5000 < min(why(Stale(), losses[:15_000], every=200)) < 12_000


def test_a_series_keeps_few_blocks_whatever_it_has_seen_and_loses_none_of_it():
    rng, series = np.random.default_rng(3), empty()
    for loss in (losses := rng.exponential(size=6005)):
        series = added(series, loss, 1.0, 10)
    assert len(series["blocks"]) < 40
    assert series["blocks"][:, 0].sum() == 6005
    assert series["blocks"][-1, 0] == 5
    assert series["blocks"][:, 1].sum() == pytest.approx((losses / (losses + 3)).sum())
    assert series["blocks"][:, 3].sum() == pytest.approx(losses.sum())
    assert risen([{name: rows.tolist() for name, rows in series.items()}], 10) is None
    odd = empty()
    for loss in [0.0, -1.0, 0.0, 1e250, -1e250] * 40:  # what a class may say, of which the first ones were nothing
        odd = added(odd, loss, 0.0, 10)
    assert np.isfinite(odd["blocks"][:, :3]).all()
    assert risen([odd], 10) is None


def test_the_means_of_shards_are_weighted_and_each_of_three_errors_counts():
    quiet = {"errors_since": empty(), "pool_since": empty()}
    few = {"errors": [10, 90.0, 9.0, 9.0], "pool": list(NONE), "users": 2, "stale": 2} | quiet
    many = {"errors": [990, 990.0, 1.0, 1.0], "pool": [600, 1.0, 5.0, 1.0], "users": 8, "stale": 1} | quiet
    both = together([few, many])
    assert both["errors"] == pytest.approx([1000, 1080, 1.08, 1.08])
    assert (both["users"], both["stale"]) == (10, 3)
    assert "random items" in Stale(error=2).why(both)
    assert "30% of the users" in Stale(error=9, users=0.2).why(both)
    assert not Stale(error=9, users=0.3).why(both)
    assert not Stale(error=2).why(together([few]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"stale": {"eror": 1}}, "did you mean 'error'"),
        ({"stale": {"window": 3}}, "'window' 10 or more"),
        ({"stale": {"gain": 1}}, "must be at least 0 and below 1"),
        ({"stale": {"level": 1}}, "'level' between 0 and 1"),
        ({"stale": {"users": 0.1}}, "'users' is the share of users over 'error': set that, too"),
        ({"stale": []}, "stale must be a mapping"),
        ({"folder": 3}, "folder must be the folder"),
        ({"stale": {}, "folder": None}, "needs a 'folder'"),
    ],
)
def test_wrong_settings_are_refused(folder, arguments, words):
    with pytest.raises(UsageError, match=words):
        Served(Table, {"folder": str(folder), **arguments})


# What is kept


def test_the_last_observations_are_kept_by_name_and_every_fifth_ever_is_held_out():
    kept = observed.none()
    for number in range(23):
        kept = observed.added(kept, f'i"\n{number}' if number % 2 else number, float(number), 10)
    assert observed.items_of(kept) == [f'i"\n{n}' if n % 2 else n for n in range(13, 23)]
    assert kept["values"].tolist() == list(map(float, range(13, 23)))
    assert kept["values"][observed.held_out(kept)].tolist() == [14.0, 19.0]


def test_a_file_of_features_is_called_by_what_is_in_it(folder):
    parameters = {"table": np.arange(12.0).reshape(3, 4), "bias": np.float32(2)}
    name = write_theta(folder, parameters, PRIOR)
    assert write_theta(folder, dict(reversed(parameters.items())), PRIOR) == name
    assert write_theta(folder, parameters, plain(4, 1.0)) != name
    read, prior = read_theta(folder, name)
    assert (read["table"] == parameters["table"]).all()
    assert read.keys() == parameters.keys()
    assert all((kept == given).all() for kept, given in zip(prior, PRIOR, strict=True))
    (folder / f"{name}.npz").rename(folder / "other.npz")
    with pytest.raises(ModelError, match="is damaged"):
        read_theta(folder, "other")
    with pytest.raises(ModelError, match="all hosts must see the same folder"):
        read_theta(folder, name)
    for wrong in ({}, {"prior": np.ones(2)}, {"table": np.array([None])}):
        with pytest.raises(ModelError, match="retrain must return arrays by name"):
            write_theta(folder, wrong, PRIOR)


# Two generations


def test_both_generations_learn_all_so_a_rollback_loses_nothing(folder):
    machine, alone = Machine("here", served(folder), verify=True), Machine("here", served(folder))
    before, after = observations(40), observations(40, users=4, seed=1)
    new = theta(folder)
    for each in (machine, alone):
        tell(each, before)
    taken(machine, switches("~0", new))
    for user in ("u0", "u1", "u2"):
        assert taken(machine, switches(user, new)) == [{"generations": {"0": OWN, "1": new}}]
    for each in (machine, alone):
        tell(each, after)
    tables = {"0": Table().table, "1": Table(seed=8).table}
    for user in ("u0", "u1", "u2", "u3"):
        state = machine.state[user]
        assert state["generations"].keys() == {"0", "1"}
        for name in ("w", "inverse", "prior", "errors"):  # as if there had never been another
            assert (state["generations"]["0"][name] == alone.state[user]["generations"]["0"][name]).all()
        seen = [each for each in before + after if each[0] == user]
        for number, each in state["generations"].items():
            rows = tables[number][[int(item[1:]) for _, item, _ in seen]]
            regularization = PRIOR.precision if number == "1" else 0.5
            expected = naive(rows, np.array([value for *_, value in seen]), regularization, each["prior"])
            assert np.abs(each["w"] - expected).max() < 1e-8
        assert state["generations"]["1"]["prior"].tolist() == [0.25] * 4  # the trainer's, of who is new as well
    shared = machine.state[SHARED]["generations"]
    for number, each in shared.items():
        weights = [machine.state[f"u{user}"]["generations"][number]["w"] for user in range(4)]
        assert each["users"] == 4
        assert np.allclose(each["sum"], np.sum(weights, axis=0))
    assert shared["0"]["errors"][0][0] == 80
    assert shared["1"]["errors"][0][0] == 40


def test_a_user_that_nobody_told_is_in_step_when_it_is_touched_and_a_new_one_at_once(folder, machine):
    tell(machine, observations(20, users=2))
    taken(machine, switches("u0", theta(folder)))
    assert machine.state["u1"]["generations"].keys() == {"0"}
    assert taken(machine, told("u1", "i3", 1.0))[0]["predicted"] is not None
    taken(machine, told("new", "i3", 1.0))
    assert all(machine.state[user]["generations"].keys() == {"0", "1"} for user in ("u0", "u1", "new"))


def test_commands_may_come_again_and_out_of_order_and_a_third_generation_drops_the_first(folder, machine):
    one, two = theta(folder), theta(folder, 9)
    tell(machine, observations(20, users=1))
    taken(machine, switches("u0", one))
    taken(machine, follows("u0", g1=one, g4=two))
    state = machine.state["u0"]
    assert state["generations"].keys() == {"1", "4"}
    taken(machine, switches("u0", one), follows("u0", g1=one, g4=two))
    again = machine.state["u0"]["generations"]
    assert again.keys() == {"1", "4"}
    assert all((again[number]["w"] == state["generations"][number]["w"]).all() for number in again)
    assert machine.state[SHARED]["generations"]["4"]["users"] == 1


def test_a_command_without_its_file_is_refused_and_changes_nothing(folder, machine):
    with pytest.raises(ModelError, match="all hosts must see the same folder"):
        machine.compute([follows("u0", g0="", g1="missing")])
    assert not machine.pending
    taken(machine, Inputs({"follow": True}, {}, "id", "u0"))  # while the log is not read
    assert machine.state[SHARED]["newest"] == 0


@given(st.text() | st.sampled_from(["../{}", "/{}", "./{}", "{}/../{}", "{}\n", "{}.npz", "\0{}", "a" * 5000]))
def test_a_theta_leads_to_no_file_but_one_of_the_folder_called_by_its_hash(tmp_path_factory, name):
    outside = tmp_path_factory.mktemp("outside")
    made = theta(outside)
    folder = outside / "thetas"
    folder.mkdir()
    with pytest.raises(ModelError):
        served(folder).thetas.get(name.replace("{}", made))
    with pytest.raises(ModelError, match="no file is called so"):
        read_theta(folder, f"../{made}")


def test_a_report_reads_and_changes_nothing(folder, machine):
    taken(machine, switches("~0", theta(folder)))
    tell(machine, observations(30))
    version = machine.version
    (report,) = machine.compute([Inputs({"report": True}, {}, "id", "nobody")])
    assert not machine.update()
    assert machine.version == version
    assert "nobody" not in machine.state
    assert report.keys() == {"0", "1"}
    assert report["1"]["errors"][0] == 30
    assert report["1"]["users"] == 3


def test_the_learner_with_two_generations_keeps_the_contract_of_stateful_models(folder):
    new = theta(folder)
    batches = [[told(*each) for each in observations(6, seed=seed)] for seed in range(3)]
    batches.insert(2, [switches("u0", new), told("u1", "i3", 1.0)])
    assert rehearse("velox", lambda: served(folder), batches).repeats


# Ranking


def ranked(model, machine, current, **inputs):
    ((_, row),) = machine.published(["u0"])
    query = {"user": row, "user.version": [1, machine.version], "user.generation": current, **inputs}
    return model.predict([Inputs(query, {}, "request", "u0")])[0]


def test_a_query_is_ranked_by_the_current_generation_or_by_what_the_row_and_the_worker_have(folder, machine):
    model, new = served(folder), theta(folder)
    tell(machine, observations(20, users=1))
    assert ranked(model, machine, 1).flags["generation"] == 0  # its row has no other yet
    taken(machine, switches("u0", new))
    first = ranked(model, machine, 1)
    model.thetas.wait()
    assert (first.flags["generation"], first.flags["theta"]) == (0, OWN)  # while the features are loaded
    for current, seed in ((1, 8), (0, 3), (None, 3)):
        answer = ranked(model, machine, current, k=40)
        weights = machine.state["u0"]["generations"]["1" if seed == 8 else "0"]["w"]
        scores = Table(seed=seed).table @ weights
        assert answer["items"] == [f"i{place}" for place in np.argsort(-scores)]
        assert answer.flags["generation"] == (seed == 8)
    fresh = served(folder)
    state = machine.state["u0"]
    machine.state["u0"] = {**state, "generations": {"1": state["generations"]["1"]}}
    assert ranked(fresh, machine, 1).flags["generation"] == 1  # nothing is at hand: it waits


def test_while_a_row_has_two_generations_the_scores_of_both_are_remembered(folder, machine):
    model, new = served(folder), theta(folder)
    taken(machine, told("u0", "i1", 1.0), switches("u0", new))
    ranked(model, machine, 0)
    model.thetas.wait()
    ranked(model, machine, 0)
    model.thetas.get(new).table[:] = np.nan  # so whoever computes anew sees it
    assert np.isfinite(ranked(model, machine, 1)["scores"]).all()


def test_computed_features_that_were_asked_for_are_made_of_a_new_theta_before_it_is_used(folder):
    made = []

    class Powers(VeloxModel):
        dimension, theta = 2, "powers"

        def __init__(self):
            self.scale = 1.0

        def features(self, item):
            made.append((float(self.scale), item))
            if item == 13:
                raise ValueError("unlucky")
            return np.array([1.0, item * self.scale])

    model = Served(Powers, {"folder": str(folder)})
    for item in (3, 7):
        model.thetas.own.of(item)
    new = write_theta(folder, {"scale": np.array(2.0)}, plain(2, 1.0))
    assert not model.thetas.ready(new)
    model.thetas.wait()
    assert model.thetas.ready(new)
    assert made == [(1.0, 3), (1.0, 7), (2.0, 3), (2.0, 7)]
    assert model.thetas.get(new).of(7).tolist() == [1, 14]
    with pytest.raises(ModelError, match="raised ValueError: unlucky"):
        model.thetas.own.of(13)
    with pytest.raises(ModelError, match="has no table to retrain"):
        model.model.retrain(None)


# The prior


def generated(users, each, seed):
    """Users whose weights are normal, what is observed of them, and the mean and covariance of the weights."""
    rng = np.random.default_rng(seed)
    root, mean = rng.normal(size=(D, D)) / 2, rng.normal(size=D)
    weights = mean + rng.normal(size=(users, D)) @ root.T
    rows = rng.normal(size=(users, each, D))
    values = np.einsum("und,ud->un", rows, weights) + 0.6 * rng.normal(size=(users, each))
    return rows, values, weights, mean, root @ root.T


def test_the_prior_is_the_mean_and_spread_of_users_and_of_few_it_says_little():
    rows, values, _, mean, covariance = generated(1500, 6, 1)
    found = estimated(rows, values, 0.5)
    assert np.abs(found.mean - mean).max() < 0.1
    assert np.linalg.norm(0.6**2 * found.inverse - covariance) < 0.1 * np.linalg.norm(covariance)
    assert np.abs(found.precision @ found.inverse - np.eye(D)).max() < 1e-8
    assert all((matrix == matrix.T).all() for matrix in found[1:])
    none = estimated([np.zeros((0, D))], [np.zeros(0)], 0.5)
    silent = estimated(rows[:1], np.zeros((1, 6)), 0.5)
    for nothing in (none, silent):
        assert all((kept == given).all() for kept, given in zip(nothing, plain(D, 0.5), strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_who_is_new_is_predicted_better_from_an_estimated_prior(seed):
    rows, values, weights, *_ = generated(300, 8, seed)
    found, flat = estimated(rows[:200], values[:200], 1.0), plain(D, 1.0)
    off = [
        np.square([fitted(rows[at, :2], values[at, :2], prior.precision, prior.mean)[0] - weights[at]
                   for at in range(200, 300)]).mean()
        for prior in (found, flat)
    ]  # fmt: skip
    assert off[0] < 0.7 * off[1]


def test_a_class_may_give_the_prior_of_its_own_features():
    class Known(Table):
        prior = PRIOR

    machine = Machine("here", Served(Known, {}), verify=True)
    for item, value in [("i1", 1.0), ("i2", -1.0)]:
        taken(machine, told("u0", item, value), told("u1", item, value))
    state = machine.state["u1"]["generations"]["0"]
    assert state["prior"].tolist() == PRIOR.mean.tolist()
    expected = naive(Table().table[1:3], np.array([1.0, -1.0]), PRIOR.precision, PRIOR.mean)
    assert np.abs(state["w"] - expected).max() < 1e-8


# Retraining


def learned(machine, worth, users=12, songs=20):
    for user, turn in itertools.product(range(users), range(songs)):
        song = (turn + user) % songs  # so that each song is held out of some users' alone
        taken(machine, told(f"u{user}", f"i{song}", worth(user, song)))
    return users_of(machine)


def test_features_that_explain_what_is_held_out_are_better_and_those_of_noise_are_not(folder):
    model = served(folder)
    minds = learned(
        Machine("here", served(folder)), lambda user, song: (1 if user % 2 else -1) * (1 if song % 3 else -1)
    )
    made = retrain(model.thetas.own, "0", minds)
    assert made.better(0.01)
    assert made.new < made.old / 4
    assert made.held == 12 * 20
    assert (made.parameters["table"][20:] == Table().table[20:]).all()  # of items that nobody rated
    rng = np.random.default_rng(1)
    noise = learned(Machine("here", served(folder)), lambda user, song: float(rng.normal()))
    assert not retrain(model.thetas.own, "0", noise).better(0.01)
    with pytest.raises(ModelError, match="are needed to judge features by"):
        retrain(model.thetas.own, "0", learned(Machine("here", served(folder)), lambda *_: 1.0, 1, 5))


def test_no_training_sees_what_is_held_out(folder):
    turns = []

    class Own(Table):
        def retrain(self, told):
            turns.append(told)
            return {"table": self.table}

    model = Served(Own, {"folder": str(folder)})
    users = learned(Machine("here", served(folder)), lambda user, song: float(song), 5, 20)
    assert not retrain(model.thetas.own, "0", users).better(0.0)
    assert len(turns) == 5
    for held, seen in enumerate(turns):  # the last is served
        assert seen.values.tolist() == [
            (turn + user) % 20 for user in range(5) for turn in range(20) if turn % 5 != held
        ]
        assert seen.items == [f"i{int(value)}" for value in seen.values]
        assert seen.users == [f"u{user}" for user in range(5) for _ in range(16)]
        assert seen.weights.keys() == set(seen.users)


def test_what_features_were_trained_from_does_not_judge_them(folder, machine):
    for user, turn in itertools.product(range(3), range(20)):
        taken(machine, told(f"u{user}", f"i{turn}", float(turn % 3)))
    users = users_of(machine)
    model = served(folder)
    assert retrain(model.thetas.own, "0", users).held == 60  # of the class's own features nobody knows better
    for user in users:
        taken(machine, switches(user, theta(folder)))
        for turn in range(10):
            taken(machine, told(user, f"i{turn}", 1.0))
    users = users_of(machine)
    made = retrain(model.thetas.get(theta(folder)), "1", users)
    assert made.held == 3 * (20 // 5 + 10)


def simulated(rng, old, new, users=100, each=40):
    """Users of 60 true items with noise of .6, and a class of two tables that are wrong by so much."""
    truth = rng.normal(size=(60, D)) / 2
    weights = 0.3 + 0.7 * rng.normal(size=(users, D))

    class Two(VeloxModel):
        dimension, items, table = D, range(60), truth + old * rng.normal(size=(60, D))
        other = truth + new * rng.normal(size=(60, D))

        def retrain(self, seen):
            return {"table": self.other}

    states = {}
    for user in range(users):
        state = {"generations": {}, **observed.none()}
        for item in rng.choice(60, each, replace=False).tolist():
            value = float(truth[item] @ weights[user] + 0.6 * rng.normal())
            state = {**state, **observed.added(state, item, value, each)}
        states[f"u{user}"] = state
    return retrain(Features(Two()), "0", states)


def test_equal_features_are_not_switched_to_and_truly_better_ones_are():
    rng = np.random.default_rng(11)
    level = [simulated(rng, 0.1, 0.1, users=20, each=10) for _ in range(12)]
    assert sum(made.better(0.01) for made in level) <= 2
    better = [simulated(rng, 0.2, 0.1) for _ in range(2)]
    assert all(made.better(0.01) for made in better)
    assert all(made.chance() < 0.001 and made.chance(gain=0.5) > 0.5 for made in better)


def test_where_the_data_do_not_suffice_it_is_said_and_where_features_are_no_better_too():
    few = simulated(np.random.default_rng(2), 0.15, 0.1, users=6, each=10)
    assert not few.better(0.01)
    assert "60 held-out observations of 6 users do not suffice to tell: p = 0." in few.why(0.01)
    worse = simulated(np.random.default_rng(2), 0.0, 0.2)
    assert not worse.better(0.01)
    assert "of 100 users show that they are not better by 1.0%" in worse.why(0.01)
    better = simulated(np.random.default_rng(11), 0.2, 0.1)
    assert "less loss, and" in better.why(1.01 - better.new / better.old)  # better for sure, but not by so much
    alone = simulated(np.random.default_rng(2), 0.5, 0.0, users=1, each=60)
    assert not alone.better(0.01)  # of one user nothing is known of how users differ
    assert alone.chance() == 1
    gone = few._replace(lost=2, new=0.0)
    assert not gone.better(0.01)
    assert "2 held-out observations are of items that the new features lack" in gone.why(0.01)


def test_features_that_are_as_good_are_switched_to_where_what_is_served_has_become_bad():
    """After a drift the old features, too, would be good again with weights that are made anew: a switch does that."""
    equal = simulated(np.random.default_rng(2), 0.1, 0.1, users=20, each=10)._replace(old=0.8, new=0.79)
    assert not equal.better(0.01)
    assert equal.late_by_chance() == 1  # nobody was served
    worse_of_late = np.random.default_rng(3).normal(0.3, 0.4, 20)
    assert equal._replace(late=worse_of_late).better(0.01)
    assert not equal._replace(late=worse_of_late - 0.3).better(0.01)
    assert not equal._replace(late=worse_of_late, new=0.82).better(0.01)


def test_how_users_were_served_of_late_is_beside_what_new_features_have():
    states = {
        "a": {HELD: {"0": {"errors": np.array([[20.0, 9.0, 0.5, 0.4], NONE])}}},
        "few": {HELD: {"0": {"errors": np.array([[3.0, 9.0, 0.5, 0.4], NONE])}}},
        "other": {HELD: {}},
    }
    losses = [np.array([0.1, np.nan, 0.3])] * 3
    assert _late("0", states.values(), losses) == pytest.approx([0.3])


def test_features_that_could_not_be_loaded_are_tried_again(folder, monkeypatch):
    monkeypatch.setattr(thetas, "_AGAIN", 0.0)
    model = served(folder)
    new = theta(folder)
    (folder / f"{new}.npz").rename(folder / "away")
    assert not model.thetas.ready(new)
    model.thetas.wait()
    assert not model.thetas.ready(new)
    model.thetas.wait()
    (folder / "away").rename(folder / f"{new}.npz")
    assert not model.thetas.ready(new)
    model.thetas.wait()
    assert model.thetas.ready(new)


def test_a_failover_in_mid_switch_comes_to_the_same_as_none(folder, machine):
    new = theta(folder)
    tell(machine, observations(40))
    commands = [switches(key, new) for key in ("~0", "u0", "u1", "u2")]
    taken(machine, commands[0])
    taken(machine, commands[1])
    durable = unflatten_all(machine.state)  # what the next primary reads in the log
    for each in commands[2:]:
        taken(machine, each)
    after = Machine("there", served(folder), durable)
    for each in commands:  # whoever has no acknowledgement says all of it again
        taken(after, each)
    for each in (machine, after):
        tell(each, observations(10, seed=2))
    assert fingerprints("keyed", machine.state) == fingerprints("keyed", after.state)


def unflatten_all(states):
    made = {}
    for key, state in states.items():
        flat = flatten(state)
        made[key] = unflatten(flat.entries, [tensor.copy() for tensor in flat.tensors], flat.values)
    return made
