"""Where the branches of a simulated request meet again: the joins, and the gate at the end.

The decision is the live join's, from the same table. What the live one guards against does not happen here (copies,
contradictions, senders that fall silent), so a branch is no more than a number here, and nothing times out.
"""

from __future__ import annotations

from agents.core.join_rules import COMPLETE, OPEN, TABLES, Rule, Verdict

_WAITING = Verdict.WAITING


class Meeting:
    """One place where several branches of a request are expected."""

    __slots__ = ("_open", "_table")

    def __init__(self, rule: Rule) -> None:
        self._table = TABLES[rule.mode, rule.on_loss]
        # By request: branches not heard of, whether one delivered, whether one was lost, whether it is closed.
        # Forgotten when all were heard.
        self._open: dict[int, list[int]] = {}

    def hear(self, index: int, expected: int, *, results: int = 0, losses: int = 0) -> Verdict:
        """Note that branches of request `index` delivered or were lost; say once that it is READY or LOST."""
        state = self._open.get(index)
        if state is None:
            state = self._open[index] = [expected, False, False, False]
        state[0] -= results + losses
        missing, _, _, closed = state
        if missing <= 0:
            del self._open[index]
        if closed:
            return Verdict.LATE
        if results:
            state[1] = True
        if losses:
            state[2] = True
        verdict = self._table[bool(state[1]), bool(state[2])][OPEN if missing > 0 else COMPLETE]
        if verdict is not _WAITING:
            state[3] = True
        return verdict
