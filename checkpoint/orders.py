"""What a reign orders its driver to do (`checkpoint.reign`); the driver does it in the order in which it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from lineage.marks import Mark, Version
    from lineage.replication import Batch, InputPlace

T = TypeVar("T")  # what a copy of the state is


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy the state, which is at this version, and call `copied`; no update runs until then."""

    version: Version


@dataclass(frozen=True, slots=True)
class Write(Generic[T]):
    """Write this version's chunks; when all are acknowledged and it is sealed, append its manifest.

    `what` is the copy; None where the version is complete with its record alone (`Mode.logs`): its state then is that
    of `state_n` in the copy written before, and the batches after it.
    """

    version: Version
    what: T | None
    state_n: int
    requires: tuple[Mark, ...]
    batches: tuple[Batch, ...]
    inputs: tuple[InputPlace, ...]


@dataclass(frozen=True, slots=True)
class Seal:
    """Everything sent for the versions up to this one is acknowledged."""

    version: Version


@dataclass(frozen=True, slots=True)
class Emit:
    """Send what was held of the versions up to n."""

    n: int


@dataclass(frozen=True, slots=True)
class Release(Generic[T]):
    """Nobody goes back to this copy any more."""

    what: T


Order = Copy | Write[T] | Seal | Emit | Release[T]
