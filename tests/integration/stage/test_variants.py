"""Variants of one application, served: they are loaded as queries need them, and by whose orders."""

import time

import numpy as np
import psutil
import pytest

from spillway.agents.live.sizes import Sizes
from spillway.topology.sizes import Size, key_of
from tests.worker_processes import workers_of

MODELS = """
class Tree:
    def predict(self, batch):
        return [{"label": type(self).__name__} for _ in batch]


class Linear(Tree):
    pass
"""


SCALED = """
partitions: 4
stages:
  - name: digit
    variants:
      app: digits
      settle: 0
      idle: 6s
      room: {core: 4}
      of:
        tree:
          {model: "variants:Tree", architecture: tree, accuracy: .8, takes: {1: 2ms, 8: 4ms}, batch: 8, load: 2s}
        linear:
          {model: "variants:Linear", architecture: linear, accuracy: .93, takes: {1: 10ms}, load: 2s,
           workers: {count: 0}}
        broken:
          {model: "variants:Broken", architecture: broken, accuracy: .99, takes: {1: 10ms}, load: 2s,
           workers: {count: 0}}
"""


@pytest.mark.nightly
def test_variants_are_loaded_as_they_are_asked_for_whoever_dies(stage, until):
    one = stage(SCALED)
    (one.folder / "variants.py").write_text(
        MODELS + "\n\nclass Broken:\n    def __init__(self):\n        raise RuntimeError('no weights')\n"
    )
    process = psutil.Process(one.start("digit").pid)
    until(lambda: one.metrics("digit").get("spillway_variant_workers") == 1)
    out = one.reader("outcomes")
    sent = []

    def ask(**needs):
        sent.append(f"q{len(sent)}")
        one.send(sent[-1], {"pixels": np.zeros(64)}, parameters=needs, within=60)
        one.flush()

    def told():
        def found():
            out.poll()
            return {headers.request_id: outcome for headers, outcome in out.outcomes()}

        until(lambda: len(found()) == len(sent))
        return found()

    # What nobody has loaded is loaded as it is asked for; the query waits for it.
    ask(model="linear")
    flags = told()["q0"].flags["digit"]
    assert (flags["variant"], flags["found"], flags["met"]) == ("linear", "active", True)
    assert one.metrics("digit")["spillway_variant_orders_total"] >= 1

    # A worker that is killed costs no query, and comes again. A variant that dies while it loads stops nothing.
    for number in range(50):
        ask(**({"accuracy": 0.9} if number % 2 else {"latency": "60s"}))
        if number == 10:
            ask(accuracy=0.95)  # the broken one is wanted, and the closest answers
        if number == 20:
            until(lambda: workers_of(process))[0].kill()
        time.sleep(0.02)
    found = told()
    assert len(out.settle()) == len(found) == len(sent)
    assert {outcome.kind for outcome in found.values()} == {"prediction"}
    flags = [outcome.flags["digit"] for outcome in found.values()]
    assert all(each["met"] for each in flags if "latency" in each["asked"])
    until(lambda: "no weights" in one.log("digit"))

    # Without queries all workers end; the next query loads what it needs.
    until(lambda: one.metrics("digit").get("spillway_variant_workers") == 0)
    ask(variant="tree")
    assert told()[sent[-1]].flags["digit"]["variant"] == "tree"

    # A front that is killed begins with what stands.
    process.kill()
    process.wait(60)
    process = psutil.Process(one.start("digit").pid)
    ask(accuracy=0.9)
    assert told()[sent[-1]].flags["digit"]["variant"] == "linear"
    until(lambda: one.committed("digit") == one.ends())


def test_the_orders_of_a_controller_whose_claim_is_over_change_nothing(stage, until):
    one = stage(SCALED.replace("      idle: 6s\n", ""))
    (one.folder / "variants.py").write_text(MODELS)
    one.start("digit")
    until(lambda: one.metrics("digit").get("spillway_variant_workers") == 1)
    with Sizes(one.settings, one.name) as table:

        def order(variant, count, epoch):
            size = Size(count, "another controller", "a test", time.time(), epoch, one.pipeline.frame)
            table.write({key_of("digit", variant): size})

        def wanted():
            return one.metrics("digit").get("spillway_variant_workers_wanted")

        order("linear", 1, 50)  # it has claimed the sizes, and the front's own controller ends
        until(lambda: wanted() == 2)
        until(lambda: table.newest(0.0)[key_of("digit", "linear")].epoch > 50)  # which claims them anew
        order("tree", 4, 50)
        order("linear", 4, 50)
        until(lambda: "an order of 'digit/linear' belongs to an ended claim and is ignored" in one.log("digit"))
        assert wanted() == 2
        assert table.newest(0.0)[key_of("digit", "linear")].count == 1


HOSTED = SCALED.replace("      idle: 6s\n", "").replace(
    "room: {core: 4}", "hosts: {small: {count: 1, most: 2, start: 2s, has: {core: {units: 1}}}}"
)


@pytest.mark.nightly
def test_a_host_is_started_for_a_variant_that_fits_on_none_and_is_there_for_the_next_front(stage, until):
    one = stage(HOSTED)
    (one.folder / "variants.py").write_text(MODELS)
    process = psutil.Process(one.start("digit").pid)
    until(lambda: one.metrics("digit").get("spillway_variant_hosts") == 1)
    until(lambda: one.metrics("digit").get("spillway_variant_workers") == 1)  # which fills it
    out = one.reader("outcomes")

    def ask(name):
        one.send(name, {"pixels": np.zeros(64)}, parameters={"model": "linear"}, within=60)
        one.flush()
        out.wait(1, 60)
        return {headers.request_id: outcome for headers, outcome in out.outcomes()}[name].flags["digit"]

    assert ask("first")["variant"] == "linear"
    assert one.metrics("digit")["spillway_variant_hosts"] == 2
    assert "host:small: 2" in one.log("digit")
    process.kill()
    process.wait(60)
    one.start("digit")
    until(lambda: one.metrics("digit").get("spillway_variant_hosts") == 2)
    until(lambda: one.metrics("digit").get("spillway_variant_workers") == 2)
