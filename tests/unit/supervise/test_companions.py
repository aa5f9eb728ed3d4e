"""Services beside one another: ready together, ended together, whoever ends first."""

import threading

import pytest

from spillway.agents.live.registry import Address
from spillway.agents.supervise.companions import Companions, port_after
from spillway.lineage.errors import BrokerError, SpillwayError


class Service:
    """Serves until it is told to stop, or `ends` is set."""

    def __init__(self, end=0):
        self.ready, self.ends, self.hurried = threading.Event(), threading.Event(), False
        self.end = end

    def run(self, stop):
        while not (stop.is_set() or self.ends.is_set()):
            stop.wait(0.01)
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    def hurry(self):
        self.hurried = True


def test_all_have_to_be_ready_and_are_stopped_together():
    first, second = Service(), Service(end=1)
    both, ended = Companions([first, second]), threading.Event()
    both.start(ended.set)
    first.ready.set()
    assert not both.ready
    second.ready.set()
    assert both.ready
    both.hurry()
    assert first.hurried
    assert both.end() == 1
    assert not ended.is_set()
    assert Companions([]).ready
    assert Companions([]).end() == 0


@pytest.mark.parametrize(
    ("error", "raised"),
    [(BrokerError("no broker"), BrokerError), (RuntimeError("nobody foresaw this"), SpillwayError)],
)
def test_one_that_ends_by_itself_is_told_of_and_its_error_is_raised_and_it_stops_no_other(caplog, error, raised):
    broken, fine = Service(end=error), Service()
    both, ended = Companions([broken, fine]), threading.Event()
    both.start(ended.set)
    broken.ends.set()
    assert ended.wait(60)
    assert both._threads[1].is_alive()
    with pytest.raises(raised, match=str(error)):
        both.end()
    assert ("Traceback" in caplog.text) == (raised is not type(error))


def test_ports_follow_one_another():
    assert port_after(Address("h", 9000), 3) == Address("h", 9004)
    assert port_after(Address("h", 0), 3) == Address("h", 0)
