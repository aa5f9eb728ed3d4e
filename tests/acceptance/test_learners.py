"""A pipeline with a learner, served by one command: what clients feed back is what their queries are answered with."""

import json
import subprocess

import pytest

from lineage.errors import UsageError
from lineage.tokens import Token
from producers.client import Client
from producers.connection import ClientSettings
from tests.acceptance.serving import ROOT, SPILLWAY, serving
from tests.waiting import PATIENT_SECONDS, until
from topology.load import load

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
    spec = load(pipeline).spec
    with serving(pipeline, spec.name, broker, tmp_path, cwd=ROOT) as served:
        with Client(spec, ClientSettings(bootstrap=broker)) as client:

            def ask(key):
                return client.predict({}, key=key)

            first = ask("ada")
            assert first.outputs == {"user": None, "version": None}
            with pytest.raises(UsageError, match="no learner 'tast'; did you mean 'taste'"):
                client.feedback("tast", "ada", 1)
            once = client.feedback("taste", first, 2)
            assert once.id == f"{first.flags['rank']['request']}/taste"
            assert once.token(PATIENT_SECONDS).learner == "taste"
            client.feedback("taste", first, 2)  # the same again: nobody waits for its acknowledgement
            options = ("--key", "ada", "--id", "mine", "--wait", "--bootstrap", broker)
            command = [SPILLWAY, "feedback", pipeline, "taste", "3", *options]
            told = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT, timeout=600).stdout)
            assert told["id"] == "mine"
            token = Token.parse(told["token"])
            seen = until(lambda: (out := ask("ada")).outputs["user"]["sum"] == 5 and out, 30.0, "the table followed")
            assert seen.outputs["user"]["ids"] == [once.id, "mine"]
            assert (
                seen.flags["rank"]["versions"] == {"user": seen.outputs["version"]} == {"user": [token.epoch, token.n]}
            )
            assert "stale" not in seen.flags["rank"]
            assert ask("bob").outputs["user"] is None
        assert served.stop() == 0, served.logs()
