"""Kafka's classes in the form in which Java maps them into memory: half the processor time of every later start.

The archive is made once per Java and set of jars, from the classes that a start on a scratch folder loads, and lies in
the cache folder. Java ignores one that does not fit, so a stale archive costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from typing import TYPE_CHECKING

from lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_DUMP_SECONDS = 300.0


def archive_options(
    java: Path,
    jars: Sequence[Path],
    cache_dir: Path,
    *,
    heap: str,
    train: Callable[[list[str]], None],
    notice: Callable[[str], None],
) -> list[str]:
    """Options that make Java use the archive, which is made where it is missing.

    `train` starts Kafka with the options that it is given, and stops it again. Where the archive cannot be made,
    `notice` is told and Kafka starts without: it is slower then, and otherwise the same.
    """
    archive = cache_dir / f"kafka-{_fingerprint(java, jars)}.jsa"
    if not archive.exists():
        notice("Preparing Kafka for quick starts (only the first time)")
        try:
            _make(archive, java, jars, heap, train)
        except (OSError, subprocess.SubprocessError, SpillwayError) as error:
            notice(f"Kafka will start without the preparation, slower: {error}")
            return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]


def _make(archive: Path, java: Path, jars: Sequence[Path], heap: str, train: Callable[[list[str]], None]) -> None:
    classes, draft = (archive.with_suffix(f".{os.getpid()}.{kind}") for kind in ("classes", "draft"))
    try:
        train([f"-XX:DumpLoadedClassList={classes}"])
        dump = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={draft}"]
        subprocess.run(
            [java, f"-Xmx{heap}", "-XX:+UseSerialGC", *dump, "-cp", ":".join(map(str, jars))],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_DUMP_SECONDS,
        )
        draft.replace(archive)
    finally:
        classes.unlink(missing_ok=True)
        draft.unlink(missing_ok=True)


def _fingerprint(java: Path, jars: Sequence[Path]) -> str:
    stat = java.stat()
    parts = [str(java), str(stat.st_size), str(stat.st_mtime_ns)]
    for jar in jars:
        parts += [str(jar), str(jar.stat().st_mtime_ns)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
