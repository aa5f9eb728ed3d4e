"""What a tuner takes to wait before a stage."""

import pytest

from spillway.topology.capacity.backlog import Backlog


def test_what_comes_beyond_what_workers_can_do_waits_until_more_have_loaded():
    backlog = Backlog(2, 10.0, 5.0)
    backlog.passed(0.0, 1.0, 20)
    assert backlog.when_loaded(1.0, 20.0) == 0
    backlog.passed(1.0, 2.0, 50)
    assert backlog.when_loaded(2.0, 50.0) == pytest.approx(30 + 5 * 30)
    backlog.resize(2.0, 3)
    assert backlog.when_loaded(3.0, 50.0) == pytest.approx(30 + 4 * 30)  # and from then on 5 workers keep up
    backlog.passed(2.0, 7.0, 250)
    backlog.forget()
    assert backlog.when_loaded(7.0, 0.0) == 0


def test_who_loads_is_sent_away_first():
    backlog = Backlog(2, 10.0, 5.0)
    backlog.resize(0.0, 2)
    backlog.resize(1.0, -3)  # one of the two that served goes, too
    assert backlog.when_loaded(1.0, 20.0) == pytest.approx(50)
