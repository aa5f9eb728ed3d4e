"""Which partitions a process reads, which it stops, and that each is told of once."""

import asyncio
import logging

import pytest

from spillway.agents.run.inputs import Inputs, of_gate, of_stage
from spillway.lineage.ports import Bounds


@pytest.fixture
def inputs():
    made = Inputs("p.a", of_stage("p.a", "p.a"), {})
    made.logs = {0: Bounds(0, 50), 1: Bounds(20, 50), 2: Bounds(0, 5)}

    async def bounds(partitions):
        return {partition: made.logs[partition] for partition in partitions}

    made.bounds = bounds
    return made


def starts(inputs, positions):
    return asyncio.run(inputs.starts(positions))


def test_partitions_that_lost_records_are_stopped_and_the_others_read_on(inputs, caplog):
    assert starts(inputs, {0: 30, 1: 10, 2: 30}) == {0: 30}
    assert inputs.stopped == {1: 10, 2: 30}
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert "p.a[1] is stopped: the next offset to read is 10, but the log begins at 20" in errors[0]
    assert "--group p.a --topic p.a --reset-offsets --to-earliest" in errors[0]
    assert "p.a[2] is stopped: the next offset to read is 30, but the log ends at 5" in errors[1]
    assert "would discard the lower offsets as duplicates" in errors[1]
    assert "--reset-offsets" in of_gate("p.gate", "p.outcomes").shortened  # nobody goes by the gate's offsets


def test_reading_begins_where_the_log_does_if_nothing_was_committed(inputs):
    assert starts(inputs, {0: None, 1: None}) == {0: 0, 1: 20}


def test_a_stopped_partition_is_told_of_once_and_forgotten_when_it_goes(inputs, caplog):
    for _ in range(3):
        starts(inputs, {1: 10})
    assert caplog.text.count("is stopped") == 1
    assert starts(inputs, {0: 30}) == {0: 30}
    assert inputs.stopped == {}  # another replica has it now


def test_a_partition_that_was_restored_is_read_again(inputs):
    starts(inputs, {2: 30})
    inputs.logs[2] = Bounds(0, 60)
    assert starts(inputs, {2: 30}) == {2: 30}
    assert inputs.stopped == {}


def test_behind_transactions_a_start_above_the_position_may_be_markers(inputs):
    behind = Inputs("p.a", of_stage("p.a", "p.a"), {}, markers=True)
    behind.bounds = inputs.bounds
    assert starts(behind, {1: 10, 2: 30}) == {1: 20}
    assert behind.stopped == {2: 30}


def test_what_was_deleted_below_a_durable_position_is_not_lost_to_a_member_that_reads_slower(inputs):
    inputs.durable = {1: 20, 2: 0}.get
    assert starts(inputs, {1: 10}) == {1: 20}
    assert inputs.admits(1, 10, inputs.logs[1])
    assert inputs.stopped == {}
    inputs.logs[1] = Bounds(21, 50)
    assert starts(inputs, {1: 10}) == {}
    assert inputs.stopped == {1: 20}
    inputs.durable = {1: 60}.get  # it ends below what is durable
    assert starts(inputs, {1: 30}) == {}
    assert inputs.stopped == {1: 60}
