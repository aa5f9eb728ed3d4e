"""Kafka's jars: fetched once by their Maven coordinates, checked against the lock file's hashes at every start.

`kafka.lock` pins every jar, so nothing is resolved at run time: a jar that is cached and has the locked hash is used as
it is, without network; one that is missing or damaged is fetched again; one that was fetched and still differs is an
error. The repository that they come from is jgo's default, or those that the user's jgo settings name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.lineage.errors import BrokerError, SpillwayError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


# Kafka's classes in the form in which Java maps them into memory: half the processor time of every later start.
#
# The archive is made once per Java and set of jars, from the classes that a start on a scratch folder loads, and lies
# in the cache folder. Java ignores one that does not fit, so a stale archive costs time and nothing else.

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
        classes, draft = (archive.with_suffix(f".{os.getpid()}.{kind}") for kind in ("classes", "draft"))
        dump = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={draft}"]
        try:
            try:
                train([f"-XX:DumpLoadedClassList={classes}"])
                subprocess.run(
                    [java, f"-Xmx{heap}", "-XX:+UseSerialGC", *dump, "-cp", ":".join(map(str, jars))],
                    check=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=_DUMP_SECONDS,
                )
                draft.replace(archive)
            finally:  # whose own errors are heard below, too
                classes.unlink(missing_ok=True)
                draft.unlink(missing_ok=True)
        except (OSError, subprocess.SubprocessError, SpillwayError) as error:
            notice(f"Kafka will start without it, more slowly: {error}")
            return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]


def _fingerprint(java: Path, jars: Sequence[Path]) -> str:
    stat = java.stat()
    parts = [str(java), str(stat.st_size), str(stat.st_mtime_ns)]
    for jar in jars:
        parts += [str(jar), str(jar.stat().st_mtime_ns)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


LOCK_FILE = Path(__file__).with_name("kafka.lock")
KAFKA = ("org.apache.kafka", "kafka_2.13")
_DOWNLOADS_AT_ONCE = 8
_HTTP_SECONDS = 30
_TRIES = 3  # of one jar: among the dozens of a first start, one that fails is no rare thing
_PAUSE_SECONDS = 1.0


def ensure_jars(cache_dir: Path, *, notice: Callable[[str], None], lock_file: Path = LOCK_FILE) -> tuple[Path, ...]:
    """The jars of the lock file, present under `cache_dir` and with the locked hashes; the classpath of Kafka.

    `notice` is told, once, when something has to be fetched. Raises `BrokerError` where a jar cannot be fetched or
    is not what the lock file says.
    """
    from jgo.env import LockFile  # noqa: PLC0415 - it imports an HTTP client, which only this function needs

    lock = LockFile.load(lock_file)
    repository = cache_dir / "maven"
    paths = {dependency: _path(repository, dependency) for dependency in lock.dependencies}
    with alone(cache_dir, "jars.lock"):
        wanting = [d for d in lock.dependencies if LockFile([d]).verify_checksums(repository)]
        if wanting:
            notice(f"Fetching Kafka {kafka_version(lock)}: {len(wanting)} jars into {repository} (only the first time)")
            _fetch([(dependency, paths[dependency]) for dependency in wanting], repository)
        problems = lock.verify_checksums(repository)
    if problems:
        raise BrokerError(
            "Kafka's jars differ from those that the lock file pins, so Kafka is not started:\n  "
            + "\n  ".join(problems)
            + f"\nThe repository serves another build, or a file was changed in transit. Delete {repository} and retry."
        )
    return tuple(paths.values())


def kafka_version(lock: Any = None) -> str:
    if lock is None:
        from jgo.env import LockFile  # noqa: PLC0415 - as above

        lock = LockFile.load(LOCK_FILE)
    return next(str(d.version) for d in lock.dependencies if (d.groupId, d.artifactId) == KAFKA)


def _path(repository: Path, dependency: Any) -> Path:
    folder = repository.joinpath(*dependency.groupId.split("."), dependency.artifactId, dependency.version)
    return folder / f"{dependency.artifactId}-{dependency.version}.{dependency.packaging}"


def _fetch(wanting: Sequence[tuple[Any, Path]], repository: Path) -> None:
    from jgo.config import GlobalSettings  # noqa: PLC0415 - only a first start needs any of these
    from jgo.constants import MAVEN_CENTRAL_URL  # noqa: PLC0415
    from jgo.maven import MavenContext  # noqa: PLC0415
    from requests import RequestException  # noqa: PLC0415

    remotes = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}
    context = MavenContext(repo_cache=repository, remote_repos=remotes, timeout=_HTTP_SECONDS)

    def fetch(dependency: Any, path: Path) -> None:
        component = context.project(dependency.groupId, dependency.artifactId).at_version(dependency.version)
        for last_try in (False,) * (_TRIES - 1) + (True,):
            path.unlink(missing_ok=True)  # damaged or cut short: jgo takes whatever file is there for the jar
            try:
                component.artifact(packaging=dependency.packaging).resolve()
            except (RequestException, RuntimeError):
                if last_try:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    try:
        with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
            fetching = [pool.submit(fetch, *wanted) for wanted in wanting]
            try:
                for each in as_completed(fetching):
                    each.result()
            except BaseException:  # Ctrl-C too: what has not begun is not worth a wait
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except (RequestException, RuntimeError) as error:
        raise BrokerError(
            f"cannot fetch Kafka's jars (only the first start needs the network): {error}\n"
            "Check the connection, or name a reachable Maven repository in jgo's settings file ([repositories])."
        ) from error
    except OSError as error:
        raise BrokerError(f"cannot store Kafka's jars in {repository}: {error.strerror or error}") from error


@contextmanager
def alone(cache_dir: Path, lock: str) -> Iterator[None]:
    """Hold a lock file of the cache folder against other processes that start a broker at the same time."""
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        held = (cache_dir / lock).open("w")
    except OSError as error:
        raise BrokerError(f"cannot write to the cache folder {cache_dir}: {error.strerror}") from error
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
