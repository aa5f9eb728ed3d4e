"""Tokens: which version of a learner's state has an observation, as its acknowledgement says.

As text: `taste/0/5/17` is version 17, of epoch 5, of shard 0 of the learner `taste`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from spillway.lineage.errors import UsageError

_TEXT: Final = re.compile(r"([A-Za-z0-9_-]{1,249})/(\d{1,6})/(\d{1,18})/(\d{1,18})")


class Token(NamedTuple):
    """A version of one shard of a learner."""

    learner: str
    shard: int
    epoch: int
    n: int

    def __str__(self) -> str:
        return "/".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Token:
        """The token in a text. Raises UsageError for what is none."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise UsageError(f"{text!r:.80} is not a token; a token looks like taste/0/5/17")
        learner, *numbers = found.groups()
        return cls(learner, *map(int, numbers))
