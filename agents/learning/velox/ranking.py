"""The stage's part of a Velox model: predict and topK for the user whose weights were looked up (thesis, section 2.5).

The thesis says that topK adds an uncertainty to each score, and gives no formula. Here, of an item with features f:

    greedy      w.f
    linucb      w.f + alpha sqrt(f' P f), P the user's (F'F + A)^-1
    thompson    v.f, with v drawn from the normal distribution of mean w and covariance alpha^2 P
    epsilon     greedy, with `random` a tenth by default

Whatever the policy, each slot of an answer is filled at random with probability `random`, alike from all candidates
that no earlier slot has. These slots are the validation pool: the flag `random` lists them, each with the probability
with which its item was so drawn. Draws follow from the request's id, so a query that runs again is answered the same.

A user's row has weights over the features of one generation, or of two around a switch. A query is ranked by those of
the generation that was current when its row was looked up. Where a row has not got that one, or its features are still
being loaded, the other of the row answers: weights and features go together always. While a row has two, what is
remembered of the one that answers is made of the other as well, so a switch finds caches that are full.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.learning.velox.learning import HELD
from spillway.agents.models.flagged import Flagged
from spillway.agents.recent import Recent
from spillway.lineage.errors import ModelError, UsageError
from spillway.topology.names import meant
from spillway.topology.quantities import size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.learning.velox.model import Features, Item, VeloxModel
    from spillway.agents.learning.velox.thetas import Thetas
    from spillway.agents.learning.velox.weights import Matrix, Vector
    from spillway.agents.models.inputs import Inputs

POLICIES: Final = ("greedy", "linucb", "thompson", "epsilon")


@dataclass(frozen=True)
class TopK:
    """How topK chooses, as the stage's `arguments: {topk: ...}` say. Raises UsageError for what cannot be."""

    policy: str = "greedy"
    alpha: float = 1.0
    random: float | None = None  # of all slots; by default .1 of epsilon's, and none of others'
    k: int = 10  # where a query says none
    cache: int | str = 64 << 20  # bytes of remembered scores; 0: none
    table: str = "user"  # the stage's name of the learner's table
    key: str | None = None  # the input that is the table's key, where the table says one

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"there is no topk policy {self.policy!r:.80}; {meant(self.policy, POLICIES)}")
        if not 0 <= self.share <= 1 or self.alpha < 0:
            raise UsageError("topk: 'random' must be from 0 to 1, and 'alpha' 0 or more")

    @property
    def share(self) -> float:
        return (0.1 if self.policy == "epsilon" else 0.0) if self.random is None else self.random


@dataclass(frozen=True, slots=True)
class User:
    """Whose weights a query is answered by; `version` tells them from all others of the features."""

    w: Vector
    inverse: Matrix | None
    features: Features
    version: tuple[Any, ...] = ()  # none: nothing is remembered of it
    generation: int = 0


