"""Whether the packages that Spillway consists of are its own: `agents` is also what another popular library installs.

What lies in the place of one of them would be run as ours, and fail with an error that nobody can make sense of (or do
something else). So nothing of theirs is imported before their files have been looked at.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

PACKAGES = ("lineage", "topology", "checkpoint", "producers", "agents")

_FIX = "Install Spillway in an environment of its own (a new venv, or pipx), or use the container"


class ForeignPackageError(ImportError):
    """A package that Spillway consists of is missing, or is somebody else's. The text names its place and the fix."""


def refuse_foreign() -> None:
    """Raise ForeignPackageError unless all five packages are Spillway's and lie beside this one. Imports none."""
    for name in PACKAGES:
        place = _place(name)
        if place is None:
            raise ForeignPackageError(
                f"Spillway's package {name!r} is missing: the installation beside {_root()} is incomplete. {_FIX}",
                name=name,
            )
        expected = _root() / name / "__init__.py"
        if not _same(place, expected):
            raise ForeignPackageError(
                f"{name!r} is found in {place}, which is not Spillway's (that is in {expected}). {_FIX}, and keep that "
                "folder off PYTHONPATH",
                name=name,
                path=str(place),
            )
        if not expected.read_text(encoding="utf-8").startswith(f'"""Spillway\'s {name}:'):
            raise ForeignPackageError(
                f"{place} is not Spillway's: {_installers(name)} has installed a package of the same name over it. "
                f"{_FIX}",
                name=name,
                path=str(place),
            )


def _root() -> Path:
    return Path(__file__).parents[1]


def _place(name: str) -> Path | None:
    """What an import of `name` would run, or has run; of a folder without an `__init__.py`, the folder."""
    if name in sys.modules:
        module = sys.modules[name]
        found = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), repr(module))
        return Path(found)
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    return Path(spec.origin or next(iter(spec.submodule_search_locations or ()), ""))


def _same(place: Path, expected: Path) -> bool:
    return place == expected or os.path.realpath(place) == os.path.realpath(expected)


def _installers(name: str) -> str:
    """Who says that a package is theirs. Slow: it reads the records of all that is installed."""
    from importlib.metadata import packages_distributions  # noqa: PLC0415 - costs 20 ms, and only errors want it

    others = sorted({each for each in packages_distributions().get(name, ()) if each.lower() != "spillway"})
    return " or ".join(map(repr, others)) or "something"
