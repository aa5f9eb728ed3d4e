"""Partitions by key, as Java's clients choose them: murmur2, so that producers in any language agree."""

from __future__ import annotations

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


def partition_for(key: bytes, partitions: int) -> int:
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    length = len(data)
    words = length >> 2
    h = _SEED ^ length
    for word in struct.unpack_from(f"<{words}I", data):
        k = word * _M & _WORD
        h = (h * _M & _WORD) ^ ((k ^ k >> 24) * _M & _WORD)
    rest = data[words << 2 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _WORD
    h = (h ^ h >> 13) * _M & _WORD
    return h ^ h >> 15
