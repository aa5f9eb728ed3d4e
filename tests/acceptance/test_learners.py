"""A pipeline with a learner, served by one command: what clients feed back is what their queries are answered with."""

import functools
import json

import pytest

from spillway.lineage.errors import UsageError
from spillway.lineage.keys import partition_for
from spillway.lineage.message import PREDICTION
from spillway.lineage.tokens import Token
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from tests.acceptance.learned_models import Sharing, Taste, learned
from tests.acceptance.learning_load import KEYS, Killer, Load, published
from tests.acceptance.serving import ROOT, Gateway, command, serving
from tests.waiting import PATIENT_SECONDS, until

MODELS = "tests.acceptance.learned_models"


@pytest.fixture
def pipeline(unique_name, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: {unique_name}\nslo: {PATIENT_SECONDS}s\npartitions: 2\n"
        f'stages:\n  - {{name: rank, model: "{MODELS}:Rank", tables: {{user: {{of: taste}}}}}}\n'
        f'learners:\n  - {{name: taste, model: "{MODELS}:Taste", state: {{kind: keyed, shards: 2}}, publish: true}}\n'
    )
    return file


def test_feedback_changes_what_the_next_query_sees(pipeline, broker, tmp_path):
    """Also of keys that are new, by what all of a shard share, and over HTTP.

    The two pipelines are served by two commands.
    """
    text = pipeline.read_text().replace("shards: 2", "shards: 2, backups: 0")  # nobody dies here
    pipeline.write_text(text.replace(":Taste", ":Sharing"))
    spec, beside = load(pipeline).spec, tmp_path / "beside"
    beside.mkdir()
    of_shard = sorted((f"u{number}" for number in range(40)), key=lambda key: partition_for(key.encode(), 2))
    ada, bob, new, late = of_shard[:4]
    eve, far = of_shard[-2:]
    with (
        serving(f"{pipeline}#taste", f"{spec.name}-taste", broker, beside, cwd=ROOT) as learner,
        serving(
            pipeline, spec.name, broker, tmp_path, "--feedback", "taste", "--http", "127.0.0.1:0", cwd=ROOT
        ) as served,
    ):
        with Client(spec, ClientSettings(bootstrap=broker)) as client:

            def ask(key, after=None):
                out = client.predict({}, key=key, after=after)
                assert out.flags["rank"]["versions"] == {"user": out.outputs["version"]}
                return out

            def wait(sent):
                return sent.token(PATIENT_SECONDS)

            first = until(lambda: (out := ask(ada)).outputs["user"] and out, 30.0, "what is shared is published")
            assert first.outputs["user"] == Sharing().initialize({"seen": 0})
            with pytest.raises(UsageError, match="no learner 'tast'; did you mean 'taste'"):
                client.feedback("tast", ada, 1)
            once = client.feedback("taste", first, 2)
            assert once.id == f"{first.flags['rank']['request']}/taste"
            assert wait(once).learner == "taste"
            client.feedback("taste", first, 2)  # the same again: nobody waits for its acknowledgement
            options = ("--key", ada, "--id", "mine", "--wait", "--bootstrap", broker)
            told = json.loads(command("train", "feedback", pipeline, "taste", "3", *options).stdout)
            assert told["id"] == "mine"
            token = Token.parse(told["token"])
            seen = until(lambda: (out := ask(ada)).outputs["user"]["sum"] == 5 and out, 30.0, "the table followed")
            assert seen.outputs["user"] == {**replayed([(once.id, 2), ("mine", 3)]), "before": 0}
            assert seen.outputs["version"] == [token.epoch, token.n]
            assert "stale" not in seen.flags["rank"]
            # A new key starts with what the keys of its shard share, by then; beyond `max_keys` it stays with that.
            assert ask(new, token).outputs["user"] == Sharing().initialize({"seen": 2})
            assert ask(far).outputs["user"] == Sharing().initialize({"seen": 0})
            token = wait(client.feedback("taste", bob, 1, feedback_id="bobs"))
            assert ask(bob, token).outputs["user"] == {**replayed([("bobs", 1)]), "before": 2}
            token = wait(client.feedback("taste", late, 1))
            assert ask(late, token).outputs["user"] == Sharing().initialize({"seen": 4})
            for count in range(1, 6):  # whoever waits for the acknowledgement reads what was written
                token = wait(client.feedback("taste", eve, 1))
                answer = ask(eve, token)
                assert answer.outputs["user"]["n"] == count
                assert "stale" not in answer.flags["rank"]
            never = ask(eve, token._replace(n=token.n + 1_000))
            assert never.outputs["user"]["n"] == count
            assert never.flags["rank"]["stale"] is True
            a_truth_comes_by_http_with_the_text_of_its_answer(served, spec.name, ada)
            assert learner.stop() == 0, learner.logs()
            assert ask(eve).outputs["user"]["n"] == count  # what it published stays
        assert served.stop() == 0, served.logs()