class Ranking:
    """A model without a state, as `spillway.agents.models.loading` has it."""

    def __init__(self, model: VeloxModel, thetas: Thetas, topk: TopK) -> None:
        self._model, self._thetas, self._topk = model, thetas, topk
        self._recent = Recent(size(topk.cache))

    def predict(self, batch: list[Inputs]) -> list[Flagged]:
        """Answer `{"item": x}` with its score, and `{"items": [..], "k": n}`, or `{}`: the catalogue, with the best.

        Raises ModelError for an item without features, or a user of other features.
        """
        return [self._answer(query) for query in batch]

    def _answer(self, query: Inputs) -> Flagged:
        user, *others = self._users(query)
        told: dict[str, Any] = {"theta": user.features.theta, "generation": user.generation}
        if "item" in query:
            score = float(user.w @ user.features.of(query["item"]))
            return Flagged({"item": query["item"], "score": score}, **told)
        items, k = query.get("items"), query.get("k", self._topk.k)
        if type(k) is not int or k < 1 or not (items is None or isinstance(items, list | np.ndarray)):
            raise ModelError(
                f"'items' is a list of items and 'k' a whole number above 0, not {items!r:.80} and {k!r:.80}"
            )
        draw = np.random.default_rng(int.from_bytes(blake2b(query.request_id.encode()).digest()))
        items, scores, random = self.top(user, items, k, draw)
        for other in others if query.get("items") is None else ():
            self._potentials(other, self._scores(other, other.features.all, None), other.features.all, None, draw)
        if random:
            told["random"] = random
        return Flagged({"items": items, "scores": scores}, **told)

    def _users(self, query: Inputs) -> list[User]:
        """The user in the generation to answer by, and then in the others at hand."""
        name = self._topk.table
        if name not in query:
            raise ModelError(f"the query has no {name!r}: give the stage 'tables: {{{name}: {{of: LEARNER}}}}'")
        row = query[name]
        if row is None:  # nobody has been learned of yet
            prior = self._thetas.prior(self._thetas.own.theta)
            return [User(prior.mean, prior.inverse, self._thetas.own)]
        held: Mapping[str, Any] = row[HELD]
        current = query.get(f"{name}.generation")
        newest = sorted(held, key=int, reverse=current is not None)  # while nobody knows which is current: the oldest
        order = sorted(newest, key=lambda number: int(number) != current)
        at_hand = [number for number in order if self._thetas.ready(held[number]["theta"])] or order[:1]
        key = query.key if self._topk.key is None else query[self._topk.key]
        # The version is the shard's: a key's first row may have that of the shared row which it had before.
        version = (key, *query[f"{name}.version"], row["n"])
        return [self._user(number, held[number], version, new=not row["n"]) for number in at_hand]

    def _user(self, number: str, row: Mapping[str, Any], version: tuple[Any, ...], *, new: bool) -> User:
        inverse = self._thetas.prior(row["theta"]).inverse if new else row.get("inverse")
        if inverse is None and self._topk.policy in {"linucb", "thompson"}:
            raise ModelError(f"{self._topk.policy} needs the users' inverses: set publish_inverse = True on the model")
        return User(np.asarray(row["w"]), inverse, self._thetas.get(row["theta"]), version, int(number))

    def top(
        self, user: User, candidates: Sequence[Item] | np.ndarray | None, k: int, draw: np.random.Generator
    ) -> tuple[list[Item], list[float], list[tuple[int, float]]]:
        """Give the k (above 0) best of the candidates, or of the catalogue, their scores w.f, and the random slots."""
        items, places, others = self._split(user.features, candidates)
        scores = self._scores(user, places, others)
        chosen, random = self._fill(self._potentials(user, scores, places, others, draw), k, draw)
        return [items[at] for at in chosen], scores[chosen].tolist(), random

    def _split(
        self, features: Features, candidates: Sequence[Item] | np.ndarray | None
    ) -> tuple[Sequence[Item], Any, Matrix | None]:
        """The candidates: those of the catalogue, with their places, then the others, with their features."""
        if candidates is None:
            return features.items, features.all, None
        told = candidates.tolist() if isinstance(candidates, np.ndarray) else candidates
        known: list[Item] = []
        others: list[Item] = []
        for item in dict.fromkeys(told):
            (known if item in features.places else others).append(item)
        places = np.fromiter(map(features.places.__getitem__, known), np.intp, len(known))
        return known + others, places, np.array([features.of(item) for item in others]) if others else None

    def _scores(self, user: User, places: Any, others: Matrix | None) -> Vector:
        return self._column(user, "score", places, others, lambda rows: rows @ user.w)

    def _potentials(
        self, user: User, scores: Vector, places: Any, others: Matrix | None, draw: np.random.Generator
    ) -> Vector:
        alpha, inverse = self._topk.alpha, user.inverse
        if inverse is None:
            return scores
        if self._topk.policy == "linucb":
            widths = self._column(user, "width", places, others, lambda rows: ((rows @ inverse) * rows).sum(1))
            return scores + alpha * np.sqrt(np.maximum(widths, 0))
        if self._topk.policy == "thompson":
            # No entry is above the diagonal's largest: this is more than single precision took off any eigenvalue.
            root = np.linalg.cholesky(inverse + 1e-5 * inverse.diagonal().max() * np.eye(len(user.w)))
            drawn = root @ draw.standard_normal(len(user.w))
            moved = user.features.table[places] @ drawn
            return scores + alpha * (moved if others is None else np.concatenate([moved, others @ drawn]))
        return scores

    def _column(
        self, user: User, what: str, places: Any, others: Matrix | None, make: Callable[[Matrix], Vector]
    ) -> Vector:
        """What is made of the candidates' features; of the catalogue's items it is remembered by user and version."""
        key = (user.features.theta, *user.version, what)
        column = self._recent.get(key) if user.version else None
        if column is None:
            column = np.full(len(user.features.items), np.nan)
            if user.version:
                self._recent.put(key, column, column.nbytes)
        found = column[places]
        missing = places[np.isnan(found)]
        if len(missing):
            column[missing] = make(user.features.table[missing])
            found = column[places]
        return found if others is None else np.concatenate([found, make(others)])

    def _fill(self, potentials: Vector, k: int, draw: np.random.Generator) -> tuple[list[int], list[tuple[int, float]]]:
        """The candidates of each slot, and the slots filled at random with their items' probabilities."""
        k = min(k, len(potentials))
        if k == 0:
            return [], []
        best = np.argpartition(-potentials, k - 1)[:k]
        best = best[np.argsort(-potentials[best], kind="stable")]
        if not self._topk.share:
            return best.tolist(), []
        free = np.ones(len(potentials), np.bool_)
        ranked, chosen, random = iter(best.tolist()), [], []
        for slot in range(k):
            if draw.random() < self._topk.share:
                left = np.flatnonzero(free)
                at = int(draw.choice(left))
                random.append((slot, self._topk.share / len(left)))
            else:
                at = next(each for each in ranked if free[each])
            free[at] = False
            chosen.append(at)
        return chosen, random
