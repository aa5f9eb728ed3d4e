"""How well is learned on generated ratings: online beside retrained features, new users, and bandits beside greedy."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.output import Table, median_spread
from examples.velox.ratings import World
from spillway.agents.learning.velox.als import als
from spillway.agents.learning.velox.learning import HELD, Learning
from spillway.agents.learning.velox.model import Features, VeloxModel
from spillway.agents.learning.velox.prior import Prior, estimated, plain
from spillway.agents.learning.velox.ranking import Ranking, TopK, User
from spillway.agents.learning.velox.thetas import Thetas
from spillway.agents.learning.velox.weights import naive
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.stateful import SHARED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

USERS, ITEMS, RANK, REGULARIZATION, HELD_OUT = 3000, 400, 9, 3.0, 20
WORLDS: Final = ((3000, 80), (2000, 100), (2000, 120), (1500, 150), (1000, 200))  # users and items
GENERATOR: Final = (
    f"Generated ratings stand for MovieLens 10M: {USERS} users, {ITEMS} items, 8 true factors, noise of .6, half stars "
    f"(examples/velox/ratings.py); features by ALS of rank {RANK}, lambda {REGULARIZATION:g}."
)


def _features(
    users: Numbers, items: Numbers, ratings: Numbers, size: tuple[int, int] | None = None
) -> tuple[Numbers, Numbers]:
    return als(users, items, ratings, size or (USERS, ITEMS), rank=RANK, regularization=REGULARIZATION)


def _cut(items: Numbers, ratings: Numbers, begin: int, end: int) -> list[tuple[Numbers, Numbers]]:
    return [(i[begin:end], r[begin:end]) for i, r in zip(items, ratings, strict=True)]


def _hybrid_run(size: tuple[int, int], before: int, more: int, seed: int) -> list[float]:
    """RMSE before, with `more` learned online, retrained, all of eq. 2.2 as printed; and online from a prior."""
    each = before + more + HELD_OUT
    users, items, ratings = World.made(*size, seed=seed).ratings(each, seed)
    first = np.arange(len(users)) % each

    def trained(count: int) -> Numbers:
        part = first < count
        features: Numbers = _features(users[part], items[part], ratings[part], size)[1]
        return features

    shown, rated = items.reshape(-1, each), ratings.reshape(-1, each)
    old, new, prior = trained(before), trained(before + more), plain(RANK, REGULARIZATION)
    better = estimated(old[shown[:, :before]], rated[:, :before], REGULARIZATION)  # type: ignore[arg-type]

    def error(features: Numbers, count: int, prior: Prior) -> float:
        off = [
            features[i[-HELD_OUT:]] @ naive(features[i[:count]], r[:count], prior.precision, prior.mean) - r[-HELD_OUT:]
            for i, r in zip(shown, rated, strict=True)
        ]
        return float(np.sqrt(np.mean(np.square(off))))

    runs = (old, before, prior), (old, before + more, prior), (new, before + more, prior), (old, before + more, better)
    return [error(*run) for run in runs]


def hybrid(seeds: int) -> Table:
    cells = [((USERS, ITEMS), *each) for each in ((10, 7), (20, 14), (40, 28), (80, 56), (50, 35))]
    rows, times = [], []
    for size, before, more in (*cells, *((size, 10, 7) for size in WORLDS)):
        runs = [_hybrid_run(size, before, more, seed) for seed in range(max(2, seeds // 4))]
        means = [f"{statistics.fmean(run[which] for run in runs):.3f}" for which in range(4)]
        flat, better = ([(run[0] - run[which]) / (run[0] - run[2]) for run in runs] for which in (1, 3))
        ratios = [one / other for one, other in zip(better, flat, strict=True)]
        times.append(statistics.fmean(ratios))
        spreads = [median_spread(each, "{:.2f}") for each in (flat, better, ratios)]
        rows.append([f"{size[0]} x {size[1]}", f"{before} + {more}", *means, *spreads])
    worlds = times[len(cells) :]
    without = [statistics.fmean(worlds[:at] + worlds[at + 1 :]) for at in range(len(worlds))]
    return Table(
        "Held-out error: features fixed and users learned online, beside retraining all (section 2.4)",
        (
            "users x items", "ratings", "RMSE before", "online", "retrained", "online, prior", "share kept",
            "with prior", "times",
        ),
        rows,
        (
            "Prior: estimated from the ratings before. 50 + 35: half, then 70 % of the rest.",
            f"Mean times of the last {len(worlds)} rows without one of them: {min(without):.2f} to {max(without):.2f}.",
            "The thesis, on MovieLens 10M, 10 + 7: 1.6 % better online, 2.3 % retrained.",
            GENERATOR,
        ),
    )  # fmt: skip


def new_users(seeds: int) -> Table:
    """RMSE by ratings seen, with features of the first users, for the others."""
    counts, old = (0, 1, 2, 3, 4, 5, 10, 20), USERS // 2
    found: dict[str, list[list[float]]] = {"zero": [], "mean": []}
    for seed in range(seeds):
        each = 40 + HELD_OUT
        users, items, ratings = World.made(USERS, ITEMS, seed=seed).ratings(each, seed)
        weights, features = _features(users[: old * each], items[: old * each], ratings[: old * each])
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
        users, items, ratings = (column[: (USERS - 1) * 40] for column in world.ratings(40, seed))
        weights, trained = _features(users, items, ratings)
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
