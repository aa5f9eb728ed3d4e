"""A pipeline's bounds on messages: the defaults, with what its spec changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lineage.limits import Limits

if TYPE_CHECKING:
    from topology.spec import LimitsSpec


def merge(spec: LimitsSpec) -> Limits:
    """The bounds to use. Raises UsageError for a value that no message can have."""
    return Limits(**spec.model_dump(exclude_none=True))
