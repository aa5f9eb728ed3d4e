"""Partitions by key, as Java's clients choose them: murmur2, so that producers in any language agree."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_BYTES: Final = 4  # of a word
_ENDINGS: Final = 1024  # with one partition wanted of 64, one key in ten million finds none


def partition_for(key: bytes, partitions: int) -> int:
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return (murmur2(key) & _POSITIVE) % partitions


def murmur2(data: bytes) -> int:
    h = _words(_SEED ^ len(data), data)
    rest = data[len(data) & -_BYTES :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _WORD
    return _finished(h)


def ending_for(stem: bytes, wanted: Container[int], partitions: int) -> str:
    """Return four digits that, behind a stem of whole words, make a key of one of the `wanted` partitions.

    The stem is hashed once, and each try costs a word: as many are made as there are partitions for each that is
    wanted. Where none is found, which happens where few of very many are wanted, it is the last ending tried.
    """
    h = _words(_SEED ^ (len(stem) + _BYTES), stem) * _M & _WORD
    for ending, mixed in _endings():
        if (_finished(h ^ mixed) & _POSITIVE) % partitions in wanted:
            return ending
    return _endings()[-1][0]


def _words(h: int, data: bytes) -> int:
    for word in struct.unpack_from(f"<{len(data) >> 2}I", data):
        h = (h * _M & _WORD) ^ _mixed(word)
    return h


def _mixed(word: int) -> int:
    k = word * _M & _WORD
    return (k ^ k >> 24) * _M & _WORD


def _finished(h: int) -> int:
    h = (h ^ h >> 13) * _M & _WORD
    return h ^ h >> 15


@cache
def _endings() -> list[tuple[str, int]]:
    return [(ending := f"{n:04x}", _mixed(int.from_bytes(ending.encode(), "little"))) for n in range(_ENDINGS)]
