"""A torch.export program as a file without a pickle, and the check that a file is one.

torch.export.save pickles the inputs that a program was traced with, and may pickle weights; loading a pickle runs code.
So the inputs are emptied, which torch accepts, and weights that are not plain bytes are refused. Imports no torch.
"""

from __future__ import annotations

import json
import re
import zipfile
from typing import IO, TYPE_CHECKING, Any, Final

from spillway.lineage.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the same program is the same file
_SAMPLES: Final = re.compile(r"[^/]+/data/sample_inputs/[^/]+")
_CONFIG: Final = re.compile(r"[^/]+/data/(weights|constants)/[^/]+_config\.json")
_PLAIN: Final = re.compile(
    r"[^/]+/(data/weights/weight_\d+|data/constants/tensor_\d+|models/[^/]+\.json|archive_format|archive_version|"
    r"byteorder|\.data/version|\.data/serialization_id)"
)
_ID: Final = re.compile(r"[^/]+/\.data/serialization_id")  # of each saving another


def stripped(source: Path, target: Path) -> None:
    """Write the archive `source` again without the inputs that it was traced with."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            _, _, inside = entry.filename.partition("/")  # the folder is called after the file
            name = f"program/{inside}"
            if not _ID.fullmatch(name):
                data = b"" if _SAMPLES.fullmatch(name) else old.read(entry)
                new.writestr(zipfile.ZipInfo(name, _EPOCH), data)


def check_archive(file: Path | IO[bytes], called: str = "the archive") -> None:
    """Raise ModelError where loading the archive would load a pickle, or anything else than weights and a graph."""
    try:
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                name = entry.filename
                if _CONFIG.fullmatch(name):
                    if why := _pickled(json.loads(archive.read(entry))):
                        raise ModelError(f"{called}: {why} is kept as a pickle; it is not loaded")
                elif (_SAMPLES.fullmatch(name) and entry.file_size) or not (
                    _SAMPLES.fullmatch(name) or _PLAIN.fullmatch(name)
                ):
                    raise ModelError(f"{called}: {name} does not belong to a plain program; it is not loaded")
    except (zipfile.BadZipFile, ValueError) as error:
        raise ModelError(f"{called} is not a torch.export archive: {error}") from error


def _pickled(config: Any) -> str:
    """The first weight of a config that is no plain bytes; empty where all are."""
    entries = config.get("config") if isinstance(config, dict) else None
    if not isinstance(entries, dict):
        raise ValueError("the weights' configuration does not have torch's form")  # noqa: TRY004 - of a file
    for name, told in entries.items():
        path = told.get("path_name", "") if isinstance(told, dict) else ""
        if not isinstance(told, dict) or told.get("use_pickle") is not False or not re.fullmatch(r"\w+_\d+", path):
            return str(name)
    return ""
