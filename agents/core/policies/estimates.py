"""The ablations that estimate less, or more, of the later stages than PARD does (section 5.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, final

from agents.core.estimates.outlook import Later
from agents.core.policies.pard import Pard

if TYPE_CHECKING:
    from agents.core.request import Path


class _OtherWaits(Pard):
    """Several paths may be worst by another measure: each variant looks for its own worst path."""

    __slots__ = ()

    def later(self, choices: Path) -> Later:
        outlook, stage = self._outlook, self.view.stage
        return max(
            (
                self.terms(
                    Later(
                        sum(outlook.queueing(each) for each in path),
                        sum(outlook.duration(each) for each in path),
                        outlook.hops(path),
                        path,
                    )
                )
                for path in outlook.paths(stage, choices)
            ),
            key=lambda later: later.total,
        )

    def terms(self, later: Later) -> Later:
        raise NotImplementedError


@final
class Back(_OtherWaits):
    """L_sub = 0: only what lies behind the request, and this stage."""

    __slots__ = ()

    def terms(self, later: Later) -> Later:
        return Later(path=later.path)


@final
class ShortestFuture(_OtherWaits):
    """L_sub = sum d_i: later stages execute at once."""

    __slots__ = ()

    def terms(self, later: Later) -> Later:
        return replace(later, queueing=0.0)


@final
class Lower(_OtherWaits):
    """L_sub = sum q_i + sum d_i: no batch waits."""

    __slots__ = ()

    def terms(self, later: Later) -> Later:
        return later


@final
class Upper(_OtherWaits):
    """L_sub = sum q_i + 2 sum d_i: every batch wait as long as it can be."""

    __slots__ = ()

    def terms(self, later: Later) -> Later:
        return replace(later, waits=later.waits + later.execution)
