"""A served ensemble learns from the truths that clients send: by context, and each truth once."""

import functools

import pytest

from agents.learning.selection import Exp4, Observed
from lineage.limits import DEFAULT_LIMITS
from lineage.message import PREDICTION
from producers.client import Client
from producers.connection import ClientSettings
from producers.published import Published
from tests.acceptance.learning_load import Killer, Load
from tests.acceptance.serving import ROOT, serving
from tests.waiting import PATIENT_SECONDS, until
from topology.load import load
from topology.topics import table_of

MODELS = "tests.acceptance.learned_models"


def test_truths_change_whose_answer_counts(unique_name, broker, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: {unique_name}\nslo: {PATIENT_SECONDS}s\npartitions: 2\nstages:\n  - name: kind\n    ensemble:\n"
        "      selection: {name: exp4, eta: 1.0}\n      context: key\n      members:\n"
        f'        wrong: {{model: "{MODELS}:Says", arguments: {{off: 1}}}}\n'
        f'        right: {{model: "{MODELS}:Says", arguments: {{off: 0}}}}\n'
    )
    spec = load(file).spec
    with serving(file, spec.name, broker, tmp_path, cwd=ROOT) as served:
        with Client(spec, ClientSettings(bootstrap=broker)) as client:
            first = client.predict({"x": 3}, key="ada")
            assert first.outputs == {"label": 4}  # of two that weigh the same the first one's
            said = first.flags["kind"]
            assert said["members"] == {"wrong": {"p": 1.0, "answer": 4}, "right": {"p": 1.0, "answer": 3}}
            assert (said["confidence"], said["keys"]) == (0.5, {"kind-weights": "ada"})
            token = client.feedback("kind-weights", first, 3).token(PATIENT_SECONDS)
            client.feedback("kind-weights", first, 3)  # the same truth again
            out = client.predict({"x": 5}, key="ada", after=token)
            assert out.flags["kind"]["versions"] == {"kind-weights": [token.epoch, token.n]}
            assert out.outputs == {"label": 5}
            for x in (5, 6):  # a new context begins with what was learned over all, and goes its own way
                out = client.predict({"x": x}, key="bob", after=token)
                assert out.outputs == {"label": 5 if x == 5 else 7}
                token = client.feedback("kind-weights", out, x + 1).token(PATIENT_SECONDS)
            assert client.predict({"x": 7}, key="bob", after=token).outputs == {"label": 8}
            assert client.predict({"x": 7}, key="ada", after=token).outputs == {"label": 7}
        assert served.stop() == 0, served.logs()


class Kinds(Load):
    learner = "kind-weights"

    def inputs(self, number):
        return {"x": number}

    def observe(self, client, number, _key):
        """The truth of a query, when it is answered."""
        until(lambda: len(self.asked) > number or self.errors, 60.0, f"query {number} is asked")
        return client.feedback(self.learner, self.asked[number].result(PATIENT_SECONDS), number)


@pytest.mark.nightly
def test_each_query_has_one_outcome_and_each_truth_counts_once_whoever_dies(unique_name, broker, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: {unique_name}\nslo: {PATIENT_SECONDS}s\npartitions: 2\nstages:\n  - name: kind\n    ensemble:\n"
        "      selection: {name: exp4, eta: 0.015625, forgetting: 0.0}\n      members:\n"
        f'        wrong: {{model: "{MODELS}:Says", arguments: {{off: 1}}}}\n'
        f'        right: {{model: "{MODELS}:Says", arguments: {{off: 0}}}}\n'
    )
    spec, settings = load(file).spec, ClientSettings(bootstrap=broker)
    topic = table_of(spec, Kinds.learner)
    table = Published(settings, topic, partitions=spec.partitions, shards=1, limits=DEFAULT_LIMITS)
    with serving(file, spec.name, broker, tmp_path, cwd=ROOT) as served, table, Kinds(spec, settings) as both:
        killer = Killer(served, spec.name, Kinds.learner)

        def answered_from_the_table():
            said = both.predict("eve").flags["kind"]
            assert said["versions"][Kinds.learner] is not None
            assert "stale" not in said

        until(lambda: table.find("all") or both.errors, 60.0, "weights are published")
        for what in 2 * ("kind", "primary", "both"):
            both.go_on()
            killer.strike(what, answered_from_the_table)
        answers, taken = both.end()
        assert {answer.kind for answer in answers} == {PREDICTION}
        newest = max((token.epoch, token.n) for *_, token in taken)
        until(lambda: table.find("all").version >= newest, 30.0, "what was acknowledged is published")
        # Sums of these numbers are exact, so the order of the truths does not matter.
        policy, members = Exp4(eta=0.015625, forgetting=0.0), ["wrong", "right"]
        observed = [judged(answers[number].flags["kind"]["members"], number) for number, *_ in taken]
        replayed = functools.reduce(lambda state, each: policy.observe(state, members, each), observed, {})
        assert table.find("all").value == replayed
        assert served.stop() == 0, served.logs()
    assert not both.problems(broker, taken)


def judged(members, truth):
    """What the learner makes of what an outcome tells of the members that were asked."""
    return {name: Observed(said["p"], float(said.get("answer") != truth)) for name, said in members.items()}
