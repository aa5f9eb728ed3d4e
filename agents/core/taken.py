"""What a record is to the core that it was delivered to."""

from __future__ import annotations

from enum import Enum


class Taken(Enum):
    """What a record is to the core that it was delivered to."""

    FIRST = "first"  # the first copy: the core owes it `done`
    REPEATED = "repeated"  # a later copy: done already
    STRAY = "stray"  # taken before, or below the start: not to be touched
    DEAD = "dead"  # it rests on a state that no recovery reproduces: done already, and not remembered
    KEPT = "kept"  # a later copy of one that may turn out dead: it comes again, or is done, when that is known
