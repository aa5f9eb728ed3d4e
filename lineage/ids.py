"""Request ids: what one may be, and how a client makes one that tells when.

An id of ours begins with its time as a UUIDv7 does, in milliseconds: `<12 digits>-<14 digits>-<8 digits>`, all of them
hexadecimal: the time, random digits of the client, and a count. Four more may follow, chosen for the partition where
they take the id. An id of this form has been made when the query was sent: what is sent again later under an old id is
called otherwise (feedback, retried dead letters, offline jobs), so that nobody looks for it at the wrong time.
"""

from __future__ import annotations

import os
import re
import time
from itertools import count
from typing import TYPE_CHECKING, Final

from spillway.lineage.keys import ending_for

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_REQUEST_ID: Final = 128
_OURS: Final = re.compile(r"([0-9a-f]{12})-[0-9a-f]{14}-[0-9a-f]{8}(?:[0-9a-f]{4})?")
_COUNTED: Final = 0xFFFFFFFF  # the digits of a count; the time has moved on when it starts again


class RequestIds:
    """Makes ids: random once and counted from there, as unique as a random one each time, and cheaper."""

    def __init__(self) -> None:
        self._own = f"-{os.urandom(7).hex()}-"
        self._numbers = count()

    def new(self) -> str:
        return f"{time.time_ns() // 1_000_000:012x}{self._own}{next(self._numbers) & _COUNTED:08x}"

    def new_in(self, wanted: Collection[int], partitions: int) -> str:
        """Return an id which, as a key, goes to one of the `wanted` partitions if one is found."""
        stem = self.new()
        if len(wanted) == partitions:
            return stem
        return stem + ending_for(stem.encode(), wanted, partitions)


def new_request_id() -> str:
    return RequestIds().new()


def made_at(request_id: str) -> float | None:
    """Return when a client of ours made an id, in unix seconds; None for an id that does not tell."""
    ours = _OURS.fullmatch(request_id)
    return int(ours[1], 16) / 1_000 if ours is not None else None


def is_request_id(text: str) -> bool:
    """Whether `text` may be a request id: 1 to 128 visible ASCII characters."""
    return 0 < len(text) <= MAX_REQUEST_ID and text.isascii() and text.isprintable() and " " not in text
