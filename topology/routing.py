"""Who sends to whom: for a request with the choices made for it, whom a join hears from and who bears a loss.

A *path* holds the choices: chooser -> the successors it chose, none where the request ended there. A chooser that is
not in it counts as choosing all of its successors. That happens only where the chooser was never to be reached any
more (it, or something before it, lost the request): a pipeline is refused (`spillway.topology.rules.structure`) unless
every message that arrives at a join carries every choice that bears on it. So all messages of a request give the same
answers.

The rule that makes outcomes exactly one: for every request, a join (the gate is one, of the terminals) hears exactly
one thing from each sender that it expects, a result of its own or a loss that stands for it.

* `expected(stage, path)`: the predecessors that a result or a loss will come from.
* `terminals(path)`: the same for the gate: the last stages, or the chooser at which the request ended.
* `rests_on(stage)`: the stages before it whose replicated states its messages may rest on, whatever the path.
* `losses(stage, path)`: where a loss at `stage` has to be told. The stages behind it up to the next joins have a
  single predecessor each, so they will not run, and it speaks for them: each next join is told which of its
  predecessors that silences, and the gate which terminals. What lies behind a join is that join's own business: it
  may go on with what else it gets, and has a loss of its own if it does not.
"""

from __future__ import annotations

from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Final

from spillway.lineage.errors import SpecError
from spillway.topology import dag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.topology.spec import PipelineSpec

    Path = Mapping[str, tuple[str, ...]]
    Choices = tuple[tuple[str, tuple[str, ...]], ...]
    Losses = tuple[tuple[str | None, tuple[str, ...]], ...]

_CACHED: Final = 1_024


class Graph:
    """The edges of a valid pipeline. All answers are tuples in a fixed order, and are remembered, within bounds."""

    def __init__(self, spec: PipelineSpec) -> None:
        """Raises SpecError where the edges are no graph; `topology.load` checks what else a pipeline must be."""
        self.predecessors: Mapping[str, tuple[str, ...]] = {stage.name: stage.after for stage in spec.stages}
        for stage in spec.stages:
            for name in stage.after:
                if name not in self.predecessors:
                    raise SpecError(f"pipeline {spec.name!r}: stage {stage.name!r} comes after an unknown {name!r}")
        self.order = dag.order(self.predecessors)
        if len(self.order) < len(spec.stages):
            raise SpecError(f"pipeline {spec.name!r}: its stages form a cycle, or two have the same name")
        self.successors: Mapping[str, tuple[str, ...]] = dag.reverse(self.predecessors)
        self.roots = tuple(name for name in self.order if not self.predecessors[name])
        self.sinks = tuple(name for name in self.order if not self.successors[name])
        self._choosers = frozenset(stage.name for stage in spec.stages if stage.choose is not None)
        replicated = [stage.name for stage in spec.stages if stage.replicated]
        behind = {name: dag.reach(self.successors[name], self.successors) for name in replicated}
        self._rests_on: dict[str | None, tuple[str, ...]] = {
            stage: tuple(name for name in self.order if stage in behind.get(name, ())) for stage in self.order
        }
        self._rests_on[None] = tuple(name for name in self.order if name in behind)
        self._whole = _Routes(self, ())
        self._of_path = lru_cache(_CACHED)(self._resolve)
        self._of_choices = lru_cache(_CACHED)(partial(_Routes, self))

    def is_join(self, stage: str) -> bool:
        return len(self.predecessors[stage]) > 1

    def is_chooser(self, stage: str) -> bool:
        return stage in self._choosers

    def rests_on(self, stage: str | None) -> tuple[str, ...]:
        """The stages with a replicated state that come before `stage`, which is not among them; None is the gate.

        Whoever works for `stage` has to read their version logs; nobody else has.
        """
        return self._rests_on[stage]

    def expected(self, stage: str, path: Path) -> tuple[str, ...]:
        """The predecessors of `stage` that will be heard from; () if none is to send to it, and for a root."""
        return (self._routes(path) if path else self._whole).expected[stage]

    def terminals(self, path: Path) -> tuple[str, ...]:
        return (self._routes(path) if path else self._whole).terminals

    def losses(self, stage: str, path: Path) -> Losses:
        """Where a loss at `stage` is to be told, and whom it stands for there; the gate is None and comes last."""
        return (self._routes(path) if path else self._whole).losses(stage)

    def _routes(self, path: Path) -> _Routes:
        return self._of_path(tuple(path.items()))

    def _resolve(self, told: Choices) -> _Routes:
        """The answers for what is a choice in a path: it comes off the wire, so it may hold anything."""
        path = dict(told)
        return self._of_choices(
            tuple(
                (name, tuple(successor for successor in self.successors[name] if successor in path[name]))
                for name in self.order
                if name in self._choosers and name in path
            )
        )


class _Routes:
    """The answers for one set of choices."""

    def __init__(self, graph: Graph, choices: Choices) -> None:
        self._graph = graph
        self._sends = {**graph.successors, **dict(choices)}
        self.losses = cache(self._spread)
        reached = dag.reach(graph.roots, self._sends)
        self.expected: dict[str, tuple[str, ...]] = {
            stage: tuple(name for name in before if name in reached and stage in self._sends[name])
            for stage, before in graph.predecessors.items()
        }
        self.terminals = tuple(name for name in graph.order if name in reached and not self._sends[name])

    def _spread(self, stage: str) -> Losses:
        graph = self._graph
        silent: dict[str | None, set[str]] = {}
        behind = [stage]
        while behind:
            name = behind.pop()
            sends = self._sends[name]
            if not sends:
                silent.setdefault(None, set()).add(name)
            for successor in sends:
                if graph.is_join(successor):
                    silent.setdefault(successor, set()).add(name)
                else:
                    behind.append(successor)
        joins: list[str | None] = [name for name in graph.order if name in silent]
        told = [
            (join, tuple(name for name in graph.predecessors[join] if name in silent[join])) for join in joins if join
        ]
        at_end = tuple(name for name in graph.order if name in silent.get(None, ()))
        return (*told, (None, at_end)) if at_end else tuple(told)
