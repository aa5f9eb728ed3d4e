"""Clipper's selection layer (section 3.5 of Crankshaw's thesis), in process: real models' real errors, no Kafka.

Each query is answered by `spillway.agents.learning.selection` as a served stage's is, and its truth follows at once.
Stand-ins: scikit-learn's digits with noise for CIFAR, ImageNet and MNIST, styles of distortion for TIMIT's dialects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.output import Table, median_spread, spread
from examples.clipper.training import TRAINED_ON, digits
from examples.selection.training import KINDS, fitted, inverted, queries, trained
from spillway.agents.learning.selection import Exp4, Observed, combine, zero_one
from spillway.agents.learning.stacking import Stacked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from examples.selection.training import Predict, Rows
    from spillway.agents.learning.selection import Selection, State

QUERIES: Final = 20_000
_FEW: Final = 300  # digits that a weaker model is trained on
_USERS, _TRUTHS = 40, 256
PAPER_LESS: Final = "-5.2"  # % of the error, ImageNet


@dataclass(slots=True)
class Replayed:
    """What came of a stream of queries whose truths followed."""

    wrong: list[float] = field(default_factory=list)  # the loss of each query's answer
    confidence: list[float] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)  # of a single one, who was asked
    state: State = field(default_factory=dict)

    def error(self, since: int = 0, until: int | None = None) -> float:
        return float(np.mean(self.wrong[since:until]))


def replay(
    policy: Selection,
    answers: Mapping[str, Sequence[Any]],
    truths: Sequence[int],
    seed: int,
    state: State | None = None,
) -> Replayed:
    """Answer each query by the members that the policy selects, and let it observe their losses."""
    members, draw = list(answers), Random(seed)
    done = Replayed(state=state or policy.initial(members))
    for place, truth in enumerate(truths):
        asked = policy.select(done.state, members, draw)
        own = {member: answers[member][place] for member in asked}
        averaged = partial(policy.combine, done.state) if isinstance(policy, Stacked) else None
        made = combine(own, policy.weights(done.state, list(asked)), len(asked), averaged=averaged)
        done.wrong.append(zero_one(truth, made.answer))
        done.confidence.append(made.confidence)
        done.chosen.append(next(iter(asked)))
        seen = {
            member: Observed(p, zero_one(truth, own[member]), own[member] if averaged else (), truth)
            for member, p in asked.items()
        }
        done.state = policy.observe(done.state, members, seen)
    return done


def _labels(models: Mapping[str, Predict], rows: Rows) -> dict[str, list[int]]:
    return {name: model(rows).argmax(1).tolist() for name, model in models.items()}


def _errors(answers: Mapping[str, Sequence[int]], truths: Sequence[int]) -> dict[str, float]:
    return {name: float(np.mean(np.not_equal(own, truths))) for name, own in answers.items()}


def agreement(repeats: int) -> Table:
    """Five models of which none is far better, their ensemble, and what it is sure of (Figure 3.7)."""
    columns: dict[str, list[tuple[float, float]]] = {}  # (error, share of the queries)
    forms = {"Exp4, votes": Exp4(), "Exp4, scores": Exp4(), "stacked": Stacked()}
    less: dict[str, list[float]] = {how: [] for how in forms}
    models = {kind: fitted(kind, _FEW) for kind in KINDS}
    for seed in range(repeats):
        rows, truth = queries(QUERIES, seed)
        truths = truth.tolist()
        scores = {name: list(model(rows)) for name, model in models.items()}
        answers = {name: np.argmax(own, 1).tolist() for name, own in scores.items()}
        errors = _errors(answers, truths)
        for name, error in errors.items():
            columns.setdefault(name, []).append((error, 1.0))
        for how, policy in forms.items():
            done = replay(policy, answers if how == "Exp4, votes" else scores, truths, seed)
            wrong, sure = np.array(done.wrong), np.array(done.confidence)
            columns.setdefault(how, []).append((float(wrong.mean()), 1.0))
            for agree in (4, 5):
                some = sure >= agree / 5
                told = (float(wrong[some].mean()), float(some.mean()))
                columns.setdefault(f"{how}: {agree}-agree", []).append(told)
            less[how].append(done.error() / min(errors.values()) - 1)
    lines = []
    for name, runs in columns.items():
        declined = spread([1 - share for _, share in runs], 1) if ":" in name else ""
        lines.append([name, spread([error for error, _ in runs]), declined])
    apart = [f"{how} {median_spread([100 * each for each in found], '{:+.1f}')} %" for how, found in less.items()]
    return Table(
        "Five models, their ensemble, and the answers that most of them agree with (Figure 3.7)",
        ("who answers", "error %", "declined %"),
        lines,
        (
            f"The ensemble's error beside the best model's: {', '.join(apart)}; the thesis (ImageNet): {PAPER_LESS} %.",
            f"Digits with noise stand for CIFAR and ImageNet; each model was trained on {_FEW} of them.",
            f"{repeats} streams of {QUERIES:,} queries, the truth after each.",
        ),
    )


# Styles of distortion ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Style:
    """How digits are distorted: turned by `angle` degrees, with noise, light for dark."""

    angle: float = 0.0
    noise: float = 0.05
    inverted: bool = False

    def __call__(self, rows: Rows, chance: np.random.Generator) -> Rows:
        from scipy.ndimage import rotate  # noqa: PLC0415 - comes with scikit-learn

        drawn = rotate(rows.reshape(-1, 8, 8), self.angle, axes=(1, 2), reshape=False, order=1).reshape(rows.shape)
        drawn = inverted(drawn) if self.inverted else drawn
        return (drawn + chance.normal(0, self.noise, rows.shape)).astype(np.float32)


STYLES: Final = {
    "upright": Style(), "left": Style(35.0), "right": Style(-35.0), "noisy": Style(noise=0.3),
    "light": Style(inverted=True),
}  # fmt: skip
_PARTS: Final = ((0, 4), (4, 16), (16, 64), (64, _TRUTHS))  # truths that were there before


def personal(repeats: int) -> Table:
    """Users who each distort in their own way, near the style that they report (Figure 3.10)."""
    images, labels = digits(TRAINED_ON)
    chance = np.random.default_rng(0)
    by_style = {name: style(images, chance) for name, style in STYLES.items()}
    models = {name: trained("mlp", rows, labels) for name, rows in by_style.items()}
    several = np.concatenate(list(by_style.values()))
    oblivious = trained("mlp", several, np.tile(labels, len(STYLES)))
    found: dict[str, list[list[float]]] = {}
    for seed in range(repeats):
        wrong = _of_users(seed, models, oblivious, Exp4(eta=1.0))
        for name, users in wrong.items():
            found.setdefault(name, []).append([float(users[:, first:last].mean()) for first, last in _PARTS])
    heads = [f"error % after {first} to {last - 1} truths" for first, last in _PARTS]
    lines = [
        [name, *(spread([run[place] for run in runs], 1) for place in range(len(_PARTS)))]
        for name, runs in found.items()
    ]
    return Table(
        "One choice for all, the reported style's model, and weights of each user's own (Figure 3.10)",
        ("who answers", *heads),
        lines,
        (
            "The thesis shows bars: the dialect's model is better than the one for all, the ensemble better than both.",
            f"Styles of distortion stand for TIMIT's dialects: {', '.join(STYLES)}; a network for each.",
            "A user turns digits by an angle of their own, 10 degrees about the style's.",
            f"{repeats} times {_USERS} users of {_TRUTHS} queries.",
            "All users' weights: what one state learns from 2,000 of all users' truths.",
        ),
    )


def _of_users(seed: int, models: Mapping[str, Predict], oblivious: Predict, eager: Selection) -> dict[str, Any]:
    """The losses by who answers, user and query."""
    images, labels = digits()
    chance = np.random.default_rng([seed, 310])
    wrong: dict[str, list[Sequence[float]]] = {}
    streams: list[tuple[list[int], dict[str, list[Any]]]] = []
    for _ in range(_USERS):
        reported = list(STYLES)[chance.integers(len(STYLES))]
        near = STYLES[reported]
        own = Style(near.angle + chance.normal(0, 10), near.noise, near.inverted)
        drawn = chance.integers(TRAINED_ON, len(labels), _TRUTHS)
        rows, truths = own(images[drawn], chance), labels[drawn].tolist()
        streams.append((truths, {name: list(model(rows)) for name, model in models.items()}))
        for name, model in (("one model for all", oblivious), ("the reported style's model", models[reported])):
            wrong.setdefault(name, []).append(np.not_equal(model(rows).argmax(1), truths).tolist())
    mixed = chance.permutation(_USERS * _TRUTHS)[:2_000].tolist()
    given = {name: [streams[each // _TRUTHS][1][name][each % _TRUTHS] for each in mixed] for name in models}
    before = [streams[each // _TRUTHS][0][each % _TRUTHS] for each in mixed]
    shared, stacked = (replay(policy, given, before, seed).state for policy in (Exp4(), Stacked()))
    forms: dict[str, tuple[Selection, State | None]] = {
        "Exp4 by user, from equal weights": (Exp4(), None),
        "Exp4 by user, eta 1, from equal weights": (eager, None),
        "Exp4 by user, from all users' weights": (Exp4(), shared),
        "stacked by user, from all users' state": (Stacked(), stacked),
        "Exp4, all users' weights": (Exp4(eta=0.0, forgetting=0.0), shared),
    }
    for name, (policy, state) in forms.items():
        wrong[name] = [replay(policy, scores, truths, seed, state).wrong for truths, scores in streams]
    return {name: np.array(users) for name, users in wrong.items()}
