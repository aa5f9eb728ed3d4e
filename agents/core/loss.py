"""Why a request ends before its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lineage.message import OutcomeKind


@dataclass(slots=True, frozen=True)
class Loss:
    """Why a request does not go on from this stage."""

    kind: OutcomeKind  # dropped or failed
    reason: str  # a code of lineage.reasons
    text: str = ""
    short: float = 0.0  # seconds by which the estimate missed the deadline; 0 where none was made
