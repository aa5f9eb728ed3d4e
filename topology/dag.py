"""Graphs of names, given as each one's predecessors: an order, the cycles, what can be reached from where."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Edges = Mapping[str, Sequence[str]]


def reverse(edges: Edges) -> dict[str, tuple[str, ...]]:
    """Successors from predecessors, or the other way round; in the order in which the names stand."""
    turned: dict[str, list[str]] = {name: [] for name in edges}
    for name, others in edges.items():
        for other in others:
            turned[other].append(name)
    return {name: tuple(others) for name, others in turned.items()}


def order(predecessors: Edges) -> tuple[str, ...]:
    """Every name after its predecessors, else in the order in which they stand; what a cycle keeps back is left out."""
    successors = reverse(predecessors)
    missing = {name: len(before) for name, before in predecessors.items()}
    ready = deque(name for name, count in missing.items() if count == 0)
    done = []
    while ready:
        name = ready.popleft()
        done.append(name)
        for successor in successors[name]:
            missing[successor] -= 1
            if missing[successor] == 0:
                ready.append(successor)
    return tuple(done)


def reach(start: Iterable[str], edges: Edges) -> set[str]:
    found = set(start)
    open_ = list(found)
    while open_:
        for name in edges[open_.pop()]:
            if name not in found:
                found.add(name)
                open_.append(name)
    return found


def cycles(predecessors: Edges) -> list[tuple[str, ...]]:
    """One shortest cycle for each knot of them, as `(a, b, c)` for a -> b -> c -> a; by the names that stand first."""
    successors = reverse(predecessors)
    left = set(predecessors) - set(order(predecessors))
    found = []
    for name in predecessors:
        if name not in left:
            continue
        cycle = _shortest(name, successors)
        if cycle:
            found.append(cycle)
            left -= reach([name], successors) & reach([name], predecessors)
    return found


def _shortest(start: str, successors: Edges) -> tuple[str, ...]:
    came: dict[str, str] = {}
    open_ = deque([start])
    while open_:
        name = open_.popleft()
        for successor in successors[name]:
            if successor == start:
                way = [name]
                while way[-1] != start:
                    way.append(came[way[-1]])
                return tuple(reversed(way))
            if successor not in came:
                came[successor] = name
                open_.append(successor)
    return ()
