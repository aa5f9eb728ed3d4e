"""A broker with a second listener that is reached through a proxy: who starts from there, stays there."""

from contextlib import closing, contextmanager

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.broker.ports import free_port
from spillway.agents.broker.settings import HOST
from tests.throttle import Throttle
from tests.waiting import BROKER_SECONDS


class SlowBroker:
    """`broker.bootstrap` is the straight way, `bootstrap` the one through `link`."""

    def __init__(self, broker, link):
        self.broker = broker
        self.link = link

    @property
    def bootstrap(self):
        """Where clients start whose every connection goes through the proxy."""
        return f"{HOST}:{self.link.port}"


@contextmanager
def slow_broker(folder, cache_dir=None, **settings):
    """Start one; `settings` with underscores for dots override Kafka's."""
    port = free_port()
    slow = free_port(but_not={port})
    controller = free_port(but_not={port, slow})
    with closing(Throttle(slow)) as link:
        extra = {
            "listeners": f"BROKER://{HOST}:{port},SLOW://{HOST}:{slow},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"BROKER://{HOST}:{port},SLOW://{HOST}:{link.port}",
            "listener.security.protocol.map": "BROKER:PLAINTEXT,SLOW:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        broker = EmbeddedBroker(
            folder, port=port, strict_port=True, cache_dir=cache_dir, extra=extra, start_timeout=BROKER_SECONDS
        )
        with broker:
            yield SlowBroker(broker, link)
