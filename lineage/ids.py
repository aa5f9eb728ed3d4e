"""Request ids: what one may be, and how a client makes one."""

from __future__ import annotations

import os
from typing import Final

MAX_REQUEST_ID: Final = 128


def new_request_id() -> str:
    return os.urandom(16).hex()


def made_at(_request_id: str) -> float | None:
    """Return when a client of ours made an id, in unix seconds; None for an id that does not tell."""
    return None


def is_request_id(text: str) -> bool:
    """Whether `text` may be a request id: 1 to 128 visible ASCII characters."""
    return 0 < len(text) <= MAX_REQUEST_ID and text.isascii() and text.isprintable() and " " not in text
