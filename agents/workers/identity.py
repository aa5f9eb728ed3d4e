"""Which model a worker has: a hash that a front compares with its own, so that no other model answers for it."""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.agents.models.adapters import find_file
from spillway.topology import names

if TYPE_CHECKING:
    from collections.abc import Iterable


def source_of(model: str, path: Iterable[str]) -> tuple[str, Path] | None:
    """A model's file, or its module's, and the folder of `path` that it is found in; nothing is imported."""
    kind, name = names.model_parts(model)
    if kind in names.MODEL_FILES:
        file = find_file(name, path)
        return None if file is None else (str(file.parent), file)
    for root in path:
        places, origin = [root], None
        for part in name.partition(":")[0].split("."):
            module = PathFinder.find_spec(part, places)
            if module is None:
                break
            places, origin = list(module.submodule_search_locations or ()), module.origin
        else:
            return None if origin is None or not Path(origin).is_file() else (root, Path(origin))
    return None


def model_hash(model: str, arguments: dict[str, Any]) -> str | None:
    """Of the model's reference, its arguments, and its file or its module's; None where there is no such file here.

    What the module imports, and the files that arguments name, are not part of it.
    """
    found = source_of(model, [*sys.path, str(Path.cwd())])
    if found is None:
        return None
    told = json.dumps([model, arguments], sort_keys=True, default=repr).encode()
    return hashlib.sha256(told + b"\0" + found[1].read_bytes()).hexdigest()[:32]
