"""Which model a worker has: a hash that a front compares with its own, so that no other model answers for it."""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any


def module_of(model: str) -> tuple[str, Path] | None:
    """The folder that `module:Name` is imported from, and the module's file, found without importing anything."""
    here = str(Path.cwd())
    for root in (*(entry or here for entry in sys.path), here):
        places, file = [root], None
        for part in model.partition(":")[0].split("."):
            found = PathFinder.find_spec(part, places)
            if found is None:
                break
            places, file = list(found.submodule_search_locations or ()), found.origin
        else:
            return None if file is None or not Path(file).is_file() else (root, Path(file))
    return None


def model_hash(model: str, arguments: dict[str, Any]) -> str | None:
    """Of the model's reference, its arguments and its module's source; None where there is no such module here.

    What that module imports, and the files that arguments name, are not part of it.
    """
    found = module_of(model)
    if found is None:
        return None
    told = json.dumps([model, arguments], sort_keys=True, default=repr).encode()
    return hashlib.sha256(told + b"\0" + found[1].read_bytes()).hexdigest()[:32]
