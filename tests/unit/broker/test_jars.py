"""Jars are used only with the hashes of the lock file, and fetched only when they have to be."""

import hashlib
import tomllib
from collections import Counter
from io import BytesIO

import pytest

from agents.broker import jars
from lineage.errors import BrokerError

GOOD = b"a jar"


@pytest.fixture
def lock_file(tmp_path):
    path = tmp_path / "one.lock"
    path.write_text(
        '[[dependencies]]\ngroupId = "org.example"\nartifactId = "one"\nversion = "1"\npackaging = "jar"\n'
        f'sha256 = "{hashlib.sha256(GOOD).hexdigest()}"\n'
        '[[dependencies]]\ngroupId = "org.apache.kafka"\nartifactId = "kafka_2.13"\nversion = "9"\npackaging = "jar"\n'
        f'sha256 = "{hashlib.sha256(GOOD).hexdigest()}"\n'
    )
    return path


@pytest.fixture
def fetched(monkeypatch):
    """Replaces the network: writes what `content` says, and notes what was asked for."""

    class Network:
        content = GOOD
        asked = []  # noqa: RUF012

    def fetch(wanting, repository):
        for dependency, path in wanting:
            Network.asked.append(dependency.artifactId)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(Network.content)

    Network.asked = []
    monkeypatch.setattr(jars, "_fetch", fetch)
    return Network


def ensure(tmp_path, lock_file, notices=None):
    notices = [] if notices is None else notices
    return jars.ensure_jars(tmp_path / "cache", notice=notices.append, lock_file=lock_file)


def test_fetches_once_and_then_never_again(tmp_path, lock_file, fetched):
    notices = []
    paths = ensure(tmp_path, lock_file, notices)
    assert sorted(fetched.asked) == ["kafka_2.13", "one"]
    assert [path.read_bytes() for path in paths] == [GOOD, GOOD]
    assert len(notices) == 1
    assert ensure(tmp_path, lock_file, notices) == paths
    assert len(notices) == 1
    assert len(fetched.asked) == 2


def test_a_damaged_jar_is_fetched_again(tmp_path, lock_file, fetched):
    paths = ensure(tmp_path, lock_file)
    paths[0].write_bytes(b"cut sho")
    ensure(tmp_path, lock_file)
    assert fetched.asked[2:] == ["one"]
    assert paths[0].read_bytes() == GOOD


def test_a_jar_that_is_not_the_locked_one_is_never_run(tmp_path, lock_file, fetched):
    fetched.content = b"something else"
    with pytest.raises(BrokerError, match=r"not what the lock file pins(.|\n)*org.example:one:1.*mismatch"):
        ensure(tmp_path, lock_file)


def test_no_network_is_said_so(tmp_path, lock_file, monkeypatch):
    import requests

    def refuse(*args, **kwargs):
        raise requests.ConnectionError("no route to host")

    monkeypatch.setattr(requests, "request", refuse)
    monkeypatch.setattr(jars, "_PAUSE_SECONDS", 0)
    with pytest.raises(BrokerError, match=r"first start needs the network(.|\n)*connection"):
        ensure(tmp_path, lock_file)


def test_a_jar_that_does_not_come_at_first_is_asked_for_again(tmp_path, lock_file, monkeypatch):
    import requests

    asked = Counter()

    def late(method, url, **options):
        response = requests.Response()
        response.status_code, response.raw = 404, BytesIO()
        if url.endswith(".jar"):
            asked[url] += 1
            if asked[url] < 3:
                raise requests.ReadTimeout("nothing came")
            response.status_code, response.raw = 200, BytesIO(GOOD)
        return response

    monkeypatch.setattr(requests, "request", late)
    monkeypatch.setattr(jars, "_PAUSE_SECONDS", 0)
    assert [path.read_bytes() for path in ensure(tmp_path, lock_file)] == [GOOD, GOOD]


def test_a_cache_folder_that_cannot_be_made_is_said_so(tmp_path, lock_file):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(BrokerError, match="cache"):
        ensure(tmp_path, lock_file)


def test_the_lock_file_pins_every_jar_and_names_no_host():
    text = jars.LOCK_FILE.read_text()
    pinned = tomllib.loads(text)["dependencies"]
    assert {"kafka_2.13", "slf4j-simple"} <= {jar["artifactId"] for jar in pinned}
    assert all(len(jar["sha256"]) == 64 for jar in pinned)
    assert "://" not in text
    assert jars.kafka_version() == "4.3.1"
