"""Request ids: what one may be, and how a client makes one."""

from __future__ import annotations

import os
from typing import Final

MAX_REQUEST_ID: Final = 128


def new_request_id() -> str:
    return os.urandom(16).hex()


def is_request_id(text: str) -> bool:
    """Whether `text` may be a request id: 1 to 128 visible ASCII characters."""
    return 0 < len(text) <= MAX_REQUEST_ID and text.isascii() and text.isprintable() and " " not in text
