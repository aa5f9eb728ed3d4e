"""The wait of a standby: a process with its model loaded that is in no group, until it is told whose place to take.

It waits for one line on its stdin, `take R`: from then on it is replica R of its stage, and joins the stage's group
under that replica's static name. If the one before it died without leaving, the broker hands over its partitions at
once, instead of after the session timeout. `spillway serve` says the line when it sees its child die; an orchestrator
that starts `spillway serve ... --stage S --standby` has to say it itself, once, and only of a replica that is dead:
of two that live under one name the broker fences the older.

A standby whose stdin ends without a word can never be told anything, so it ends, with an error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TextIO

from spillway.agents.live.groups import standby_label
from spillway.agents.live.registry import Entry
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from spillway.agents.live.stage.config import StageProcessConfig

log = logging.getLogger(__name__)

_WORD = "take"


def wait_to_take(stream: TextIO, config: StageProcessConfig) -> int:
    """Say in the run directory that the standby is ready; return the replica whose place it is to take.

    Raises UsageError where the stream ends first.
    """
    stage, number = config.stage, config.replica
    label = standby_label(stage, number)
    entry = Entry(config.run_dir, config.pipeline.spec.name, stage, number, role="standby", label=label)
    try:
        entry.mark_ready()
        log.info("%s: ready, waiting for a replica to replace", label)
        for line in stream:
            replica = replica_in(line)
            if replica is not None:
                log.info("%s: takes the place of %s.%d", label, stage, replica)
                return replica
            log.warning("%s: %r is not a command of a standby; it waits for '%s REPLICA'", label, line[:80], _WORD)
    finally:
        entry.close()
    raise UsageError(
        f"{label}: its stdin ended before a line '{_WORD} REPLICA' came; start a standby with a stdin that stays open"
    )


def replica_in(line: str) -> int | None:
    """The replica that a line tells to take; None where it is another line."""
    words = line.split()
    if len(words) == 2 and words[0] == _WORD and words[1].isascii() and words[1].isdigit():  # noqa: PLR2004 - word and number
        return int(words[1])
    return None
