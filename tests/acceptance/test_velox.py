"""The Velox example, served: an observation changes the listener's next ranking, and nobody else's."""

from pathlib import Path

from producers.client import Client
from producers.connection import ClientSettings
from tests.acceptance.serving import ROOT, serving
from tests.waiting import PATIENT_SECONDS
from topology.load import load

EXAMPLE = Path(ROOT, "examples", "velox", "songs.yaml")


def test_what_a_listener_says_changes_the_next_ranking(unique_name, broker, tmp_path):
    file = tmp_path / "songs.yaml"
    text = EXAMPLE.read_text().replace("name: songs", f"name: {unique_name}").replace("random: 0.05", "random: 0.0")
    file.write_text(text.replace("slo: 500ms", f"slo: {PATIENT_SECONDS}s"))
    spec = load(file).spec
    with serving(file, spec.name, broker, tmp_path, cwd=ROOT) as served:
        with Client(spec, ClientSettings(bootstrap=broker)) as client:

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
        assert served.stop() == 0, served.logs()
