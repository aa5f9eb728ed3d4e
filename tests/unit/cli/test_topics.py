"""What `broker topics delete` takes along."""

from types import SimpleNamespace

from click.testing import CliRunner

from spillway.agents.cli.commands import topics
from spillway.agents.live.groups import group_ids
from spillway.agents.live.leftovers import Left
from spillway.topology.load import load
from spillway.topology.topics import topic_plan

PIPELINE = """
name: p
slo: 1s
stages: [{name: rank, model: "m:Rank", tables: {user: {of: taste}}}]
learners: [{name: taste, model: "m:Taste", state: {kind: keyed}, publish: true}]
"""


def test_a_pipelines_learners_and_stages_that_left_go_with_it(tmp_path, monkeypatch):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    deleted = []
    monkeypatch.setattr("spillway.agents.cli.cluster.find_cluster", lambda *_, **__: SimpleNamespace(bootstrap="here"))
    monkeypatch.setattr(topics.live_topics, "present", lambda _settings, names: list(names))
    gone = Left("p.old", ["p.old", "p.old.0.0"], 0)
    monkeypatch.setattr(topics.leftovers, "left", lambda _settings, spec: [gone] if spec.name == "p" else [])
    monkeypatch.setattr(topics.live_topics, "delete", lambda _settings, *what: deleted.append(what))
    done = CliRunner().invoke(topics.topics, ["delete", str(file), "--run-dir", str(tmp_path), "--yes"])
    assert done.exit_code == 0, done.output
    ((names, groups),) = deleted
    whole = load(file)
    specs = [whole.spec, *(learner.spec for learner in whole.learners)]
    assert len(specs) == 2
    assert set(names) == {topic.name for spec in specs for topic in topic_plan(spec)} | {"p.old"}
    assert len(names) == len(set(names))
    assert groups == [*(group for spec in specs for group in group_ids(spec)), "p.old", "p.old.0.0"]
