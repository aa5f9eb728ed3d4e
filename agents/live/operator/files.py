"""Exported states on disk (`checkpoint.state_files` has their layout): written whole or not at all, read as mapped."""

from __future__ import annotations

import importlib
import mmap
import os
from typing import TYPE_CHECKING, Any

from checkpoint import state_files
from lineage.errors import CheckpointError, UsageError
from lineage.replication import TORCH

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agents.live.operator.histories import Kept
    from agents.live.operator.stored import State
    from lineage.replication import Contents


def import_torch(contents: Contents | None = None) -> None:
    """Import torch, if it is installed, where a state may have tensors of its.

    Not imported, they come back as numpy's; not installed, they are refused where they are found.
    """
    if contents is None or contents.pages or any(entry.kind == TORCH for entry in contents.entries):
        try:
            importlib.import_module("torch")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise


def write_file(path: Path, state: State, kept: Kept, pipeline: str) -> int:
    """Write a version's state to a new file; its bytes. Raises UsageError where one is there or cannot be made."""
    if path.exists():
        raise UsageError(f"{path} is there already; name another file")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("xb") as file:
            for piece in state_files.written(*state, _metadata(kept, pipeline)):
                file.write(piece)
            size = file.tell()
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)  # unlike a rename, it replaces nothing
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return size


def read_file(path: Path) -> tuple[dict[Any, Any], dict[str, dict[Any, Any]] | None, dict[str, str]]:
    """The state in a file, the states of its keys if it has some, and what is told of it. Raises UsageError."""
    import_torch()
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            return _read(path, view)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise UsageError(f"{path} cannot be read: {error}") from error


def _read(path: Path, view: memoryview) -> tuple[dict[Any, Any], dict[str, dict[Any, Any]] | None, dict[str, str]]:
    try:
        return state_files.read(view)
    except CheckpointError as error:
        text = str(error)
    # Raised outside, as the error's frames hold views of the mapping, which could then not be closed.
    raise UsageError(f"{path}: {text}")


def _metadata(kept: Kept, pipeline: str) -> Mapping[str, str]:
    return {
        "pipeline": pipeline,
        "stage": kept.place[0],
        "shard": str(kept.place[1]),
        "version": str(kept.version),
        "digest": kept.manifest.digest.hex(),
    }
