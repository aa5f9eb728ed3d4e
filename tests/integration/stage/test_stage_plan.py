"""What stages tell one another on `<p>.plan`, on a real broker, when one of them stands still, dies, or leaves."""

import signal

from spillway.lineage import metric_names as names

CHAIN = """
partitions: 4
stages:
  - {name: one, emulated: {alpha: 2ms, beta: 1ms}, batching: {size: 4}}
  - {name: two, emulated: {alpha: 5ms, beta: 1ms}, batching: {size: 8}, after: one}
"""


def test_a_stopped_process_falls_silent_and_a_killed_one_is_replaced_by_the_one_that_follows(stage, until):
    chain = stage(CHAIN)
    _, two = (chain.start(name, plan_period=0.1) for name in ("one", "two"))

    def silent():
        told = [sample for sample in chain.samples("one") if sample.name == names.PLAN_SILENT]
        return [sample.value for sample in told if sample.labels[names.OF_STAGE] == "two"]

    until(lambda: silent() == [0])
    two.send_signal(signal.SIGSTOP)
    until(lambda: silent() == [1])
    two.send_signal(signal.SIGCONT)
    until(lambda: silent() == [0])
    chain.stop(two, signal.SIGKILL)
    until(lambda: silent() == [1])
    again = chain.start("two", plan_period=0.1)
    until(lambda: silent() == [0])
    chain.stop(again)  # in good order, so it is forgotten
    until(lambda: silent() == [])
