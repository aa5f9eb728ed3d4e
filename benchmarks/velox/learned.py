"""How well is learned on generated ratings: online beside retrained features, new users, and bandits beside greedy."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import yaml

from benchmarks.output import Table, median_spread
from examples.velox.demonstration import STALE
from examples.velox.listening import LISTENERS, made
from examples.velox.ratings import World
from examples.velox.songs import Rotation
from spillway.agents.learning.velox.als import als
from spillway.agents.learning.velox.learning import HELD, REPORT, Learning
from spillway.agents.learning.velox.model import Features, VeloxModel
from spillway.agents.learning.velox.ranking import Ranking, TopK, User
from spillway.agents.learning.velox.staleness import Stale, together
from spillway.agents.learning.velox.thetas import Thetas
from spillway.agents.learning.velox.weights import naive
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.stateful import SHARED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

USERS, ITEMS, RANK, REGULARIZATION, HELD_OUT = 3000, 400, 9, 3.0, 20
CALM, AFTER, LOOK = 10_000, 5_000, 25  # observations without a drift, and after one; between two looks for staleness
GENERATOR: Final = (
    f"Generated ratings stand for MovieLens 10M: {USERS} users, {ITEMS} items, 8 true factors, noise of .6, half stars "
    f"(examples/velox/ratings.py); features by ALS of rank {RANK}, lambda {REGULARIZATION:g}."
)


def _features(users: Numbers, items: Numbers, ratings: Numbers) -> tuple[Numbers, Numbers]:
    return als(users, items, ratings, (USERS, ITEMS), rank=RANK, regularization=REGULARIZATION)


def _error(features: Numbers, seen: list[tuple[Numbers, Numbers]], held: list[tuple[Numbers, Numbers]]) -> float:
    """RMSE on what is held out, of weights by eq. 2.2 of what each user has been seen to rate."""
    off = []
    for (items, ratings), (others, truths) in zip(seen, held, strict=True):
        weights = naive(features[items], ratings, REGULARIZATION, np.zeros(RANK))
        off.append(features[others] @ weights - truths)
    return float(np.sqrt(np.mean(np.square(np.concatenate(off)))))


def _cut(items: Numbers, ratings: Numbers, begin: int, end: int) -> list[tuple[Numbers, Numbers]]:
    return [(i[begin:end], r[begin:end]) for i, r in zip(items, ratings, strict=True)]


def _hybrid_run(before: int, more: int, seed: int) -> tuple[float, float, float]:
    """RMSE with `before` ratings a user; with `more` learned online, features kept; with all retrained."""
    each = before + more + HELD_OUT
    _, items, ratings = (
        column.reshape(USERS, each) for column in World.made(USERS, ITEMS, seed=seed).ratings(each, seed)
    )
    held = _cut(items, ratings, before + more, each)

    def trained(count: int) -> Numbers:
        users = np.repeat(np.arange(USERS), count)
        return _features(users, items[:, :count].ravel(), ratings[:, :count].ravel())[1]

    old, new = trained(before), trained(before + more)
    seen = _cut(items, ratings, 0, before), _cut(items, ratings, 0, before + more)
    return _error(old, seen[0], held), _error(old, seen[1], held), _error(new, seen[1], held)


def hybrid(seeds: int) -> Table:
    rows = []
    for before, more in ((10, 7), (20, 14), (40, 28), (80, 56), (50, 35)):
        runs = [_hybrid_run(before, more, seed) for seed in range(max(2, seeds // 4))]
        gains = [[100 * (1 - run[which] / run[0]) for run in runs] for which in (1, 2)]
        means = [f"{statistics.fmean(run[which] for run in runs):.3f}" for which in range(3)]
        told = f"{before} + {more}" + (" (half, then 70 % of the rest)" if (before, more) == (50, 35) else "")
        shares = [online / full for online, full in zip(*gains, strict=True)]
        rows.append([told, *means, *(median_spread(each, "{:.1f}") for each in gains), median_spread(shares, "{:.2f}")])
    return Table(
        "Held-out error: features fixed and users learned online, beside retraining all (section 2.4)",
        (
            "ratings a user",
            "RMSE before",
            "online",
            "retrained",
            "online, % better",
            "retrained, % better",
            "share kept",
        ),
        rows,
        ("The thesis, on MovieLens 10M, 10 + 7: 1.6 % online, 2.3 % retrained.", GENERATOR),
    )


def new_users(seeds: int) -> Table:
    """RMSE by ratings seen, with features of the first users, for the others."""
    counts, old = (0, 1, 2, 3, 4, 5, 10, 20), USERS // 2
    found: dict[str, list[list[float]]] = {"zero": [], "mean": []}
    for seed in range(seeds):
        each = 40 + HELD_OUT
        users, items, ratings = World.made(USERS, ITEMS, seed=seed).ratings(each, seed)
        weights, features = _features(*(column[: old * each] for column in (users, items, ratings)))
        priors = {"zero": np.zeros(RANK), "mean": weights[:old].mean(0)}
        others = _cut(items.reshape(USERS, each)[old:], ratings.reshape(USERS, each)[old:], 0, each)
        for name, prior in priors.items():
            errors = []
            for count in counts:
                off = [
                    features[i[40:]] @ naive(features[i[:count]], r[:count], REGULARIZATION, prior) - r[40:]
                    for i, r in others
                ]
                errors.append(float(np.sqrt(np.mean(np.square(off)))))
            found[name].append(errors)
    rows = [
        [f"prior {name}", *(median_spread(column, "{:.2f}") for column in zip(*runs, strict=True))]
        for name, runs in found.items()
    ]
    pairs = zip(found["zero"], found["mean"], strict=True)
    worse = sum(mean[at] > zero[at] for zero, mean in pairs for at in range(6))
    return Table(
        "New users: held-out RMSE by ratings seen (section 2.5, Bootstrapping)",
        ("", *map(str, counts)),
        rows,
        (f"The mean was worse in {worse} of {6 * seeds} cases up to 5 ratings.", GENERATOR),
    )


class _Given(VeloxModel):
    """Features that were trained before."""

    dimension, theta = RANK, "trained"

    def __init__(self, features: Numbers) -> None:
        self.items, self.table, self.regularization = range(len(features)), features, 1.0


def _listen(
    topk: TopK, world: World, features: Features, model: VeloxModel, prior: Numbers, rounds: int, seed: int
) -> tuple[float, int]:
    """A new listener hears the best song, round by round: the mean regret, and the number of songs heard."""
    thetas = Thetas(model, features)
    learning, ranking = Learning(model, thetas), Ranking(model, thetas, topk)
    rng = np.random.default_rng([seed, 5])
    shared: dict[str, Any] = dict(learning.share())
    shared[HELD]["0"] |= {"sum": prior.copy(), "users": 1}
    states: dict[str, Any] = {SHARED: shared, "ada": learning.initialize(shared)}
    worth = world.worth(USERS - 1)
    heard = []
    for turn in range(rounds):
        state = states["ada"]
        user = User(state[HELD]["0"]["w"], state[HELD]["0"]["inverse"], features, ("ada", 1, turn, turn))
        (item,), _, _ = ranking.top(user, None, 1, rng)
        heard.append(item)
        value = float(world.rated(USERS - 1, np.array([item]), rng)[0])
        query = Inputs({"truth": {"item": item, "value": value}}, {}, str(turn), "ada")
        states = dict(learning.update(states, [query], []))
    return float(worth.max() - worth[heard].mean()), len(set(heard))


def bandits(seeds: int, rounds: int) -> Table:
    policies = {
        "greedy": TopK(),
        "epsilon .1": TopK("epsilon"),
        "linucb, alpha .5": TopK("linucb", 0.5),
        "linucb, alpha 1": TopK("linucb", 1.0),
        "thompson, alpha .5": TopK("thompson", 0.5),
        "thompson, alpha 1": TopK("thompson", 1.0),
    }
    found: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for seed in range(seeds):
        world = World.made(USERS, ITEMS, seed=seed)
        weights, trained = _features(*(column[: (USERS - 1) * 40] for column in world.ratings(40, seed)))
        model = _Given(trained)
        features = Features(model)
        for prior, begin in (("zero", np.zeros(RANK)), ("mean", weights[:-1].mean(0))):
            for name, policy in policies.items():
                run = _listen(policy, world, features, model, begin, rounds, seed)
                found.setdefault((prior, name), []).append(run)
    rows = []
    for (prior, name), runs in found.items():
        regrets, covered = ([run[which] for run in runs] for which in (0, 1))
        below = sum(own < greedy for own, (greedy, _) in zip(regrets, found[prior, "greedy"], strict=True))
        told = "-" if name == "greedy" else f"{below} of {seeds}"
        heard = [100 * each / ITEMS for each in covered]
        middle, shares = median_spread(regrets, "{:.2f}"), median_spread(heard, "{:.1f}")
        rows.append([prior, name, f"{statistics.fmean(regrets):.2f}", middle, told, shares])
    return Table(
        f"Regret a song of a new listener, in stars, over {rounds} songs, and how much of the catalogue was heard",
        ("prior", "topK", "mean", "median", "below greedy", "% of the catalogue"),
        rows,
        (f"{seeds} worlds, one new listener each; songs may be heard again; lambda 1. {GENERATOR}",),
    )


def alarms(seeds: int) -> Table:
    """Detected drifts, and false alarms: the demonstration's listeners, rating by rating."""
    rows, features = [], Features(model := Rotation())
    for name, stale in (("the default", Stale()), ("the demonstration's", Stale(**yaml.safe_load(STALE)))):
        found: list[int] = []  # after so many observations
        false = 0
        for seed in range(seeds):
            learning, worlds = Learning(model, Thetas(model, features), stale), made(seed)
            rng, states = np.random.default_rng([seed, 6]), {SHARED: learning.share()}
            false += bool(_stale(learning, stale, states, worlds[0], CALM, rng))
            found += filter(None, [_stale(learning, stale, states, worlds[1], AFTER, rng)])
        rows.append([name, f"{false} of {seeds}", f"{len(found)} of {seeds}", median_spread(found, "{:.0f}")])
    return Table(
        "Features found stale (section 2.4)",
        ("stale", f"runs with an alarm in {CALM:,} observations without drift", "drifts found", "after observations"),
        rows,
        (f"A look every {LOOK} observations. {LISTENERS} listeners, generated ratings; a drift: other songs.",),
    )


def _stale(learning: Learning, stale: Stale, states: dict[str, Any], world: World, most: int, rng: Any) -> int | None:
    """Learn ratings until features are found stale: after how many; None where they are not."""
    for turn in range(1, most + 1):
        listener, song = (int(rng.integers(count)) for count in (LISTENERS, Rotation.songs))
        value = float(world.rated(listener, np.array([song]), rng)[0]) - Rotation.middle
        key, truth = f"listener-{listener}", {"item": f"song-{song}", "value": value}
        own = {SHARED: states[SHARED], key: states.get(key) or learning.initialize(states[SHARED])}
        states |= learning.update(own, [Inputs({"truth": truth}, {}, str(turn), key)], [])
        if turn % LOOK == 0:
            (report,) = learning.compute(states, [Inputs({REPORT: True}, {}, "", key)])
            if stale.why(together([report["0"]])):
                return turn
    return None
