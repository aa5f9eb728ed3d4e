import gzip

import numpy as np
import pytest

from lineage.errors import UsageError
from producers.load import traces


@pytest.fixture
def trace(tmp_path):
    def write(text, name="trace.csv"):
        file = tmp_path / name
        file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return file

    return write


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_counts_per_second(trace, name):
    file = trace("second,requests\n0,2\n1,0\n3,1\n", name)
    times = traces.read_arrivals(file, seed=3)
    assert np.floor(times).tolist() == [0, 0, 3]
    assert np.array_equal(times, traces.read_arrivals(file, seed=3))
    assert len(traces.read_arrivals(file, scale=10)) == 30


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_one_time_per_request(trace, name):
    file = trace("\ufefft,context_tokens\r\n0,374\r\n4.3146,396\r\n2.5,1\r\n", name)
    assert traces.read_arrivals(file).tolist() == [0, 2.5, 4.3146]
    assert traces.read_arrivals(file, speed=2, duration=2).tolist() == [0, 1.25]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: a trace starts with"),
        ("time,x\n1,2\n", ":1: a trace starts with"),
        ("second,requests\n", "no requests"),
        ("t\n", "no arrivals"),
        ("second,requests\n0,1\n1\n", ":3: a second without"),
        ("second,requests\n0,1\n1,x\n", ":3: requests is 'x'"),
        ("second,requests\n0,1.5\n", ":2: requests is '1.5', not a whole number"),
        ("second,requests\n0,-1\n", ":2: requests is '-1'"),
        ("second,requests\n1,1\n1,1\n", ":3: second 1 does not come after"),
        ("t\n0\nnan\n", ":3: t is 'nan'"),
        ("t\n1700000000.5\n", ":2: .*from the start of the trace"),
        ("t\n0\n\n\ninf\n", ":5: t is 'inf'"),
    ],
)
def test_what_is_no_trace_is_refused_by_line(trace, text, message):
    file = trace(text)
    with pytest.raises(UsageError, match=message) as refused:
        traces.read_arrivals(file)
    assert str(file) in str(refused.value)


def test_files_that_cannot_be_read_are_named(tmp_path, trace):
    with pytest.raises(UsageError, match="no trace"):
        traces.read_arrivals(tmp_path / "none.csv")
    broken = trace("t\n0\n")
    for content in (b"no gzip", gzip.compress(b"t\n1\n")[:-9]):
        packed = broken.with_suffix(".csv.gz")
        packed.write_bytes(content)
        with pytest.raises(UsageError, match="cannot read trace"):
            traces.read_arrivals(packed)
    broken.write_bytes(b"t\n\xff\xfe\n")
    with pytest.raises(UsageError, match="cannot read trace"):
        traces.read_arrivals(broken)


def test_nothing_left_is_said(trace):
    with pytest.raises(UsageError, match="no request is left"):
        traces.read_arrivals(trace("t\n5\n"), duration=1)


def test_a_process_is_named_instead_of_a_file():
    assert len(traces.arrivals("constant:10", duration=2)) == 20
    assert len(traces.arrivals("constant:10", duration=2, scale=2, speed=3)) == 120
    assert len(traces.arrivals("poisson:1000", duration=10)) == pytest.approx(10_000, rel=0.05)
    assert len(traces.arrivals("gamma:1000,3", duration=10)) == pytest.approx(10_000, rel=0.2)
    for wrong in ("constant:x", "gamma:1", "poisson:1,2"):
        with pytest.raises(UsageError, match="write constant:RATE"):
            traces.arrivals(wrong, duration=1)
    with pytest.raises(UsageError, match="--duration"):
        traces.arrivals("poisson:5")
