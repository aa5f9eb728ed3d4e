"""The files of an offline job: what is read, what is kept over a crash, what is refused."""

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from spillway.lineage.errors import UsageError, WireError
from spillway.producers.offline import job
from spillway.producers.offline.files import Inputs, Outputs

ASKS = {"pipeline": "p", "parameters": {}}


@pytest.fixture
def inputs(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"x": 1}\nnonsense\n{"x": 3}\n')
    return path


def test_rows_of_lines_from_any_on_and_those_that_are_none(inputs):
    read = Inputs(inputs)
    assert read.count == 3
    rows = dict(read.rows(1))
    assert isinstance(rows[1], WireError)
    assert "line 2" in str(rows[1])
    assert rows[2] == {"x": 3}


def test_rows_of_arrays(tmp_path):
    path = tmp_path / "in.npz"
    np.savez(path, pixels=np.arange(6.0).reshape(3, 2))
    read = Inputs(path)
    assert read.count == 3
    assert [row["pixels"].tolist() for _, row in read.rows(1)] == [[2.0, 3.0], [4.0, 5.0]]


def test_arrays_of_different_lengths_and_what_is_no_archive_are_refused(tmp_path):
    path = tmp_path / "in.npz"
    np.savez(path, a=np.zeros(3), b=np.zeros(2))
    with pytest.raises(UsageError, match="as many rows"):
        Inputs(path)
    path.write_bytes(b"PK nonsense")
    with pytest.raises(UsageError, match="cannot be read"):
        Inputs(path)


def test_lines_that_are_added_while_a_job_runs_are_not_its_rows_and_lost_ones_end_it(inputs):
    rows = Inputs(inputs).rows(0)
    with inputs.open("a") as file:
        file.write('{"x": 4}\n')
    assert [number for number, _ in rows] == [0, 1, 2]
    rows = Inputs(inputs).rows(0)
    inputs.write_text('{"x": 1}\n')
    assert next(rows) == (0, {"x": 1})
    with pytest.raises(UsageError, match="has lost lines since the job began: name another file for outputs"):
        next(rows)


def test_it_goes_on_behind_the_last_whole_row(inputs, tmp_path):
    out = tmp_path / "out.jsonl"
    with Outputs(out, inputs, ASKS) as first:
        assert first.since is None
        first.note(5.0, {1: 2}, 64)
        first.write([{"row": 0, "outputs": {}}])
    with out.open("ab") as file:
        file.write(b'{"row": 1, "outp')
    with Outputs(out, inputs, ASKS) as again:
        assert (again.job, again.written, again.since, again.attempts) == (first.job, 1, 5.0, {1: 2})
        again.write([{"row": 1, "outputs": {}}])
    assert [json.loads(line)["row"] for line in out.read_text().splitlines()] == [0, 1]


def test_another_job_s_file_somebody_s_file_and_one_that_is_being_written_are_refused(inputs, tmp_path):
    out = tmp_path / "out.jsonl"
    with Outputs(out, inputs, ASKS) as first:
        first.note(5.0, {}, 64)
        with pytest.raises(UsageError, match="another command"):
            Outputs(out, inputs, ASKS)
    with pytest.raises(UsageError, match="another parameters"):
        Outputs(out, inputs, ASKS | {"parameters": {"app": "a"}})
    inputs.write_text(inputs.read_text().replace("3", "4"))  # of the same size
    with pytest.raises(UsageError, match="another content"):
        Outputs(out, inputs, ASKS)
    mine = tmp_path / "mine"
    mine.write_text("precious\n")
    with pytest.raises(UsageError, match="no offline job's"):
        Outputs(mine, inputs, ASKS)
    assert mine.read_text() == "precious\n"


def test_a_device_is_no_file_for_outputs(inputs):
    with pytest.raises(UsageError, match="/dev/null is not a file that a job can go on with"):
        Outputs(Path("/dev/null"), inputs, ASKS)


@pytest.mark.parametrize("text", ["{}", "[]", '"text"', '{"of": 1}', "nonsense"])
def test_a_job_file_that_is_somebody_s_is_refused(inputs, tmp_path, text):
    out = tmp_path / "out.jsonl"
    out.write_text("")
    (tmp_path / "out.jsonl.job").write_text(text)
    with pytest.raises(UsageError, match=r"out\.jsonl\.job cannot be read: .*name another file for outputs"):
        Outputs(out, inputs, ASKS)


def test_outputs_that_have_more_rows_than_the_inputs_end_the_job(inputs, tmp_path, monkeypatch):
    out = tmp_path / "out.jsonl"
    with Outputs(out, inputs, ASKS) as first:
        first.note(5.0, {}, 64)
    out.write_text("{}\n" * 4)
    monkeypatch.setattr(job, "Words", lambda *_: nullcontext())
    made = job.Job("p", None, None, None, parameters={})
    with pytest.raises(UsageError, match=r"has 4 rows, and .* only 3"):
        made.run(inputs, out)
