"""Pipelines in the JSON form of PARD's artifact: modules with name, id, pres (predecessors) and subs (successors).

A module's execution profile stands in `alpha_ms` and `beta_ms`, its planned batch in `batch`; it becomes a stage with
an emulated accelerator. `translate` gives the same values as our own form has, and where each of them came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spillway.topology import names
from spillway.topology.problems import Problem
from spillway.topology.quantities import shown
from spillway.topology.sections import DEFAULT_MAX_BATCH

if TYPE_CHECKING:
    from spillway.topology.problems import Path

    Origins = dict[Path, Path]

_HEAD: Final = {"pipeline": "name", "slo_ms": "slo", "partitions": "partitions", "sinks": "sinks"}
_STAND_IN: Final = 1.0  # for a time that is missing or none: a problem already, it is to cause no other
_MODULE: Final = ("name", "id", "pres", "subs", "alpha_ms", "beta_ms", "batch")


def is_paper(value: Any) -> bool:
    return isinstance(value, dict) and "modules" in value


def translate(value: dict[Any, Any], problems: list[Problem]) -> tuple[dict[str, Any], Origins]:
    """The value in our own form, and for each path in it the path in the file; `problems` have paths in the file."""
    ours: dict[str, Any] = {"name": "unnamed", "slo": _STAND_IN}
    origins: Origins = {(): (), ("stages",): ("modules",)}
    for key, part in value.items():
        if key in _HEAD:
            ours[_HEAD[key]] = _seconds(part, (key,), problems) if key == "slo_ms" else part
            origins[_HEAD[key],] = (key,)
        elif key != "modules":
            text = f"there is no such field; {names.meant(str(key), (*_HEAD, 'modules'))}"
            problems.append(Problem((key,), text, on_key=True))
    missing = [field for field in ("pipeline", "slo_ms") if field not in value]
    problems += [Problem((field,), "is missing; add it") for field in missing]
    modules = value["modules"]
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        problems.append(Problem(("modules",), "must be a list of modules, each with name, id, pres and subs"))
        return ours, origins
    edges = _Edges(modules, problems)
    ours["stages"] = [_stage(number, module, edges, origins, problems) for number, module in enumerate(modules)]
    return ours, origins


def _stage(
    number: int, module: dict[Any, Any], edges: _Edges, origins: Origins, problems: list[Problem]
) -> dict[str, Any]:
    here: Path = ("modules", number)
    there: Path = ("stages", number)
    for key in module:
        if key not in _MODULE:
            text = f"there is no such field; {names.meant(str(key), _MODULE)}"
            problems.append(Problem((*here, key), text, on_key=True))
    problems += [
        Problem((*here, field), "is missing; add it")
        for field in ("name", "id", "alpha_ms", "beta_ms")
        if field not in module
    ]
    stage: dict[str, Any] = {"name": module["name"]} if "name" in module else {}
    stage["after"] = []
    for position, (before, path) in enumerate(edges.before[number]):
        stage["after"].append(before)
        origins[*there, "after", position] = path
    stage["emulated"] = {
        ours: _seconds(module[field], (*here, field), problems) if field in module else _STAND_IN
        for ours, field in (("alpha", "alpha_ms"), ("beta", "beta_ms"))
    }
    if "batch" in module:
        batch = module["batch"]
        stage["batching"] = {"size": batch}
        if type(batch) is int and batch > DEFAULT_MAX_BATCH:
            stage["batching"]["max"] = batch
        for steps in ((), ("size",), ("max",)):
            origins[*there, "batching", *steps] = (*here, "batch")
    origins[there] = here
    origins[*there, "after"] = (*here, "pres")
    for ours, field in (("name", "name"), ("emulated", "alpha_ms")):
        origins[*there, ours] = (*here, field)
    for ours, field in (("alpha", "alpha_ms"), ("beta", "beta_ms")):
        origins[*there, "emulated", ours] = (*here, field)
    return stage


class _Edges:
    """Who comes before whom: `pres` where a module has it, else the `subs` of the others; both must say the same."""

    def __init__(self, modules: list[dict[Any, Any]], problems: list[Problem]) -> None:
        self._problems = problems
        self._numbers: dict[Any, int] = {}  # by id
        for number, module in enumerate(modules):
            key = module.get("id")
            if type(key) not in (int, str):
                if "id" in module:
                    problems.append(Problem(("modules", number, "id"), "must be a whole number or text"))
            elif self._numbers.setdefault(key, number) != number:
                text = f"module {modules[self._numbers[key]].get('name')!r} also has the id {key!r}; use another"
                problems.append(Problem(("modules", number, "id"), text))
        pres = [self._ids(number, module, "pres") for number, module in enumerate(modules)]
        subs = [self._ids(number, module, "subs") for number, module in enumerate(modules)]
        self._compare(modules, pres, subs)
        self.before: list[list[tuple[Any, Path]]] = []
        for number, module in enumerate(modules):
            found = pres[number] if "pres" in module else _turned(subs, number)
            self.before.append([(modules[other].get("name"), path) for other, path in found.items()])

    def _ids(self, number: int, module: dict[Any, Any], field: str) -> dict[int, Path]:
        found: dict[int, Path] = {}
        ids = module.get(field, [])
        if not isinstance(ids, list):
            self._problems.append(Problem(("modules", number, field), "must be a list of modules' ids"))
            return found
        for position, key in enumerate(ids):
            path: Path = ("modules", number, field, position)
            other = self._numbers.get(key) if type(key) in (int, str) else None
            if other is None:
                known = ", ".join(map(repr, self._numbers)) or "none"
                self._problems.append(Problem(path, f"there is no module with the id {key!r:.40}; known: {known}"))
            elif other in found:
                self._problems.append(Problem(path, f"the id {key!r} is named twice; keep one"))
            else:
                found[other] = path
        return found

    def _compare(self, modules: list[dict[Any, Any]], pres: list[dict[int, Path]], subs: list[dict[int, Path]]) -> None:
        for mine, other, field in ((pres, subs, "subs"), (subs, pres, "pres")):
            for number, found in enumerate(mine):
                key = modules[number].get("id")
                known = type(key) in (int, str) and self._numbers[key] == number
                for near, path in found.items():
                    if known and isinstance(modules[near].get(field), list) and number not in other[near]:
                        name = modules[near].get("name")
                        text = f"{field} of {name!r} does not name {key!r} in turn; add it there, or take this out"
                        self._problems.append(Problem(path, text))


def _turned(subs: list[dict[int, Path]], number: int) -> dict[int, Path]:
    return {other: found[number] for other, found in enumerate(subs) if number in found}


def _seconds(value: Any, path: Path, problems: list[Problem]) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        problems.append(Problem(path, f"must be a number of milliseconds, not {shown(value)}"))
        return _STAND_IN
    return value / 1_000
