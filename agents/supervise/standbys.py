"""Who takes over from the dead: a standby that is ready goes on in a dead replica's place.

A replica of a stateless stage that died, and is not given up, is taken over by a standby of its stage, if one waits
with its model loaded: at its death, or later while it still backs off. Where none does, the replica itself is started
again as always. Each standby that went is replaced by a new one, so the stage has as many as before, a moment later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.supervise.child import STAGE, STANDBY
from agents.supervise.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agents.supervise.child import Child


def hand_over(children: Sequence[Child], now: float) -> list[tuple[Child, Child]]:
    """Tell standbys to take over from who died; returns the replicas, each with its standby."""
    done = []
    for replica in children:
        if replica.plan.role != STAGE or not replica.life.died:
            continue
        for standby in _waiting(children, replica.plan.stage):
            if replica.take_over(standby, now):
                done.append((replica, standby))
                break
    return done


def _waiting(children: Sequence[Child], stage: str) -> Iterator[Child]:
    return (
        child
        for child in children
        if child.plan.role == STANDBY and child.plan.stage == stage and child.life.state is State.RUNNING
    )
