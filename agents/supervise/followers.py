"""When a dead member of a stateful shard is started again: not before the one that follows it has had its time.

Loading a model takes the processor for seconds, and on a small machine that is the processor on which a backup takes
over. So the dead primary's place is filled a moment later where another member of its shard is ready. A dead backup
has nobody to give way to. Where the follower dies as well, the wait is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.supervise.child import MEMBER
from agents.supervise.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.supervise.child import Child


def give_way(dead: Child, children: Sequence[Child]) -> None:
    """Have a dead primary come back later if somebody is ready to follow it."""
    if _followed(dead, children):
        dead.life.put_off()


def hasten_unfollowed(children: Sequence[Child]) -> None:
    for child in children:
        if child.plan.role == MEMBER and child.life.died and not _followed(child, children):
            child.life.hasten()


def _followed(dead: Child, children: Sequence[Child]) -> bool:
    place = dead.plan.stage, dead.plan.shard
    return any(
        child.plan.role == MEMBER
        and (child.plan.stage, child.plan.shard) == place
        and child.life.state is State.RUNNING
        and child is not dead
        for child in children
    )
