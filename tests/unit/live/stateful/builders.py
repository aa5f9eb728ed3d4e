"""The work of a stage with a state, and requests for it."""

from types import SimpleNamespace

from spillway.agents.core.request import Delivery, Request
from spillway.agents.live.stateful.work import StatefulWork
from spillway.agents.run.emission import Carried
from spillway.lineage.limits import Limits
from spillway.lineage.message import Query
from tests.unit.live.test_batch_work import functions, stage_spec


def stateful_work(*, joins=False, limits=None):
    return StatefulWork(
        stage_spec(), [], functions(), joins=joins, version="1", signature=None, limits=limits or Limits()
    )


def request(number, inputs, key="k"):
    carried = Carried(SimpleNamespace(key=key.encode(), topic="in"), None, Query(inputs, {}))
    delivery = Delivery(f"r{number}", 0, number, 1.0, 9.0, "", None, payload=carried)
    return Request(f"r{number}", 0, 1.0, 9.0, 2.0, (delivery,), {}, 2.5, 3.0)
