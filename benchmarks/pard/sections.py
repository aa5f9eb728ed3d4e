"""What a section of the comparison is, and the setting that all of them are measured in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agents.core.policies import POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from agents.bench.pard.cases import Case, Figures, Runner
    from agents.bench.pard.output import Table

ALL = ("naive", "nexus", "clipper++", "pard", "spillway")
BASELINES = ("naive", "nexus", "clipper++")
OURS = ("pard", "spillway")

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """How much is measured."""

    runner: Runner
    seconds: int  # of each trace
    seeds: tuple[int, ...]
    quick: bool = False
    long: bool = False  # also what takes minutes alone
    without: tuple[str, ...] = ()  # policies that are left out

    def policies(self, names: Iterable[str] = ALL) -> tuple[str, ...]:
        return tuple(name for name in names if name.partition(":")[0] in POLICIES and name not in self.without)

    def some(self, values: Iterable[Any], few: int = 2) -> list[Any]:
        return list(values)[: few if self.quick else None]


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the comparison. What `measure` gives is plain JSON; tables and charts are made of it alone."""

    name: str
    about: str
    measure: Callable[[Setting], Result]
    tables: Callable[[Result], list[Table]]
    draw: Callable[[Result, Path], list[Path]]


def no_charts(_result: Result, _folder: Path) -> list[Path]:
    return []


def over_seeds(setting: Setting, cases: dict[Any, Case]) -> dict[Any, list[Figures]]:
    repeated = {key: [replace(case, seed=seed) for seed in setting.seeds] for key, case in cases.items()}
    found = setting.runner.run(_flat(repeated.values()))
    return {key: [found[case] for case in group] for key, group in repeated.items()}


def _flat(groups: Iterable[list[Case]]) -> Iterator[Case]:
    for group in groups:
        yield from group
