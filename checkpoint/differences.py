"""What differs between two states of a stage, entry by entry; of a keyed one, key by key.

Elements are compared by their bits, so a NaN that stayed is no change and a zero that changed its sign is one. How far
numbers are apart is told beside that, as the largest absolute difference over the elements where both are finite.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import nan
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.checkpoint import arrays
from spillway.checkpoint.state import flatten
from spillway.lineage.values.tensors import BFLOAT16, DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spillway.checkpoint.state import Flat
    from spillway.lineage.replication import Entry

    Keyed = Mapping[str, Mapping[Any, Any]]

_STRETCH: Final = 1 << 20  # elements that are compared at once, so that memory stays bounded
_HALF_WORD: Final = 16  # bits of a float32 that bfloat16 lacks


class What(Enum):
    """What has become of an entry."""

    ADDED = "added"
    REMOVED = "removed"
    RETYPED = "retyped"  # another kind, dtype or shape
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs."""

    name: str
    what: What
    before: Entry | None
    after: Entry | None
    elements: int = 0  # of a tensor
    changed: int = 0  # of these
    largest: float | None = None  # absolute difference; None: of no numbers, nan: never were both finite
    values: tuple[Any, Any] | None = None  # of a small value, as Avro has them


@dataclass(frozen=True, slots=True)
class KeyDifferences:
    """What became of the keys of a keyed state."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, tuple[Difference, ...]] = field(default_factory=dict)
    same: int = 0


def between(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> tuple[Difference, ...]:
    """Every entry that differs, in the order of `before`, then what is new."""
    return tuple(_differences(_Leaves(flatten(before)), _Leaves(flatten(after))))


def between_keys(before: Keyed, after: Keyed) -> KeyDifferences:
    common = sorted(before.keys() & after.keys())
    found = {key: between(before[key], after[key]) for key in common}
    changed = {key: differences for key, differences in found.items() if differences}
    return KeyDifferences(
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(before.keys() - after.keys())),
        changed,
        len(common) - len(changed),
    )


class _Leaves:
    """A state's leaves by name."""

    def __init__(self, flat: Flat) -> None:
        tensors = iter(flat.tensors)
        self.entries = {entry.name: entry for entry in flat.entries}
        self.tensors = {entry.name: next(tensors) for entry in flat.entries if entry.dtype}
        self.values = flat.values


def _differences(one: _Leaves, other: _Leaves) -> Iterator[Difference]:
    for name, before in one.entries.items():
        after = other.entries.get(name)
        if after is None:
            yield Difference(name, What.REMOVED, before, None)
        elif before != after:
            yield Difference(name, What.RETYPED, before, after)
        elif not before.dtype:
            values = one.values[name], other.values[name]
            if repr(values[0]) != repr(values[1]):
                yield Difference(name, What.CHANGED, before, after, values=values)
        else:
            found = _compared(before, one.tensors[name], other.tensors[name])
            if found.changed:
                yield found
    for name, after in other.entries.items():
        if name not in one.entries:
            yield Difference(name, What.ADDED, None, after)


def _compared(entry: Entry, one: arrays.Array, other: arrays.Array) -> Difference:
    size = arrays.itemsize(entry.dtype)
    bits = [arrays.flat(array).reshape(-1, size) for array in (one, other)]
    elements, changed, largest = len(bits[0]), 0, nan
    for at in range(0, elements, _STRETCH):
        left, right = (each[at : at + _STRETCH] for each in bits)
        differs = (left != right).any(axis=1)
        count = int(differs.sum())
        if count:
            changed += count
            apart = _apart(entry.dtype, left[differs], right[differs])
            largest = float(np.fmax(largest, apart))
    return Difference(entry.name, What.CHANGED, entry, entry, elements, changed, largest)


def _apart(dtype: str, left: arrays.Array, right: arrays.Array) -> float:
    """The largest absolute difference of elements that are given as their bytes; nan if none are both finite."""
    one, other = (_numbers(dtype, each) for each in (left, right))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(one - other)
    apart = apart[np.isfinite(one) & np.isfinite(other)]
    return float(apart.max()) if apart.size else nan


def _numbers(dtype: str, elements: arrays.Array) -> arrays.Array:
    raw = np.ascontiguousarray(elements).reshape(-1)
    if dtype == BFLOAT16:
        return (raw.view("<u2").astype(np.uint32) << _HALF_WORD).view(np.float32).astype(np.float64)
    numbers = raw.view(DTYPES[dtype])
    return numbers.astype(np.complex128 if numbers.dtype.kind == "c" else np.float64)
