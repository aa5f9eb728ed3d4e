"""What a join makes of what it has heard of a request: a table for each rule."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Final, Literal

PAYLOAD_BYTES: Final = 32 << 20  # of the parts that wait in one process, with what they take beside their values


class Verdict(Enum):
    """What became of a request when something was heard of it, or when time ran out."""

    WAITING = "waiting"
    READY = "ready"
    LOST = "lost"
    TIMEOUT = "timeout"
    LATE = "late"  # it was closed before
    KEPT = "kept"  # it was closed before by what may turn out dead, and the part is kept for that (`speculation`)


@dataclass(slots=True, frozen=True)
class Rule:
    """How parts make a whole: wait for `all`, or for `any` of them, and what a loss does."""

    mode: Literal["all", "any"] = "all"
    on_loss: Literal["drop", "partial"] = "drop"
    _: KW_ONLY
    payload_bytes: int = PAYLOAD_BYTES
    """Of the parts that wait in a stage's process; of others the payloads are read again (`joins`)."""


_W, _R, _L = Verdict.WAITING, Verdict.READY, Verdict.LOST
# Rows: what was heard so far. Columns: not yet everybody heard; everybody heard; the time is over.
TABLES: dict[tuple[str, str], dict[tuple[bool, bool], tuple[Verdict, Verdict, Verdict]]] = {
    ("all", "drop"): {
        # (a result, a loss)
        (False, False): (_W, _W, Verdict.TIMEOUT),
        (True, False): (_W, _R, Verdict.TIMEOUT),
        (False, True): (_L, _L, _L),
        (True, True): (_L, _L, _L),
    },
    ("all", "partial"): {
        (False, False): (_W, _W, Verdict.TIMEOUT),
        (True, False): (_W, _R, _R),
        (False, True): (_W, _L, Verdict.TIMEOUT),
        (True, True): (_W, _R, _R),
    },
    ("any", "drop"): {
        (False, False): (_W, _W, Verdict.TIMEOUT),
        (True, False): (_R, _R, _R),
        (False, True): (_W, _L, Verdict.TIMEOUT),
        (True, True): (_R, _R, _R),
    },
}
TABLES["any", "partial"] = TABLES["any", "drop"]  # the first result is never partial
OPEN, COMPLETE, OVER = 0, 1, 2
