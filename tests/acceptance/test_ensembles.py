"""A served ensemble learns from the truths that clients send: by context, and each truth once."""

from producers.client import Client
from producers.connection import ClientSettings
from tests.acceptance.serving import ROOT, serving
from tests.waiting import PATIENT_SECONDS
from topology.load import load

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
