"""What a message may hold at most. Every bound is checked before anything of that size is allocated."""

from __future__ import annotations

from dataclasses import dataclass, fields

from spillway.lineage import reasons
from spillway.lineage.errors import UsageError, WireError

MAX_QUANTILES = 64  # of one summary in a replica's word

_NUMPY_RANK = 64
_LETTER_BYTES = 64 << 10
_DEEPEST = 100  # the decoders recurse once a level; the interpreter's own limit is 1,000


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one message. The defaults suit a broker whose `max.message.bytes` is raised to 8 MiB.

    A decoded message takes at most its own length plus 400 bytes for each of its values (1,200 where another version
    of the schema wrote it): the smallest values take a byte on the wire and a whole Python object in memory.
    """

    max_message_bytes: int = 8 << 20
    max_values: int = 16_384  # map entries and list items, all levels together
    max_entries: int = 1_024  # of one map
    max_depth: int = 16  # lists and maps within one another
    max_rank: int = 16
    max_tensor_bytes: int = 8 << 20
    max_string_bytes: int = 1 << 20  # of one string or bytes value
    max_name_bytes: int = 256
    max_timings: int = 256

    def __post_init__(self) -> None:
        for bound in fields(self):
            if getattr(self, bound.name) < 1:
                raise UsageError(f"limit {bound.name} must be at least 1, not {getattr(self, bound.name)}")
        for name, most in (("max_rank", _NUMPY_RANK), ("max_depth", _DEEPEST)):
            if getattr(self, name) > most:
                raise UsageError(f"limit {name} must be at most {most}, not {getattr(self, name)}")

    @property
    def max_letter_bytes(self) -> int:
        """Of a dead letter: any message within the limits fits into one, with its headers and the reason."""
        return self.max_message_bytes + _LETTER_BYTES


DEFAULT_LIMITS = Limits()
LOOSEST_LIMITS = Limits(max_depth=_DEEPEST, max_rank=_NUMPY_RANK, max_values=1 << 40, max_tensor_bytes=1 << 40)
"""For what a user reads on this machine: it is held to the pipeline's limits when it is sent."""


def limit_of_text(most: int, limits: Limits) -> str:
    return "max_name_bytes" if most == limits.max_name_bytes else "max_string_bytes"


def too_large(what: str, most: int, limit: str = "") -> WireError:
    """The error for something over a bound; `limit`: the field of `Limits` that it is, if it is one."""
    name = f" (limits: {limit})" if limit else ""
    return WireError(reasons.TOO_LARGE, f"{what} is over the limit of {most}{name}")
