"""Makes `kafka.lock` anew: resolves Kafka and its log binding, and writes every jar's coordinates and hash.

Run as `python -m spillway.agents.broker.relock [KAFKA_VERSION]` when Kafka is to move. No repository is named in the
file.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from pathlib import Path

import tomli_w
from jgo.env import LockFile
from jgo.maven import MavenContext

from spillway.agents.broker.jars import KAFKA, LOCK_FILE, kafka_version

_RUNTIME_SCOPES = {None, "compile", "runtime"}


def relock(version: str) -> None:
    """Resolve Kafka `version`, with the slf4j binding that fits its slf4j, and write the lock file."""
    context = MavenContext()
    kafka = context.create_dependency(f"{':'.join(KAFKA)}:{version}")
    roots, others = context.resolver.resolve([kafka])
    api = next(d for d in others if d.artifactId == "slf4j-api")
    binding = context.create_dependency(f"org.slf4j:slf4j-simple:{api.version}")
    jars = [d for d in [*roots, *others, binding] if d.scope in _RUNTIME_SCOPES]
    jars.sort(key=lambda d: (d.groupId, d.artifactId))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.lock"
        LockFile.from_resolved_dependencies(jars).save(made)
        lock = tomllib.loads(made.read_text())
    lock["metadata"] = {
        "format": "jgo lock file; made by python -m spillway.agents.broker.relock"
    }  # no date: same in, same out
    LOCK_FILE.write_bytes(tomli_w.dumps(lock).encode())


if __name__ == "__main__":
    relock(sys.argv[1] if len(sys.argv) > 1 else kafka_version())
