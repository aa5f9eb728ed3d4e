"""What a prediction cache holds of queries and answers: keys, copies of answers, and their sizes.

A key is a keyed blake2b over the inputs and parameters, whatever the order of their names: two queries have one key
only if a model that is deterministic answers them alike. At a join it is over the parts, before the join function runs.
"""

from __future__ import annotations

import copy
import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.models.flagged import Flagged
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.values import tensors

if TYPE_CHECKING:
    from spillway.agents.core.request import Request

_DIGEST: Final = 16  # bytes
_BYTES: Final = 64  # that a value takes beside its content, about


class Keys:
    """Makes the keys of one model's queries. Not for several threads."""

    def __init__(self, model: str, version: str) -> None:
        self._key = hashlib.blake2b(f"{model}\0{version}".encode(), digest_size=_DIGEST).digest()

    def of(self, request: Request) -> bytes:
        hashing = hashlib.blake2b(digest_size=_DIGEST, key=self._key)
        for part in sorted(request.parts, key=lambda part: part.predecessor):
            query = part.payload.message
            _feed(hashing, part.predecessor)
            _feed(hashing, query.inputs)
            _feed(hashing, query.parameters)
        return hashing.digest()


def _feed(hashing: Any, value: Any) -> None:
    """Add a value with its type and length, so that no two different values give the same bytes."""
    if isinstance(value, np.ndarray):
        hashing.update(f"a{value.dtype.str}{value.shape}".encode())
        hashing.update(np.ascontiguousarray(value).data)
    elif tensors.is_tensor(value):
        _feed(hashing, tensors.pack(value, DEFAULT_LIMITS))
    elif isinstance(value, Mapping):
        hashing.update(b"m" + struct.pack("<q", len(value)))
        for name in sorted(value):
            _feed(hashing, name)
            _feed(hashing, value[name])
    elif isinstance(value, str):
        _text(hashing, b"s", value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, bytes | bytearray | memoryview):
        _text(hashing, b"b", bytes(value))
    elif isinstance(value, Sequence):
        hashing.update(b"l" + struct.pack("<q", len(value)))
        for each in value:
            _feed(hashing, each)
    else:  # None, a bool, an int, a float
        _text(hashing, type(value).__name__.encode(), repr(value).encode())


def _text(hashing: Any, kind: bytes, data: bytes) -> None:
    hashing.update(kind + struct.pack("<q", len(data)))
    hashing.update(data)


def kept(output: Mapping[str, Any], flags: Mapping[str, Any] | None) -> tuple[dict[str, Any], int]:
    """A copy of an answer, with its own flags, that no model can change any more, and about how many bytes it takes."""
    value = copy.deepcopy(dict(output))
    return (Flagged(value, **flags), size_of(value) + size_of(flags)) if flags else (value, size_of(value))


def size_of(value: Any) -> int:
    """About how many bytes a value takes."""
    if tensors.is_tensor(value):
        return _BYTES + int(value.bits.nbytes if isinstance(value, tensors.Bfloat16) else value.nbytes)
    if isinstance(value, Mapping):
        return _BYTES + sum(size_of(name) + size_of(each) for name, each in value.items())
    if isinstance(value, str | bytes | bytearray):
        return _BYTES + len(value)
    if isinstance(value, Sequence):
        return _BYTES + sum(map(size_of, value))
    return _BYTES
