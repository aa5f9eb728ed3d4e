"""Who may write what: every topic has its roles, and what a client may write is queries and truths."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from spillway.agents.cli.main import root
from spillway.topology import topics
from spillway.topology.acls import ACCESS, ROLES, grants, kind_of
from spillway.topology.load import parse
from spillway.topology.topics import topic_plan

ALL = """
name: p
slo: 1s
partitions: 4
stages:
  - {name: kind, default: {label: 0}, ensemble: {members: {a: {model: "m:A"}, b: {model: "m:B"}}}}
  - {name: rank, model: "velox:m:Songs", tables: {user: {of: taste}}}
  - {name: count, after: [kind, rank], model: "m:C", state: {kind: keyed, shards: 2}, publish: true}
  - {name: sum, after: count, model: "m:S", state: {kind: shared, replication: kafka-eos}}
  - {name: digit, after: sum, variants: {app: digits}}
learners:
  - {name: taste, model: "velox:m:Songs", arguments: {folder: t}, state: {kind: keyed, shards: 2}, publish: true}
"""
PIPELINE = parse(ALL)
PIPELINES = [PIPELINE, *PIPELINE.learners]


def who(operation):
    """By topic, the roles that may do this with it alone."""
    told = {}
    for grant in grants(PIPELINE):
        if grant.resource == "topic" and not grant.prefixed and operation in grant.operations:
            told.setdefault(grant.name, set()).add(grant.role)
    return told


def test_every_topic_of_a_pipeline_with_all_features_is_written_and_read_by_somebody(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(ALL)
    printed = CliRunner().invoke(root, ["broker", "topics", "acls", str(file)])
    assert printed.exit_code == 0, printed.output
    lines = printed.output.splitlines()
    assert all(line.startswith("kafka-acls.sh --bootstrap-server ") for line in lines)
    named = {(m[1], m[2]) for line in lines if (m := re.search(r"(Write|Read).* --topic (\S+)$", line))}
    wanted = {topic.name for each in PIPELINES for topic in topic_plan(each.spec)} | {topics.MODELS}
    assert {name for _, name in named} == wanted
    assert who("Write").keys() == who("Read").keys() == wanted
    assert {kind_of(each.spec, topic.name) for each in PIPELINES for topic in topic_plan(each.spec)} | {
        "models"
    } == ACCESS.keys()
    assert {match for line in lines for match in re.findall(r"User:p-(\w+)", line)} == set(ROLES)


def test_a_client_writes_queries_and_truths_and_reads_what_comes_of_them():
    write, read = who("Write"), who("Read")
    assert {name for name, roles in write.items() if "client" in roles} == {
        topics.ingress(each.spec.name) for each in PIPELINES
    }
    assert {name for name, roles in read.items() if "client" in roles} == {
        name(each.spec.name) for each in PIPELINES for name in (topics.egress, topics.schemas)
    }
    assert not [grant for grant in grants(PIPELINE) if grant.role == "client" and grant.prefixed]
    groups = {grant.name for grant in grants(PIPELINE) if grant.role == "client" and grant.resource == "group"}
    assert groups == {topics.replies(each.spec.name) for each in PIPELINES}


def test_what_a_learner_goes_by_it_reads_and_neither_clients_nor_learners_write():
    write, read = who("Write"), who("Read")
    for name in (topics.sizes("p"), topics.generations("p-taste")):
        assert "learner" in read[name]
        assert not write[name] & {"client", "learner", "gate"}
    assert {"learner", "stage"} <= read["p-taste.taste.table"]
    assert write["p-taste.taste.table"] == {"learner"}


@pytest.mark.parametrize("kind", sorted(ACCESS))
def test_the_page_says_who_may_write_and_read(kind):
    page = (Path(__file__).parents[3] / "docs/security.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    (row,) = [row for row in rows if row[0].rpartition(".")[2].rstrip("`") == kind]
    assert row[1].split(", ") == [*ACCESS[kind].write]
    assert row[2].split(", ") == [*ACCESS[kind].read]
