"""The coded plates example: its model answers as the plain one does, and serves while its workers stand still."""

import shutil
import time

import numpy as np
import psutil
import pytest
import torch
import yaml
from click.testing import CliRunner

from examples.plates import coded, models
from examples.plates.payload import scene
from examples.plates.training import ensure_trained
from spillway.agents.chaos.strikes import model_of
from spillway.agents.cli.commands.parity import parity
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from tests.acceptance.serving import ROOT, serving
from tests.waiting import PATIENT_SECONDS

CODED = ROOT / "examples" / "plates" / "coded.yaml"
QUERIES = 120


def test_a_padded_plate_is_read_as_by_the_plain_model():
    ensure_trained()
    draw = np.random.default_rng(0)
    patches = [draw.integers(1, 256, (digits, 24, 24), np.uint8) for digits in (4, 6, 0)]
    plain = models.Recognise().predict([{"patches": each} for each in patches])
    with torch.inference_mode():
        answers = coded.Recognise()(torch.from_numpy(np.stack([coded.padded(each) for each in patches]))).numpy()
    for answer, wanted in zip(answers, plain, strict=True):
        told = coded.finish({"output": answer})
        assert told["digits"].tolist() == wanted["digits"].tolist()
        assert np.allclose(told["probabilities"], wanted["probabilities"], atol=1e-5)


@pytest.fixture
def pipeline(tmp_path, unique_name):
    """The example with a parity model that is trained little, and time for a busy machine."""
    ensure_trained()
    spec = yaml.safe_load(CODED.read_text())
    path = tmp_path / "coded.yaml"
    path.write_text(yaml.safe_dump({**spec, "name": unique_name, "slo": PATIENT_SECONDS}, sort_keys=False))
    where = "examples.plates.coded"
    options = ["--architecture", f"{where}:Parity", "--metric", f"{where}:read_right", "--epochs", "2"]
    done = CliRunner().invoke(parity, [str(path), "recognise", "--data", f"{where}:test", *options])
    assert done.exit_code == 0, done.output + repr(done.exception)
    yield path
    shutil.rmtree(tmp_path / "parity")


@pytest.mark.nightly
def test_plates_are_read_while_workers_stand_still(broker, unique_name, tmp_path, pipeline):
    with (
        serving(pipeline, unique_name, broker, tmp_path, cwd=ROOT) as served,
        Client(unique_name, ClientSettings(bootstrap=broker), slo=PATIENT_SECONDS) as client,
    ):
        front = psutil.Process(served.entry("recognise").pid)
        workers = [each for each in front.children() if model_of(each) == "examples.plates.coded:Recognise"]
        assert len(workers) == 2
        stopped = workers[0]

        def asked():
            for index in range(QUERIES):
                if index == 20:
                    stopped.suspend()
                time.sleep(0.05)
                yield scene(index, None)
            stopped.resume()

        try:
            outcomes = [outcome for _, outcome in client.outcomes(asked())]
        finally:
            stopped.resume()
        assert len(outcomes) == QUERIES
        assert {outcome.kind for outcome in outcomes} == {PREDICTION}, served.logs()
        made = [outcome for outcome in outcomes if outcome.flags.get("recognise", {}).get("reconstructed")]
        assert made, served.logs()