def a_truth_comes_by_http_with_the_text_of_its_answer(served, name, key):
    gateway = Gateway(served.gateway_port(), name)

    def post(what, told):
        status, _, body = gateway.ask(f"/v1/pipelines/{name}/{what}", told)
        return status, json.loads(body)

    def ask():
        return post("predict", {"inputs": {}, "key": key})[1]

    answer = ask()
    before = answer["outputs"]["user"]["sum"]
    status, sent = post("feedback", {"feedback": answer["feedback"], "learner": "taste", "truth": 2})
    assert (status, sent) == (202, {"learner": "taste", "id": f"{answer['request_id']}/taste"})
    until(lambda: ask()["outputs"]["user"]["sum"] == before + 2, 60, "the table followed")
    forged = answer["feedback"][:-4] + "AAAA"
    status, told = post("feedback", {"feedback": forged, "learner": "taste", "truth": 9})
    assert (status, "does not come from an answer" in told["error"]) == (400, True)
    many_truths_come_by_http(post, ask)
    assert post("feedback", {"feedback": answer["feedback"], "learner": "tast", "truth": 9})[0] == 400
    assert post("feedback", {"feedback": answer["feedback"], "learner": "taste"})[0] == 400


def many_truths_come_by_http(post, ask):
    answers = [ask(), ask()]
    before = answers[0]["outputs"]["user"]["sum"]
    truths = [{"feedback": each["feedback"], "truth": 3} for each in answers]
    bad = [{"feedback": "?", "truth": 1}, 5, {"feedback": answers[0]["feedback"], "truht": 1}]
    status, told = post("feedback", {"learner": "taste", "truths": [truths[0], *bad, truths[1]]})
    assert (status, told["learner"]) == (202, "taste")
    one, *errors, two = told["truths"]
    assert [one["id"], two["id"]] == [f"{each['request_id']}/taste" for each in answers]
    for place, each in enumerate(errors, 1):
        assert each["error"].startswith(f"truths[{place}]: ")
    until(lambda: ask()["outputs"]["user"]["sum"] == before + 6, 60, "the table followed")
    for wrong in ([], "text", truths * 501):
        status, told = post("feedback", {"learner": "taste", "truths": wrong})
        assert (status, "1 to 1000" in told["error"]) == (400, True)


def replayed(observations):
    return functools.reduce(lambda state, each: learned(state, *each), observations, Taste().initialize())


class Tastes(Load):
    learner = "taste"

    def observe(self, client, number, key):
        return client.feedback(self.learner, key, 1, feedback_id=f"seen-{number}")


VICTIMS = ("primary", "rank", "both", "gate", "backup")


@pytest.mark.nightly
def test_every_observation_counts_once_and_queries_are_answered_whoever_dies(pipeline, broker, tmp_path):
    spec, settings = load(pipeline).spec, ClientSettings(bootstrap=broker)
    with (
        serving(pipeline, spec.name, broker, tmp_path, cwd=ROOT) as served,
        published(settings, spec, "taste", shards=2) as table,
        Tastes(spec, settings) as both,
    ):
        killer = Killer(served, spec.name, "taste")

        def answered_from_the_table():
            for key in KEYS:
                answer = both.predict(key)
                assert answer.outputs["user"]["n"] > 0
                assert "stale" not in answer.flags["rank"]

        until(lambda: all(table.find(key) for key in KEYS) or both.errors, 60.0, "each key has a row")
        for what in 3 * VICTIMS:
            both.go_on()
            killer.strike(what, answered_from_the_table)
        answers, taken = both.end()
        assert {answer.kind for answer in answers} == {PREDICTION}
        wanted = {key: [one for _, of, one, _ in taken if of == key] for key in KEYS}
        until(
            lambda: all(table.find(key).value["n"] >= len(wanted[key]) for key in KEYS),
            30.0,
            "what was acknowledged is published",
        )
        for key in KEYS:
            row = table.find(key)
            assert row.value == replayed([(one, 1) for one in wanted[key]])  # the first copies, in their order
            assert row.version >= max((token.epoch, token.n) for _, of, _, token in taken if of == key)
        assert served.stop() == 0, served.logs()
    assert not both.problems(broker, taken)
