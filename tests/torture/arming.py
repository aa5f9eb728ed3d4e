"""How one process of a pipeline is told to die at a named point: by an order in a folder, taken once, by its model.

The models of these runs look for an order when they are made, so it is a process's first start that it takes; the one
that is started in its place finds none, and lives.
"""

import os
import sys
from pathlib import Path

from tests.crash_points import arm


def give_order(folder: Path, label: str, point: str) -> None:
    """Have the process `label` (`<stage>.<replica>`) die at `point` (`NAME:COUNT`), if it has not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / label).write_text(point)


def take_order(folder: str) -> None:
    """Arm what this process was told, if it was told something: it is known by its command's own words."""
    words = sys.argv
    if not folder or "--stage" not in words or "--replica" not in words:
        return
    label = f"{words[words.index('--stage') + 1]}.{words[words.index('--replica') + 1]}"
    taken = Path(folder) / f"{label}.taken"
    try:
        (Path(folder) / label).rename(taken)  # one process alone gets it
    except FileNotFoundError:
        return
    point = taken.read_text()
    arm(point)
    draft = taken.with_suffix(".draft")
    draft.write_text(f"{point} {os.getpid()}")
    draft.replace(taken)


def who_took(folder: Path) -> tuple[str, int] | None:
    """The process that has taken an order: stage and replica, and its id."""
    for taken in folder.glob("*.taken"):
        _, space, pid = taken.read_text().partition(" ")
        if space:
            return taken.name.removesuffix(".taken"), int(pid)
    return None
