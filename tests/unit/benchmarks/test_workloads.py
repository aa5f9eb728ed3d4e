from pathlib import Path

import numpy as np
import pytest

from benchmarks.shapes import RATE, SHAPES, varied
from benchmarks.workloads import problems, read_manifest
from lineage.errors import UsageError

MANIFEST = Path(__file__).parents[3] / "traces" / "manifest.yaml"


def test_every_workload_is_what_its_spec_makes():
    assert problems(MANIFEST) == []


def test_every_trace_is_in_the_manifest():
    named = {workload.file for workload in read_manifest(MANIFEST)}
    assert {file.name for file in MANIFEST.parent.glob("*.csv*")} == named


def test_a_changed_file_is_noticed(tmp_path):
    for file in MANIFEST.parent.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "bursty.csv").write_text("second,requests\n0,1\n")
    assert problems(tmp_path / "manifest.yaml") == [f"{tmp_path / 'bursty.csv'}: is not what its spec makes"]


def test_a_manifest_that_is_none_is_refused_by_name(tmp_path):
    (tmp_path / "manifest.yaml").write_text("workloads: [{file: a.csv}]")
    with pytest.raises(UsageError, match=r"manifest\.yaml"):
        read_manifest(tmp_path / "manifest.yaml")


@pytest.mark.parametrize("spec", ["", "steps: [{seconds: 1, rate: 1}], shape: {name: wiki-like, seconds: 9}, "])
def test_a_workload_has_one_spec(tmp_path, spec):
    file = tmp_path / "manifest.yaml"
    file.write_text(f"workloads: [{{file: a.csv, about: x, seed: 1, {spec}requests: 1, sha256: x}}]")
    with pytest.raises(UsageError, match="give one of them"):
        read_manifest(file)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_have_the_variation_that_they_are_to_have(name):
    shape = SHAPES[name]
    rates = shape.rates(300, 4)
    assert rates.mean() == pytest.approx(RATE)
    assert rates.std() / rates.mean() == pytest.approx(shape.cv, abs=1e-6)
    assert rates.min() > 0
    arrivals = shape.arrivals(300, 4)
    assert (np.diff(arrivals) >= 0).all()
    assert len(arrivals) == pytest.approx(300 * RATE, rel=0.03)
    assert (arrivals == shape.arrivals(300, 4)).all()
    assert len(arrivals) != len(shape.arrivals(300, 5))


def test_a_variation_that_no_power_gives_is_refused():
    with pytest.raises(UsageError, match="too few"):
        varied(np.array([1.0, 2.0]), 5.0)
