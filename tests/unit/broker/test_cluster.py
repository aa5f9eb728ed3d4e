"""What a cluster refuses before it starts anything, and which ports it wants."""

import pytest

from agents.broker import EmbeddedBroker, EmbeddedCluster
from agents.broker.cluster import free_ports
from agents.broker.folder import DataFolder, Membership, RunningBroker
from lineage.errors import UsageError


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
    with pytest.raises(UsageError, match=r"data of 3 nodes.*that of one node.*reset"):
        EmbeddedCluster(tmp_path / "three", nodes=1)
    used_by(tmp_path / "one", 1)
    with pytest.raises(UsageError, match=r"data of one node.*that of 3 nodes"):
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


def test_ports_are_different():
    found = free_ports(3, but_not=[1])
    assert len({*found, 1}) == 4
