"""Codes: k queries made into one parity query, and answers made of the other answers and the parity answer.

ParM, sections 3.1 and 3.2: encoder and decoder are simple and fast, and the parity model learns to make them fit. Row j
of r weighs query i by (i + 1) to the power of j, so that any r missing answers can be solved for (section 3.5). The
paper prints X1 + X2 for both of two rows, which cannot be solved: `same-parity` is that.

Queries and answers are mappings of names to float arrays, each of one shape.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from spillway.agents.models.loading import construct
from spillway.lineage.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

MOST: Final = 8  # queries of a group


class Code(Protocol):
    """How a group of k is coded; one of a user's own is `module:Class`, constructed with k."""

    def encode(self, queries: Sequence[Arrays], row: int) -> dict[str, NDArray[Any]]:
        """Give the parity query of a row for k queries."""

    def decode(self, answers: Sequence[Arrays | None], parities: Mapping[int, Arrays]) -> dict[int, Arrays] | None:
        """Give the missing answers by place, of k with None for each of these, and the rows' answers.

        None where there are too few rows.
        """


class Sum:
    """A weighted sum of queries; a missing answer is the rest of the weighted sum of answers."""

    def __init__(self, k: int) -> None:
        self._k = k

    def weight(self, place: int, row: int) -> float:
        return float((place + 1) ** row)

    def encode(self, queries: Sequence[Arrays], row: int) -> dict[str, NDArray[Any]]:
        def total(name: str) -> NDArray[Any]:
            return reduce(np.add, (self._weighed(query[name], place, row) for place, query in enumerate(queries)))

        return {name: total(name) for name in queries[0]}

    def _weighed(self, query: NDArray[Any], place: int, row: int) -> NDArray[Any]:
        weight = self.weight(place, row)
        return query if weight == 1 else query * query.dtype.type(weight)

    def decode(self, answers: Sequence[Arrays | None], parities: Mapping[int, Arrays]) -> dict[int, Arrays] | None:
        missing = [place for place, answer in enumerate(answers) if answer is None]
        rows = sorted(parities)[: len(missing)]
        if len(rows) < len(missing):
            return None
        weights = np.array([[self.weight(place, row) for place in missing] for row in rows])
        made: dict[int, dict[str, NDArray[Any]]] = {place: {} for place in missing}
        for name, like in parities[rows[0]].items():
            rests = [self._rest(answers, parities[row][name], name, row) for row in rows]
            if len(missing) == 1:
                solved = [rests[0] / weights[0, 0]]
            else:
                flat = np.stack([rest.ravel() for rest in rests])
                solved = [each.reshape(like.shape) for each in np.linalg.solve(weights, flat)]
            for place, value in zip(missing, solved, strict=True):
                made[place][name] = value.astype(like.dtype, copy=False)
        return dict(made)

    def _rest(self, answers: Sequence[Arrays | None], parity: NDArray[Any], name: str, row: int) -> NDArray[Any]:
        rest = parity.astype(np.float64)
        for place, answer in enumerate(answers):
            if answer is not None:
                rest -= self.weight(place, row) * answer[name]
        return rest


class SameParity(Sum):
    """The paper's second row as printed: the same sum again. Two missing answers cannot be told from it."""

    def weight(self, place: int, row: int) -> float:  # noqa: ARG002 - that is its fault
        return 1.0

    def decode(self, answers: Sequence[Arrays | None], parities: Mapping[int, Arrays]) -> dict[int, Arrays] | None:
        return super().decode(answers, parities) if sum(answer is None for answer in answers) == 1 else None


class Concatenation(Sum):
    """Images downsized and put side by side, 2 in a row or 4 in a square (section 4.2); answers are summed as ever.

    The last two axes are height and width, and must be divisible by the grid's.
    """

    def __init__(self, k: int) -> None:
        super().__init__(k)
        self._down = math.isqrt(k)
        self._across = k // self._down
        if self._down * self._across != k:
            raise UsageError(f"encoder 'concatenation' puts 2, 3, 4, 6 or 8 images in a grid, not {k}")

    def encode(self, queries: Sequence[Arrays], row: int) -> dict[str, NDArray[Any]]:
        if row:
            raise UsageError("encoder 'concatenation' has one row; use 'sum' for more")
        return {name: self._grid([query[name] for query in queries]) for name in queries[0]}

    def _grid(self, images: Sequence[NDArray[Any]]) -> NDArray[Any]:
        small = [self._small(image) for image in images]
        lines = [np.concatenate(small[n : n + self._across], axis=-1) for n in range(0, self._k, self._across)]
        return np.concatenate(lines, axis=-2)

    def _small(self, image: NDArray[Any]) -> NDArray[Any]:
        if image.ndim < 2:  # noqa: PLR2004 - height, width
            raise UsageError(
                f"encoder 'concatenation' takes images, and an input of shape {list(image.shape)} is not "
                "an image; use 'sum'"
            )
        *before, height, width = image.shape
        if height % self._down or width % self._across:
            raise UsageError(f"{height} by {width} is not divisible by {self._down} by {self._across}")
        shape = (*before, height // self._down, self._down, width // self._across, self._across)
        small: NDArray[Any] = image.reshape(shape).mean(axis=(-3, -1), dtype=image.dtype)
        return small


CODES: Final[dict[str, type[Sum]]] = {"sum": Sum, "same-parity": SameParity, "concatenation": Concatenation}


def code_of(encoder: str, k: int) -> Code:
    """The code of that name, or of a user's own `module:Class`. Raises ModelError where there is none."""
    if encoder in CODES:
        return CODES[encoder](k)
    if ":" not in encoder:
        raise ModelError(f"there is no encoder {encoder!r}; take {', '.join(CODES)}, or write module:Class")
    code: Code = construct(f"encoder {encoder!r}", encoder, {"k": k})
    return code
