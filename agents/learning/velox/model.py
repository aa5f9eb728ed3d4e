"""What a user writes of a Velox model, and the features that it gives (thesis, Listing 2.2)."""

from __future__ import annotations

import copy
import hashlib
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

import numpy as np

from spillway.agents.learning.velox.als import als
from spillway.agents.learning.velox.weights import ERRORS
from spillway.agents.models.model_errors import words_of
from spillway.agents.recent import Recent
from spillway.lineage.errors import ModelError
from spillway.topology.names import meant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.learning.velox.prior import Prior
    from spillway.agents.learning.velox.weights import Matrix, Vector

Item = Any  # a text, an int: what a message can hold and a mapping can have as a key


Parameters = dict[str, Any]  # of features: arrays by name


class Seen(NamedTuple):
    """Observations to train from, user by user, each user's in their order, and the weights that the users have."""

    users: list[str]
    items: list[Item]
    values: Vector
    weights: Mapping[str, Vector]  # over the features as they are, by user


class VeloxModel:
    """Base of a user's class, which a stage and a learner name as `model: velox:module:Class`.

    The features of an item are a row of `table`, or what `features` computes. `items` is the catalogue, which the table
    has in its order; it may be empty where features are computed.
    """

    dimension: int
    theta = ""  # names the parameters of the features: other parameters, another name. Of a table by default its hash
    items: Sequence[Item] = ()
    table: Matrix | None = None
    regularization: float = 1.0
    prior: Prior | None = None  # what users begin with, of who has trained the table; None: lambda I, and their mean
    error: ClassVar[str] = "squared"  # what an update minimises: one of weights.ERRORS
    observations: ClassVar[int] = 1000  # of each user, kept for retraining
    publish_inverse: ClassVar[bool] = True  # d x d numbers a user; linucb and thompson want them

    def features(self, item: Item) -> Vector:
        """Compute an item's features, `dimension` numbers; only for items that are not in the table."""
        raise ModelError(f"item {item!r:.80} is not in the table of {type(self).__name__}")

    def retrain(self, seen: Seen) -> Mapping[str, Any]:
        """The parameters of new features, as arrays by name (thesis, Listing 2.2). In a process of its own.

        Provided for a table: alternating least squares from it on. Items that nobody has rated keep their features.
        """
        if self.table is None:
            raise ModelError(
                f"{type(self).__name__} has no table to retrain; give the class the methods retrain and renewed"
            )
        places = {item: place for place, item in enumerate(self.items)}
        known = [at for at, item in enumerate(seen.items) if item in places]
        numbers = {user: number for number, user in enumerate(dict.fromkeys(seen.users))}
        users = np.array([numbers[seen.users[at]] for at in known], np.intp)
        items = np.array([places[seen.items[at]] for at in known], np.intp)
        shape = len(numbers), len(places)
        rating = {"rank": self.dimension, "regularization": self.regularization}
        return {"table": als(users, items, seen.values[known], shape, **rating, start=np.array(self.table))[1]}  # type: ignore[arg-type]

    def renewed(self, parameters: Mapping[str, Any]) -> Self:
        """Make the same model with other parameters. Provided: they are set as attributes of their names."""
        made = copy.copy(self)
        for name, value in parameters.items():
            setattr(made, name, value)
        return made

    def loss(self, observed: float, predicted: float, item: Item, user: str) -> float:  # noqa: ARG002 - for subclasses
        """How bad a prediction was, for the running error."""
        return (observed - predicted) ** 2


_FEATURES_BYTES: Final = 64 << 20


class Features:
    """The features of items: rows of a table, else computed and remembered by (theta, item)."""

    def __init__(self, model: VeloxModel, max_bytes: int = _FEATURES_BYTES) -> None:
        """Raises ModelError for a model whose parts do not fit together."""
        if model.error not in ERRORS:
            raise ModelError(f"there is no error {model.error!r}; {meant(model.error, ERRORS)}")
        self.model = model
        self._recent = Recent(max_bytes)
        self.items = list(model.items)
        self.theta = model.theta
        if model.table is not None:
            self.table = np.ascontiguousarray(model.table, np.float64)
            self.theta = self.theta or hashlib.sha256(self.table.tobytes()).hexdigest()[:16]
        else:
            self.table = np.array([self._computed(item) for item in self.items]).reshape(-1, model.dimension)
        if self.table.shape != (len(self.items), model.dimension):
            raise ModelError(
                f"the table is {self.table.shape}, and there are {len(self.items)} items of {model.dimension} features"
            )
        self.all = np.arange(len(self.items))
        self.places = {item: place for place, item in enumerate(self.items)}
        if len(self.places) < len(self.items) or not np.isfinite(self.table).all():
            raise ModelError("an item is in the catalogue twice, or a feature in the table is not a finite number")

    def of(self, item: Item) -> Vector:
        """Raises ModelError for an item that has none, or wrong ones."""
        place = self.places.get(item)
        if place is not None:
            return self.table[place]  # type: ignore[no-any-return]
        key = self.theta, item
        found = self._recent.get(key)
        if found is None:
            found = self._computed(item)
            self._recent.put(key, found, found.nbytes)
        return found  # type: ignore[no-any-return]

    def known(self, items: Sequence[Item]) -> list[Vector | None]:
        """The features of items; None for one that has none, which is told to who asks for that."""
        found: list[Vector | None] = []
        for item in items:
            try:
                found.append(self.of(item))
            except ModelError:
                found.append(None)
        return found

    def recent(self, most: int) -> list[Item]:
        """The items whose features were computed, the most recently used last."""
        return [item for _, item in self._recent.keys()[-most:]]

    def _computed(self, item: Item) -> Vector:
        try:
            made = np.asarray(self.model.features(item), np.float64)
        except ModelError:
            raise
        except BaseException as error:
            raise ModelError(f"{type(self.model).__name__}.features({item!r:.80}) raised {words_of(error)}") from error
        if made.shape != (self.model.dimension,) or not np.isfinite(made).all():
            raise ModelError(
                f"{type(self.model).__name__}.features({item!r:.80}) must be {self.model.dimension} finite numbers"
            )
        return made
