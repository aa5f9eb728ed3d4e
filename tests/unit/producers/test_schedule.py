import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage.errors import UsageError
from spillway.producers.load import schedule, traces


def rng(seed=1):
    return np.random.default_rng(seed)


def test_constant_is_even_and_starts_at_zero():
    assert schedule.constant(4, 1.0).tolist() == [0.0, 0.25, 0.5, 0.75]
    assert len(schedule.constant(0.1, 100)) == 10
    assert schedule.constant(3, 0.5).tolist() == [0.0, 1 / 3]


def test_poisson_has_its_rate_and_exponential_gaps():
    times = schedule.poisson(200, 500, rng())
    gaps = np.diff(times)
    assert len(times) == pytest.approx(100_000, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("cv", [0.2, 1.0, 4.0])
def test_gamma_has_its_rate_and_variation(cv):
    times = schedule.gamma(200, cv, 1000, rng())
    gaps = np.diff(times)
    assert len(times) == pytest.approx(200_000, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)
    assert times[-1] < 1000


def test_the_same_seed_gives_the_same_load():
    assert np.array_equal(schedule.gamma(50, 2, 10, rng(7)), schedule.gamma(50, 2, 10, rng(7)))
    assert not np.array_equal(schedule.gamma(50, 2, 10, rng(7)), schedule.gamma(50, 2, 10, rng(8)))


def test_gamma_without_variation_is_constant():
    assert np.array_equal(schedule.gamma(10, 0, 3, rng()), schedule.constant(10, 3))


def test_counts_fall_within_their_seconds():
    times = schedule.from_counts([0, 1, 5], [3, 0, 200], rng())
    assert np.all(np.diff(times) >= 0)
    assert np.floor(times).tolist() == [0.0] * 3 + [5.0] * 200


@given(st.lists(st.integers(0, 50), min_size=1, max_size=50), st.floats(0.01, 5))
def test_scaled_counts_keep_the_total(counts, scale):
    times = schedule.from_counts(range(len(counts)), counts, rng(), scale=scale)
    assert abs(len(times) - sum(counts) * scale) < 1
    assert np.all(np.diff(times) >= 0)


@given(st.lists(st.floats(0, 1e4), max_size=40), st.floats(0.01, 5))
def test_scaling_an_arrival_list_stays_within_it(times, scale):
    denser = schedule.scaled(times, scale, rng())
    assert np.all(np.diff(denser) >= 0)
    assert int(scale) * len(times) <= len(denser) <= (int(scale) + 1) * len(times)
    if len(denser):
        assert min(times) <= denser[0]
        assert denser[-1] <= max(times)


def test_scaling_up_keeps_the_originals_and_makes_no_pairs():
    times = np.arange(1000.0)
    twice = schedule.scaled(times, 2, rng())
    assert len(twice) == 2000
    assert np.isin(times, twice).all()
    assert len(np.unique(twice[:-2])) == 1998


def test_scaling_down_thins():
    assert len(schedule.scaled(np.arange(10_000.0), 0.3, rng())) == pytest.approx(3000, rel=0.06)


def test_pace_compresses_before_it_cuts():
    assert schedule.paced([0, 1, 2, 3, 4], speed=2, duration=1.5).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: schedule.constant(0, 1),
        lambda: schedule.constant(1, 0),
        lambda: schedule.poisson(float("nan"), 1, rng()),
        lambda: schedule.gamma(1, -1, 1, rng()),
        lambda: schedule.paced([0], speed=0),
        lambda: schedule.paced([0], duration=-1),
        lambda: schedule.scaled([0], 0, rng()),
        lambda: schedule.from_counts([0], [1], rng(), scale=-1),
    ],
)
def test_what_is_no_load_is_refused(call):
    with pytest.raises(UsageError):
        call()


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
    times = traces.arrivals(file, seed=3)
    assert np.floor(times).tolist() == [0, 0, 3]
    assert np.array_equal(times, traces.arrivals(file, seed=3))
    assert len(traces.arrivals(file, scale=10)) == 30


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_one_time_per_request(trace, name):
    file = trace("\ufefft,context_tokens\r\n0,374\r\n4.3146,396\r\n2.5,1\r\n", name)
    assert traces.arrivals(file).tolist() == [0, 2.5, 4.3146]
    assert traces.arrivals(file, speed=2, duration=2).tolist() == [0, 1.25]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: a trace starts with"),
        ("time,x\n1,2\n", ":1: a trace starts with"),
        ("second,requests\n", "no requests"),
        ("t\n", "no arrivals"),
        ("second,requests\n0,1\n1\n", ":3: a row needs a second"),
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
        traces.arrivals(file)
    assert str(file) in str(refused.value)


def test_files_that_cannot_be_read_are_named(tmp_path, trace):
    with pytest.raises(UsageError, match="no trace or recording"):
        traces.arrivals(tmp_path / "none.csv")
    broken = trace("t\n0\n")
    for content in (b"no gzip", gzip.compress(b"t\n1\n")[:-9]):
        packed = broken.with_suffix(".csv.gz")
        packed.write_bytes(content)
        with pytest.raises(UsageError, match="cannot read trace"):
            traces.arrivals(packed)
    broken.write_bytes(b"t\n\xff\xfe\n")
    with pytest.raises(UsageError, match="is no text: a trace is CSV"):
        traces.arrivals(broken)


def test_nothing_left_is_said(trace):
    with pytest.raises(UsageError, match="no request is left"):
        traces.arrivals(trace("t\n5\n"), duration=1)


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: schedule.constant(1e12, 10),
        lambda: schedule.gamma(100, 1e6, 10, rng()),  # of a million gaps one is not 0
        lambda: schedule.gamma(100, 1e200, 10, rng()),
        lambda: schedule.scaled([0.0, 1.0], 1e12, rng()),
        lambda: schedule.from_counts([0.0], [1], rng(), 1e12),
    ],
)
def test_more_arrivals_than_there_may_be_are_refused(make):
    with pytest.raises(UsageError, match=r"arrivals are expected: there may be at most 1e\+08"):
        make()
