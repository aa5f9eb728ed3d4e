"""Selection where the best of five models fails for a while, on four data sets (Figure 3.8), in process.

Each query is answered by `spillway.agents.learning.selection` as a served stage's is, and its truth follows at once.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.output import Table, spread
from spillway.agents.learning.selection import Exp3, Exp4, Observed, combine, zero_one
from spillway.agents.learning.stacking import Stacked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.agents.learning.selection import Selection

    Scores = NDArray[np.float64]  # by model, query and class

KINDS: Final = ("never", "random", "always wrong", "60 % random")
BROKEN: Final = (0.25, 0.5)  # of the queries
_FORMS: Final[dict[str, tuple[Selection, bool]]] = {
    "Exp3": (Exp3(), False), "Exp4, votes": (Exp4(), False), "Exp4, scores": (Exp4(), True),
    "stacked": (Stacked(), True),
}  # fmt: skip


def _data() -> dict[str, tuple[Any, Any]]:
    from sklearn import datasets  # noqa: PLC0415

    read = {name: getattr(datasets, f"load_{name}") for name in ("wine", "breast_cancer", "digits")}
    made = datasets.make_classification(
        4_000, 20, n_informative=8, n_classes=6, flip_y=0.03, n_clusters_per_class=2, random_state=1
    )
    return {name: load(return_X_y=True) for name, load in read.items()} | {"synthetic, 6 classes": made}


def answered(rows: Any, labels: Any) -> tuple[Scores, NDArray[np.int64]]:
    """What five models that are trained on two fifths of the rows answer to the others, and the truths."""
    from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # noqa: PLC0415
    from sklearn.naive_bayes import GaussianNB  # noqa: PLC0415
    from sklearn.neighbors import KNeighborsClassifier  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415
    from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415

    train, test, known, truth = train_test_split(rows, labels, train_size=0.4, random_state=0, stratify=labels)
    kinds = (
        LogisticRegression(max_iter=300), DecisionTreeClassifier(max_depth=6, random_state=0), GaussianNB(),
        KNeighborsClassifier(5), RandomForestClassifier(20, max_depth=6, random_state=0),
    )  # fmt: skip
    return np.stack([make_pipeline(StandardScaler(), k).fit(train, known).predict_proba(test) for k in kinds]), truth


def stream(scores: Scores, truth: NDArray[np.int64], kind: str, seed: int, count: int) -> tuple[Scores, Any]:
    """Queries drawn by a seed, to which the best model answers as `kind` says for a quarter of the time."""
    chance = np.random.default_rng([seed, count])
    drawn = chance.integers(len(truth), size=count)
    given, truths, classes = scores[:, drawn], truth[drawn], scores.shape[2]
    best = (given.argmax(2) != truths).mean(1).argmin()
    said = chance.integers(classes, size=count)
    if kind == "always wrong":
        said = (truths + chance.integers(1, classes, count)) % classes
    hit = np.zeros(count, bool)
    hit[slice(*(int(share * count) for share in BROKEN))] = kind != "never"
    if kind == "60 % random":
        hit &= chance.random(count) < 0.6
    given[best, hit] = 0.9 * np.eye(classes)[said[hit]] + 0.1 / classes
    return given, truths


def replay(policy: Selection, answers: Mapping[str, Sequence[Any]], truths: Sequence[int], seed: int) -> list[float]:
    """Answer each query by the members that the policy selects, and let it observe their losses; those of answers."""
    members, draw, wrong = list(answers), Random(seed), []
    state = policy.initial(members)
    for place, truth in enumerate(truths):
        asked = policy.select(state, members, draw)
        own = {member: answers[member][place] for member in asked}
        averaged = partial(policy.combine, state) if isinstance(policy, Stacked) else None
        made = combine(own, policy.weights(state, list(asked)), len(asked), averaged=averaged)
        wrong.append(zero_one(truth, made.answer))
        seen = {
            member: Observed(p, zero_one(truth, own[member]), own[member] if averaged else (), truth)
            for member, p in asked.items()
        }
        state = policy.observe(state, members, seen)
    return wrong


def failing(seeds: int = 20, count: int = 20_000) -> Table:
    """Errors of the best static choice and of what selects, by data set and kind of failure."""
    lines = []
    for name, (rows, labels) in _data().items():
        scores, truth = answered(rows, labels)
        for kind in KINDS:
            static, found = [], {form: list[float]() for form in _FORMS}
            for seed in range(seeds):
                given, truths = stream(scores, truth, kind, seed, count)
                own = given.argmax(2)
                static.append((own != truths).mean(1))
                for form, (policy, averaged) in _FORMS.items():
                    answers = {f"m{n}": list(given[n]) if averaged else own[n].tolist() for n in range(len(given))}
                    found[form].append(float(np.mean(replay(policy, answers, truths.tolist(), seed))))
            least = float(np.mean(static, 0).min())
            lines.append([name, kind, f"{100 * least:.2f}", *(spread(errors) for errors in found.values())])
    return Table(
        "The best model fails for a quarter of the queries (Figure 3.8)",
        ("data", "it fails", "best static choice, error %", *_FORMS),
        lines,
        (
            f"{seeds} seeds of {count:,} queries, the truth after each; default settings.",
            "Five models (linear, tree, naive Bayes, neighbours, forest), trained on two fifths of each data set.",
        ),
    )
