"""A gate whose input lost what it needs next stops that partition, says so, and releases the others' outcomes."""

from spillway.topology import topics
from tests.input_damage import commit_ahead, delete_records
from tests.waiting import until

from .gate_bench import PARTITIONS, ids


def report(bench, numbers, partitions=range(PARTITIONS)):
    for number in numbers:
        for partition in partitions:
            bench.report(f"r{number}.{partition}", partition, sequence=number)
    bench.producer.flush()


def served(bench):
    """A gate that has released ten outcomes a partition, and is stopped."""
    gate = bench.gate()
    report(bench, range(10))
    bench.await_released(30)
    until(lambda: {offset for offset, _ in bench.committed().values()} == {10}, 120)
    bench.stop(gate)


def test_a_gate_stops_a_partition_cut_before_it_was_read_and_one_that_ends_below_what_is_committed(make_gate):
    bench = make_gate()
    topic = topics.outcomes(bench.name)
    served(bench)
    report(bench, range(10, 20), (1, 2))
    delete_records(bench.settings.bootstrap, topic, {1: 14, 2: 10})
    commit_ahead(bench.settings.bootstrap, f"{bench.name}.gate", topic, {0: 900})
    gate = bench.gate()
    cut = f"{topic}[1] is stopped: the next offset to read is 10, but the log begins at 14: 4"
    until(lambda: cut in bench.said(gate), 120)
    until(lambda: f"{topic}[0] is stopped: the next offset to read is 900" in bench.said(gate), 120)
    released = bench.await_released(40)
    assert sorted(ids(released)) == sorted(
        [f"r{n}.{p}" for n in range(10) for p in range(3)] + [f"r{n}.2" for n in range(10, 20)]
    )
    assert bench.committed()[1][0] == 10
    bench.stop(gate)
