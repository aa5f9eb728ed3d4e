"""The measures of the comparison against brute force: windows, capacities, workloads, words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.bench.pard import windows
from agents.bench.pard.ablations import word
from agents.bench.pard.applications import (
    APPLICATIONS,
    application,
    capacity_of,
    needed_capacity,
    provision,
    throughput,
)
from agents.bench.pard.output import fill_in, standing
from agents.bench.pard.paper import Range
from lineage.errors import UsageError
from producers.load.shapes import RATE, SHAPES, varied


def slowly(due, good, width):
    """The worst window, one window after the other."""
    worst, start = 0.0, 0.0
    while start <= max(0.0, due[-1] - width) + 1e-9:
        inside = [ok for at, ok in zip(due, good, strict=True) if start <= at < start + width]
        if len(inside) >= windows.LEAST:
            worst = max(worst, 1 - sum(inside) / len(inside))
        start += windows.STEP
    return worst


@given(seed=st.integers(0, 10_000), width=st.sampled_from([1.0, 2.0, 5.0, 60.0]))
@settings(max_examples=60, deadline=None)
def test_the_worst_window_is_that_of_brute_force(seed, width):
    rng = np.random.default_rng(seed)
    due = np.sort(rng.random(150) * rng.integers(3, 30))
    good = rng.random(150) > rng.random()
    assert windows.worst_window(due, good, width) == pytest.approx(slowly(due.tolist(), good.tolist(), width))


def test_a_burst_of_losses_is_found_and_diluted_by_wider_windows():
    due = np.arange(0, 100, 0.01)
    good = ~((due >= 40) & (due < 41))
    worst = [windows.worst_window(due, good, width) for width in (1.0, 2.0, 10.0, 100.0)]
    assert worst == pytest.approx([1.0, 0.5, 0.1, 0.01], abs=1e-3)


def test_too_few_requests_make_no_window():
    assert windows.worst_window(np.array([0.0, 0.1]), np.array([False, False]), 1.0) == 0.0
    assert windows.worst_window(np.array([]), np.array([], bool), 1.0) == 0.0


def test_hard_seconds_follow_a_second_above_capacity():
    due = np.concatenate([np.full(5, 0.5), np.full(20, 3.5), np.full(5, 9.5)])
    assert windows.hard_seconds(due, 10.0, after=2.0).tolist() == [False] * 3 + [True] * 3 + [False] * 4


@pytest.mark.parametrize("name", SHAPES)
def test_workloads_have_the_variation_that_they_are_to_have(name):
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
    other = shape.rates(300, 4, cv=0.3)
    assert other.std() / other.mean() == pytest.approx(0.3, abs=1e-6)
    assert (np.argsort(other) == np.argsort(rates)).all()


def test_a_variation_that_no_power_gives_is_refused():
    with pytest.raises(UsageError, match="too few"):
        varied(np.array([1.0, 2.0]), 5.0)


@given(st.lists(st.integers(1, 500), min_size=3, max_size=60), st.sampled_from([0.01, 0.05, 0.2]))
@settings(max_examples=60, deadline=None)
def test_the_needed_capacity_leaves_the_excess(counts, excess):
    due = np.concatenate([np.full(count, second + 0.5) for second, count in enumerate(counts)])
    capacity = needed_capacity(due, excess)
    over = sum(max(0.0, count - capacity) for count in counts)
    if capacity > min(counts):
        assert over == pytest.approx(excess * sum(counts), rel=1e-6)
    else:
        assert over <= excess * sum(counts) + 1e-9


@pytest.mark.parametrize("name", APPLICATIONS)
def test_workers_serve_the_capacity_and_one_less_would_not(name):
    spec = application(name).spec
    workers = provision(spec, 321.0, {})
    assert capacity_of(spec, workers, {}) >= 321.0
    for count, rate in zip(workers, throughput(spec, {}).values(), strict=True):
        assert (count - 1) * rate < 321.0


def test_an_application_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(UsageError, match="no application 'xx'"):
        application("xx", tmp_path)


def test_words_follow_from_the_numbers():
    paper = Range(1.6, 16.7)
    assert standing(0.02, 0.0198, paper) == "even"
    assert standing(0.01, 0.02, paper) == "**loses**"
    assert standing(0.013, 0.01, paper) == "wins, below the range"
    assert standing(0.05, 0.01, paper) == "wins, in the range"
    assert standing(0.5, 0.01, paper) == "wins, above the range"
    assert "sign differs" in word(0.008, 0.010, 2.8)
    assert "no difference" in word(0.0101, 0.0100, 2.8)
    assert word(0.05, 0.01, 2.8) == "as in the paper, more so"
    assert word(0.02, 0.01, 2.8) == "as in the paper, less so"


def test_tables_go_between_their_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("head\n<!-- begin a -->\nold\n<!-- end a -->\nmiddle\n<!-- begin b -->\n<!-- end b -->\ntail\n")
    assert fill_in(page, {"a": "new\n", "c": "not there\n"}) == ["a"]
    expected = "head\n<!-- begin a -->\nnew\n<!-- end a -->\nmiddle\n<!-- begin b -->\n<!-- end b -->\ntail\n"
    assert page.read_text() == expected
    fill_in(page, {"a": "new\n"})
    assert page.read_text() == expected
