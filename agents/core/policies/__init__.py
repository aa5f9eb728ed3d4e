"""The policies, by the name under which a pipeline or a command selects them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.core.policies.fifo import Expired, Naive
from lineage.errors import UsageError

if TYPE_CHECKING:
    from agents.core.policy import Policy, StageView

POLICIES: dict[str, type[Policy]] = {"naive": Naive, "expired": Expired}
DEFAULT = "naive"


def make(name: str, view: StageView) -> Policy:
    """Make the policy called `name` for one queue. Raises UsageError for a name that is none."""
    try:
        kind = POLICIES[name]
    except KeyError:
        raise UsageError(f"there is no policy {name!r}; the policies are: {', '.join(POLICIES)}") from None
    return kind(view)
