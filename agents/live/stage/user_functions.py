"""The functions that a stage's author may name: how to join parts, choose successors and split outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agents.models.loading import load_function
from agents.models.raised import RaisedLog
from lineage import reasons
from lineage.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.spec import StageSpec

Parts = dict[str, dict[str, Any]]  # predecessor -> its outputs


class UserFunctions:
    """What a stage does around its model. Each method raises WireError(BAD_ROUTE) where the author's code does not fit.

    `successors` are the stages that an edge leads to; empty for a sink.
    """

    def __init__(self, spec: StageSpec, successors: tuple[str, ...]) -> None:
        self._successors = successors
        self.raised = RaisedLog(spec.name)  # for all code of the author's that the stage runs
        self._join = _optional(spec.name, "join", spec.join.function if spec.join else None)
        self._split = _optional(spec.name, "split", spec.split)
        self._choose = _optional(spec.name, "choose", spec.choose)

    def join(self, parts: Parts) -> dict[str, Any]:
        """Make one query's inputs of what its predecessors delivered; by default `{predecessor.name: value}`."""
        if self._join is None:
            return {f"{stage}.{name}": value for stage, outputs in parts.items() for name, value in outputs.items()}
        return self._mapping("join", self._call("join", self._join, parts))

    def route(self, outputs: dict[str, Any]) -> tuple[tuple[str, ...] | None, dict[str | None, dict[str, Any]]]:
        """Return the chosen successors (None where there is no choice) and what to send to each; None is the gate."""
        chosen = self._chosen(outputs)
        targets: tuple[str | None, ...] = (chosen if chosen is not None else self._successors) or (None,)
        if self._split is None or targets == (None,):
            return chosen, dict.fromkeys(targets, outputs)
        shares = self._mapping("split", self._call("split", self._split, outputs))
        missing = [target for target in targets if target not in shares]
        if missing:
            raise WireError(reasons.BAD_ROUTE, f"split gave nothing for {', '.join(map(str, missing))}")
        return chosen, {target: self._mapping(f"split for {target}", shares[str(target)]) for target in targets}

    def _chosen(self, outputs: dict[str, Any]) -> tuple[str, ...] | None:
        if self._choose is None:
            return None
        answer = self._call("choose", self._choose, outputs)
        names = (answer,) if isinstance(answer, str) else tuple(answer if answer is not None else ())
        strangers = [name for name in names if name not in self._successors]
        if strangers:
            known = ", ".join(self._successors)
            raise WireError(
                reasons.BAD_ROUTE, f"choose named {strangers[0]!r}, which is no successor; those are {known}"
            )
        return tuple(name for name in self._successors if name in names)

    def _call(self, role: str, function: Callable[..., Any], argument: Any) -> Any:
        try:
            return function(argument)
        except (Exception, SystemExit) as error:
            raise WireError(reasons.BAD_ROUTE, f"{role} raised {self.raised.words(error, role)}") from error

    @staticmethod
    def _mapping(role: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise WireError(reasons.BAD_ROUTE, f"{role} returned {type(value).__name__}, not a mapping")
        return dict(value)


def _optional(stage: str, role: str, name: str | None) -> Callable[..., Any] | None:
    return load_function(stage, role, name) if name else None
