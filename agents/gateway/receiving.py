"""What a request over HTTP brings, within bounds: its body, and whose it is.

All bodies and queries under way have `Room`'s bytes together, counted as they come and after they are unpacked; who
finds none is answered 429.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from spillway.agents.gateway.statuses import TOO_MANY, UNREADABLE, RefusedError
from spillway.lineage import reasons
from spillway.lineage.errors import WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

MEBIBYTE: Final = 1 << 20
ROOM_BYTES: Final = 64 * MEBIBYTE
BODY_SECONDS: Final = 30.0
READ: Final = web.RequestKey("read", bool)  # its body has come, and it is being answered
_UNPACKED: Final = frozenset({"", "identity", "gzip", "deflate", "br", "zstd"})  # the last two where they are installed
_JSON_OVERHEAD: Final = 4  # bytes of JSON for one of a message: a float32 of 4 bytes is some 12 characters, and more


class Room:
    """Bytes that may be under way at a time."""

    def __init__(self, most: int = ROOM_BYTES) -> None:
        self.most = most
        self.taken = 0

    def take(self, count: int) -> None:
        if self.taken + count > self.most:
            raise RefusedError(TOO_MANY, f"{self.most >> 20} MiB of requests are under way; try again later")
        self.taken += count

    def give(self, count: int) -> None:
        self.taken -= count

    @contextmanager
    def hold(self, count: int) -> Iterator[None]:
        """Count so many bytes as under way until the context ends. Raises RefusedError where there is no room."""
        self.take(count)
        try:
            yield
        finally:
            self.give(count)


@asynccontextmanager
async def body_of(request: web.Request, room: Room, largest: int) -> AsyncIterator[bytes]:
    """Give a request's body, whose bytes count as under way until the context ends.

    `largest`: bytes of a message of the pipeline. Raises WireError (BAD_INPUT, TOO_LARGE), RefusedError.
    """
    most, held, pieces = largest * _JSON_OVERHEAD, 0, []
    try:
        try:
            async with asyncio.timeout(None if request.content.is_eof() else BODY_SECONDS):
                async for piece in request.content.iter_any():
                    if held + len(piece) > most:
                        raise WireError(reasons.TOO_LARGE, f"the body has more than {most} bytes")
                    room.take(len(piece))
                    held += len(piece)
                    pieces.append(piece)
        except TimeoutError as error:
            raise WireError(reasons.BAD_INPUT, f"the body did not come within {BODY_SECONDS:.0f} s") from error
        except web.RequestPayloadError as error:
            raise WireError(reasons.BAD_INPUT, "the body is not what its headers say; mend its encoding") from error
        request[READ] = True
        yield b"".join(pieces)
    finally:
        room.give(held)


def require_media(request: web.Request, *kinds: str) -> None:
    """Raise RefusedError unless a body says that it is one of `kinds`, which a form never is, and is readable."""
    if request.content_type not in kinds:
        raise RefusedError(UNREADABLE, f"send the header 'Content-Type: {kinds[0]}', not {request.content_type!r:.80}")
    encoding = ", ".join(request.headers.getall("Content-Encoding", ()))
    if encoding.lower() not in _UNPACKED:
        raise RefusedError(UNREADABLE, f"Content-Encoding: gzip and deflate are read here, not {encoding!r:.80}")
