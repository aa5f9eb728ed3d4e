from pathlib import Path

import pytest

from lineage.errors import UsageError
from producers.load.workloads import problems, read_manifest

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
