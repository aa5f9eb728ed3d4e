"""Where branches of a request meet again: the joins, and the gate at the end."""

from __future__ import annotations

from typing import Literal

WAIT, GO, LOST = 0, 1, 2


class Meeting:
    """One place where several branches of a request are expected; tells once per request that it goes on, or is lost.

    `all` goes on when every branch has delivered; a lost branch loses the request at once, or, with `partial`, only
    when no branch is left. `any` goes on with the first result and is lost when all branches are.
    """

    __slots__ = ("_mode", "_open", "_partial")

    def __init__(self, mode: Literal["all", "any"], *, partial: bool = False) -> None:
        self._mode = mode
        self._partial = partial
        # By request: branches not heard of, results, whether it was told; forgotten when all were heard.
        self._open: dict[int, list[int]] = {}

    def hear(self, index: int, expected: int, *, results: int = 0, losses: int = 0) -> int:
        """Note that branches of request `index` delivered or were lost; return GO or LOST once, else WAIT."""
        state = self._open.get(index)
        if state is None:
            state = self._open[index] = [expected, 0, 0]
        state[0] -= results + losses
        state[1] += results
        if state[0] <= 0:
            del self._open[index]
        if state[2]:
            return WAIT
        verdict = self._verdict(state[0], state[1], losses)
        state[2] = verdict
        return verdict

    def _verdict(self, missing: int, results: int, losses: int) -> int:
        if self._mode == "any":
            if results:
                return GO
            return WAIT if missing else LOST
        if losses and not self._partial:
            return LOST
        if missing:
            return WAIT
        return GO if results else LOST
