"""Other people's traffic as a trace: nothing is lost, and it has the rates that are asked for."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage.errors import UsageError
from spillway.producers.load import foreign, recipes, traces
from spillway.producers.load.foreign import Layout, Rescaling


def read(file, layout=Layout(), wanted=Rescaling(), seed=1):  # noqa: B008 - they are frozen
    return foreign.read(file, layout, wanted, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("traffic") / "given.csv"


COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=40).filter(any)


@pytest.mark.parametrize("name", ["made.csv", "made.csv.gz"])
def test_a_trace_of_ours_comes_back(tmp_path, name):
    times = recipes.make(["gamma:rate=100,cv2=4,for=60s"], 5)
    traces.write_times(tmp_path / name, times)
    assert read(tmp_path / name) == pytest.approx(times, abs=1e-6)


@given(COUNTS, st.sampled_from([1.0, 60.0]), st.booleans())
def test_counts_keep_their_rows(file, counts, width, dated):
    start = datetime(2024, 2, 29, 23, 58, tzinfo=UTC)
    rows = [f"{start + timedelta(seconds=n * width)},{count}" for n, count in enumerate(counts)]
    kept = [row for n, row in enumerate(rows) if counts[n] or n == 0] if dated else rows
    file.write_text("\n".join(["when,requests", *kept]))
    times = read(file, Layout(width=width, began="when" if dated else None))
    assert np.bincount((times / width).astype(int), minlength=len(counts)).tolist() == counts


@given(COUNTS.filter(lambda counts: sum(counts) > 20), st.floats(0.5, 50), st.floats(0.1, 10))
def test_counts_get_the_rate_and_the_peak(file, counts, rate, compress):
    file.write_text("\n".join(map(str, counts)))
    seconds = 60 * len(counts) / compress
    times = read(file, Layout(width=60.0), Rescaling(compress, rate=rate))
    assert abs(len(times) - rate * seconds) <= 1
    assert times[-1] < seconds
    times = read(file, Layout(width=60.0), Rescaling(compress, peak=rate))
    busiest = np.bincount((times * compress / 60).astype(int)).max()
    assert abs(busiest - rate * 60 / compress) <= 1


@given(st.lists(st.integers(0, 10**8), min_size=2, max_size=50))
def test_dates_keep_their_distances(file, micros):
    start = datetime(2023, 11, 16, 18, 15, 46, tzinfo=UTC)
    rows = [f"{(start + timedelta(microseconds=at)).replace(tzinfo=None)},374,44" for at in micros]
    file.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))  # as the Azure LLM traces
    assert read(file) == pytest.approx((np.sort(micros) - min(micros)) / 1e6, abs=2e-6)


def test_times_are_rescaled(file):
    file.write_text("\n".join(f"x,{1_700_000_000_000 + 10 * n}" for n in range(10_000)))  # milliseconds
    times = read(file, Layout(column="2"), Rescaling(1000, rate=250))
    assert times[0] == 0
    assert len(times) / times[-1] == pytest.approx(250, rel=0.05)
    assert read(file, Layout(column="2"), Rescaling(1000)) == pytest.approx(np.arange(10_000) / 100)


@pytest.mark.parametrize(
    ("text", "layout", "wanted", "message"),
    [
        ("", {}, {}, "is empty"),
        ("when\n", {}, {}, "but no rows"),
        ("a,b\n1,2\n", {"column": "c"}, {}, ":1: has no column 'c'; there are a, b, or 1 to 2"),
        ("a,b\n1,2\n", {"column": "0"}, {}, "has no column '0'"),
        ("a\n1\nx\n", {}, {}, ":3: column 1 is 'x': a time is .*; if this is the wrong column"),
        ("a,b\n1,2\n3\n", {"column": "b"}, {}, ":3: column 2 is ''"),
        ("n\n1\n-1\n", {"width": 1.0}, {}, ":3: column 1 is '-1': a count is a number of 0 or more"),
        ("n\n0\n0\n", {"width": 1.0}, {}, "has no requests"),
        ("t,n\n0,1\n60,1\n50,1\n", {"width": 60.0, "began": "t"}, {}, ":4: begins less than 60 s after"),
        ("0,x\n60,1\n", {"width": 60.0, "began": "1"}, {}, ":1: is a header in one column"),
        ("1\n2\n", {}, {"peak": 5.0}, "give --counts"),
        ("1\n", {}, {"rate": 5.0}, "all come at the same time"),
    ],
)
def test_what_cannot_be_read_is_named(file, text, layout, wanted, message):
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read(file, Layout(**layout), Rescaling(**wanted))
