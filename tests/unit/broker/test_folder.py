"""A data folder is ours or it is left alone; what is noted of a process is not taken for another one."""

import errno
import os
import shutil
import socket
from types import SimpleNamespace

import psutil
import pytest

from spillway.agents.broker.folder import DataFolder, Membership, RunningBroker
from spillway.lineage.errors import BrokerError, UsageError


def me(**changes):
    process = psutil.Process()
    return RunningBroker(**{"pid": process.pid, "created": process.create_time(), "port": 9092, **changes})


def test_an_empty_folder_becomes_ours_and_stays_so(tmp_path):
    folder = DataFolder(tmp_path)
    folder.prepare()
    folder.log.write_text("said before")
    folder.prepare()
    assert folder.log.with_name("kafka.log.1").read_text() == "said before"
    assert not folder.formatted


def test_a_foreign_folder_is_neither_used_nor_wiped(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="left alone"):
        DataFolder(tmp_path).prepare()
    with pytest.raises(UsageError, match="left alone"):
        DataFolder(tmp_path).wipe()
    assert (tmp_path / "thesis.tex").exists()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        DataFolder(tmp_path / "data").prepare()


def test_wipe_takes_everything_but_not_under_a_running_broker(tmp_path):
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    folder.note(me())
    with pytest.raises(UsageError, match="stop it first"):
        folder.wipe()
    folder.note(me(pid=2**22 - 1))
    folder.wipe()
    assert not folder.path.exists()
    folder.wipe()


def test_a_later_process_with_the_same_id_is_another(tmp_path):
    folder = DataFolder(tmp_path)
    folder.note(me())
    assert folder.running() == me()
    folder.note(me(created=1.0))
    assert folder.running() is None
    assert folder.last().port == 9092


def test_a_cluster_is_known_by_its_nodes(tmp_path):
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    assert [node.path for node in folder.nodes()] == [folder.path]
    assert folder.bootstrap() is None
    folder.agree(Membership("id", (1, 2, 3)))
    assert folder.membership() == Membership("id", (1, 2, 3))
    assert [node.path.name for node in folder.nodes()] == ["node-1", "node-2", "node-3"]
    assert folder.bootstrap() is None
    for number, node in enumerate(folder.nodes(), 1):
        node.prepare()
        node.note(me(port=number, pid=os.getpid() if number == 2 else 2**22 - 1))
    assert folder.brokers() == [me(port=2)]
    assert folder.bootstrap() == "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"  # a client finds the way by any of them
    with pytest.raises(UsageError, match="stop it first"):
        folder.wipe()
    folder.nodes()[1].note(me(pid=2**22 - 1))
    folder.wipe()
    assert not folder.path.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"id": "x", "controllers": 3}'])
def test_a_damaged_note_of_the_nodes_is_said(tmp_path, text):
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(BrokerError, match=r"is damaged.*broker reset"):
        DataFolder(tmp_path).nodes()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "created": 0, "port": 1, "more": 2}'])
def test_a_note_cut_short_is_no_broker(tmp_path, text):
    (tmp_path / "running.json").write_text(text)
    assert DataFolder(tmp_path).running() is None


def test_a_full_disk_is_said_before_kafka_finds_out(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1024))
    with pytest.raises(BrokerError, match=r"is full.*free some space"):
        DataFolder(tmp_path).prepare()


def test_errors_of_the_file_system_say_what_to_do(tmp_path):
    folder = DataFolder(tmp_path)
    with pytest.raises(BrokerError, match=r"disk of .* is full"), folder.readable_errors():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(BrokerError, match=r"Permission denied.*--broker-dir"), folder.readable_errors():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_process_listens_only_where_it_does_itself():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert RunningBroker(os.getpid(), 0.0, port).listens()
        assert not RunningBroker(os.getppid(), 0.0, port).listens()  # a Kafka that is still starting beside another
    assert not RunningBroker(os.getpid(), 0.0, port).listens()
