"""Reads a file of client properties: `key=value` lines, or a flat YAML or JSON mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from lineage.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_MAPPING_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def read_properties(file: Path) -> dict[str, str]:
    """The properties in `file` as text; `UsageError` names file and line. No message repeats a value."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read client settings {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"client settings {file} are not UTF-8 text") from error
    if file.suffix.lower() in _MAPPING_SUFFIXES:
        return _from_mapping(file, text)
    return _from_lines(file, text)


def _from_lines(file: Path, text: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            raise UsageError(f"{file}:{number}: no 'key=value'")
        key = key.strip()
        if key in properties:
            raise UsageError(f"{file}:{number}: {key} is set twice")
        properties[key] = value.strip()
    return properties


def _from_mapping(file: Path, text: str) -> dict[str, str]:
    try:
        content = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - makes text only: password 0123 stays 0123
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{file}{line}: not valid YAML or JSON") from error
    if not content:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{file}: not a mapping of property names to values")
    properties: dict[str, str] = {}
    for key, value in content.items():
        if not isinstance(value, str):
            raise UsageError(f"{file}: {key} is no plain value")
        properties[str(key)] = value
    return properties
