"""The plates example: its generator makes what it made, and its pipeline reads plates on a real broker."""

import pytest
import yaml

from examples.plates.payload import scene, truth
from examples.plates.scenes import fingerprint, scenes, splits
from examples.plates.training import ensure_trained
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.acceptance.serving import ROOT, serving
from tests.waiting import PATIENT_SECONDS

PLATES = ROOT / "examples" / "plates" / "pipeline.yaml"


def test_the_generator_makes_the_same_scenes_everywhere():
    assert fingerprint(scenes(20, "test", 1)) == "a95c76082e7a2653097f8843625039e29ac0a7e16bb0cef95d12871677e68cb0"


def test_no_digit_is_in_two_splits():
    parts = splits()
    assert (
        sum(len(part) for part in parts.values())
        == len(set().union(*(part.tolist() for part in parts.values())))
        == 1797
    )


@pytest.mark.nightly
def test_the_pipeline_reads_held_out_plates(broker, unique_name, tmp_path):
    ensure_trained()
    spec = yaml.safe_load(PLATES.read_text())
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**spec, "name": unique_name, "slo": PATIENT_SECONDS}, sort_keys=False))
    with (
        serving(path, unique_name, broker, tmp_path, cwd=ROOT) as served,
        Client(unique_name, ClientSettings(bootstrap=broker), slo=PATIENT_SECONDS) as client,
    ):
        outcomes = list(client.outcomes([scene(index, None) for index in range(200)]))
        right = sum(outcome.outputs["plate"] == truth(index) for index, outcome in outcomes)
        sure = [outcome.outputs["confidence"] for _, outcome in outcomes]
        assert {outcome.kind for _, outcome in outcomes} == {PREDICTION}, served.logs()
    assert right >= 150, f"{right} of 200 plates read right; training reached 176 or more when this was written"
    assert 0 <= min(sure) < max(sure) <= 1
