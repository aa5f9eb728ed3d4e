"""The Velox example, served: observations change who is heard of at once, and features are retrained and switched."""

import json
from pathlib import Path

from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from tests.acceptance.serving import ROOT, command, serving
from tests.waiting import PATIENT_SECONDS, until

EXAMPLE = Path(ROOT, "examples", "velox", "songs.yaml")


def said(*words, broker, code=0):
    done = command(*words, "--bootstrap", broker)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_listeners_are_learned_and_features_retrained(unique_name, broker, tmp_path):
    file = tmp_path / "songs.yaml"
    text = EXAMPLE.read_text().replace("name: songs", f"name: {unique_name}").replace("random: 0.05", "random: 0.0")
    text = text.replace(".spillway/songs", str(tmp_path / "thetas")).replace("window: 200", "window: 100000, gain: 0.5")
    text = text.replace("shards: 2", "shards: 2, backups: 0")  # nobody dies here
    file.write_text(text.replace("slo: 500ms", f"slo: {PATIENT_SECONDS}s"))
    spec = load(file).spec
    with serving(file, spec.name, broker, tmp_path, cwd=ROOT) as served:
        with Client(spec, ClientSettings(bootstrap=broker), grace=PATIENT_SECONDS) as client:

            def score(key, **options):
                return client.predict({"item": "song-9"}, key=key, **options).outputs["score"]

            first = client.predict({"k": 3}, key="ada")
            assert len(first.outputs["items"]) == 3
            assert score("ada") == score("eve") == 0.0  # of nobody anything is known
            loved = first.outputs["items"][2]
            for song, value in ((loved, 5.0), *((song, 0.5) for song in first.outputs["items"][:2])):
                told = client.feedback(
                    "taste", first, {"item": song, "value": value}, feedback_id=f"{unique_name}-{song}"
                )
                token = told.token(PATIENT_SECONDS)
            second = client.predict({"items": first.outputs["items"]}, key="ada", after=token)
            assert second.outputs["items"][0] == loved
            assert second.flags["rank"]["versions"] == {"user": [token.epoch, token.n]}
            assert client.predict({"k": 3}, key="ada").outputs != first.outputs
            one = client.predict({"item": loved}, key="eve")
            token = client.feedback("taste", one, 4.0).token(PATIENT_SECONDS)  # the value of the item predicted
            assert 0 < score("eve", after=token) != score("ada")
            wrong = client.feedback("taste", "ada", {"item": "no song", "value": 1.0}).outcome(PATIENT_SECONDS)
            assert (wrong.kind, wrong.reason) == ("failed", "model-raised")
            assert "not in the table of Songs" in wrong.text
            switch_and_go_back(client, file, broker)
        assert served.stop() == 0, served.logs()


def switch_and_go_back(client, file, broker):
    """Listeners of two minds about twelve songs: features that tell them apart are better, and are switched to."""
    like = [1 if song % 3 else -1 for song in range(12)]
    told = []
    for user in range(6):
        for song in ((turn + 2 * user) % 12 for turn in range(12)):  # each is held out of some listeners' alone
            value = 3.0 + like[song] * (2 if user % 2 else -2)
            told.append(client.feedback("taste", f"u{user}", {"item": f"song-{song}", "value": value}))
    for each in told:
        each.token(PATIENT_SECONDS)

    def asked(**options):
        outcome = client.predict({"item": "song-1"}, key="u1", **options)
        return outcome.outputs["score"], outcome.flags["rank"]["generation"]

    before = asked()
    assert before[1] == 0
    assert "generation 1: switched" in said("train", "features", file, "taste", broker=broker)
    until(lambda: asked()[1] == 1, PATIENT_SECONDS, "generation 1 answers")
    after = asked()
    assert abs(after[0] - 5) < abs(before[0] - 5)
    token = client.feedback("taste", "u1", {"item": "song-1", "value": 1.0}).token(PATIENT_SECONDS)
    assert asked(after=token)[0] < after[0]
    assert "generation 0 is current" in said("models", "rollback", file, "taste", broker=broker)
    until(lambda: asked()[1] == 0, PATIENT_SECONDS, "generation 0 answers again")
    assert asked()[0] < before[0]  # it has heard what was said meanwhile
    listed = json.loads(said("models", "generations", file, "taste", "--json", broker=broker))
    assert listed["current"] == 0
    assert [row["observations"] for row in listed["generations"]] == [len(told) + 5, 1]
    assert [row["users"] for row in listed["generations"]] == [8, 8]
    events = [event["event"] for event in json.loads(said("models", "history", file, "taste", "--json", broker=broker))]
    assert events == ["asked", "trained", "switched", "current"]
