"""A broker that can be cut off from its controller: it answers its clients, but leads nothing and coordinates nobody.

That is what becomes of the only broker of a cluster that stands still for longer than its session. Its metadata name
no broker then, and every client has to find its way again although no connection broke.
"""

import time
from contextlib import closing, contextmanager

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.broker.ports import free_port
from spillway.agents.broker.settings import HOST
from tests.throttle import Throttle
from tests.waiting import BROKER_SECONDS, Bound

_SESSION_MS = 2000
_WITHIN = 60.0


class FencedBroker:
    """`broker`, and the link by which it is heard by its controller."""

    def __init__(self, broker, link):
        self.broker = broker
        self._link = link

    @property
    def bootstrap(self):
        return self.broker.bootstrap

    def fence(self, meanwhile=lambda: None):
        """Cut it off until its controller has given it up; do something as often as there is time until then."""
        fenced = self._said("Fencing broker")
        self._link.shape(held=True)

        def happened():
            meanwhile()
            return self._said("Fencing broker") > fenced

        self._await(happened)

    def unfence(self):
        """Let it be heard again, until it leads again what it has led."""
        unfenced = self._said("handleBrokerUnfenced")
        self._link.reset()
        self._await(lambda: self._said("handleBrokerUnfenced") > unfenced)

    def _said(self, words):
        return self.broker.folder.log.read_text().count(words)

    def _await(self, happened):
        bound = Bound(_WITHIN)
        while not happened():
            assert not bound.over, "the controller has not noticed"
            time.sleep(0.05)


@contextmanager
def fenced_broker(folder):
    port = free_port()
    controller = free_port(but_not={port})
    with closing(Throttle(controller)) as link:
        extra = {
            "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
            "controller.quorum.voters": f"1@{HOST}:{link.port}",
            "broker.session.timeout.ms": str(_SESSION_MS),
        }
        with EmbeddedBroker(folder, port=port, strict_port=True, extra=extra, start_timeout=BROKER_SECONDS) as broker:
            yield FencedBroker(broker, link)
