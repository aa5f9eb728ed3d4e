"""A served ensemble learns from the truths that clients send: by context, and each truth once."""

from producers.client import Client
from producers.connection import ClientSettings
from tests.acceptance.serving import ROOT, serving
from tests.waiting import PATIENT_SECONDS, until
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
            feedback = client.feedback("kind-weights", first, 3)
            token = feedback.token(PATIENT_SECONDS)
            client.feedback("kind-weights", first, 3)  # the same truth again
            out = until(
                lambda: (out := client.predict({"x": 5}, key="ada")).flags["kind"]["versions"]["kind-weights"] and out,
                PATIENT_SECONDS,
                "the weights came",
            )
            assert out.flags["kind"]["versions"] == {"kind-weights": [token.epoch, token.n]}
            assert out.outputs == {"label": 5}
            assert client.predict({"x": 5}, key="bob").outputs == {"label": 6}
        assert served.stop() == 0, served.logs()
