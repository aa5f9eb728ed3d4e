"""What runs beside what is served goes on after an error that nobody foresaw, and says it with its traceback."""

import logging
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from spillway.agents.learning.velox import thetas
from spillway.agents.live.gate.transaction import Aside
from spillway.agents.supervise import groups, model_manager, ownership, service, tuner
from spillway.agents.supervise.companions import Companions
from spillway.lineage.errors import BrokerError, UsageError
from spillway.producers.connection import ClientSettings
from spillway.topology.load import parse
from tests.unit.supervise.test_companions import Service
from tests.unit.supervise.test_managing import FILE

SECONDS = 60.0
NOWHERE = ClientSettings(bootstrap="nowhere:1")


class Fails:
    """Raises what nobody foresaw, twice, then calls `then`."""

    def __init__(self, then):
        self.left, self.then = 2, then

    def __call__(self, *_arguments, **_options):
        if self.left:
            self.left -= 1
            raise RuntimeError("nobody foresaw this")
        self.then()
        return {}


def manager(fails, stop, monkeypatch):
    monkeypatch.setattr(model_manager, "_AGAIN", 0.01)
    after = threading.Event()
    after.set()
    made = model_manager.ModelManager(parse(FILE).learner("taste"), NOWHERE, None, after, lambda _text: None)
    made._manage = fails
    return lambda: made.run(stop)


def observer(fails, stop, _monkeypatch):
    seen = groups.Observer(SimpleNamespace(read=fails), None, [], 0.01)
    seen._stopping = stop
    return seen._run


def owner(fails, stop, monkeypatch):
    monkeypatch.setattr(ownership, "_AGAIN", 0.01)
    made = object.__new__(ownership.Ownership)
    made._ended, made._tenure, made._slot, made._round = stop, None, ("p.owners", 0), fails
    return lambda: made._keep(lambda: None, bool)


@pytest.mark.parametrize("make", [manager, observer, owner])
def test_a_thread_goes_on(make, monkeypatch, caplog):
    stop = threading.Event()
    thread = threading.Thread(target=make(Fails(stop.set), stop, monkeypatch), daemon=True)
    with caplog.at_level(logging.WARNING):
        thread.start()
        assert stop.wait(SECONDS)
        thread.join(SECONDS)
    assert not thread.is_alive()
    assert "Traceback" in caplog.text
    assert "nobody foresaw this" in caplog.text


def test_a_call_beside_that_raises_anything_says_so_and_is_followed_by_others():
    aside, done = Aside("test"), threading.Event()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="nobody foresaw"):
            aside.call(Fails(done.set), SECONDS)
    aside.call(done.set, SECONDS)
    assert done.is_set()
    aside.close()


def test_features_whose_warming_raises_are_tried_again_after_a_pause(monkeypatch, caplog):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    made = thetas.Thetas(SimpleNamespace(dimension=2, regularization=1.0, prior=None), SimpleNamespace(theta="own"))
    made._load = lambda _theta: (SimpleNamespace(known=Fails(bool)), np.zeros(2))
    made._load_beside("new", [])
    assert pauses == [thetas._AGAIN]
    assert "nobody foresaw this" in caplog.text


def test_a_service_that_stops_by_its_own_event_stops_no_other():
    """As a pipeline does with its own companions: it sets the event that it was given."""

    class Sets(Service):
        def run(self, stop):
            stop.set()
            return 1

    fine = Service()
    both, ended = Companions([Sets(), fine]), threading.Event()
    both.start(ended.set)
    assert ended.wait(SECONDS)
    assert both._threads[1].is_alive()
    assert both.end() == 1


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(3), UsageError("no")])
def test_what_ends_a_service_in_its_thread_is_raised_to_whoever_serves(monkeypatch, error):
    class Ends:
        def __init__(self, *_arguments, **_options):
            self.ready = threading.Event()

        def run(self, _stop):
            raise error

        def hurry(self):
            pass

    monkeypatch.setattr(service, "Service", Ends)
    with pytest.raises(type(error)), service.served(None, say=print):
        pytest.fail("it was never ready")


def test_a_full_disk_ends_nothing_and_is_written_to_later(tmp_path, caplog):
    targets = service.Targets(tmp_path, "p")
    (tmp_path / "p").write_text("in the way")
    targets.keep(0.0)
    assert "targets.json cannot be written; trying again" in caplog.text
    (tmp_path / "p").unlink()
    targets.keep(service.EVERY_SECONDS)
    assert service.targets_path(tmp_path, "p").read_text() == "[]"


def test_a_tuner_whose_cluster_is_away_tries_again(tmp_path, monkeypatch):
    monkeypatch.setattr(tuner, "_AGAIN", 0.0)
    stop, tried = threading.Event(), []
    made = object.__new__(tuner.TunerLoop)
    made._config = SimpleNamespace(run_dir=tmp_path, metrics=None, form="envelope", settings=NOWHERE)
    made._name, made._stop, made._stages, made._metrics = "p", stop, ("a",), None

    class Sizes:
        __enter__ = __exit__ = lambda *_: None

        def require(self, **_more):
            pass

    def away(*_arguments, **_more):
        tried.append(True)
        if len(tried) == 2:
            stop.set()
        raise BrokerError("cannot reach Kafka")

    made._sizes, made._mine = Sizes(), lambda: ("a",)
    made._ingress = SimpleNamespace(close=bool)
    monkeypatch.setattr(tuner, "Ownership", away)
    monkeypatch.setattr(tuner, "Registration", lambda *_: SimpleNamespace(mark_ready=bool, close=bool))
    made.run()
    assert len(tried) == 2
