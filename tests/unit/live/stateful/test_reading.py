"""What a member reads of its shard's input, where it has come late to some of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from agents.live.stateful.reading import ShardInput
from checkpoint.notes import Note
from lineage.replication import InputPlace


class Memory:
    """In place of the broker: has every record that it is asked for."""

    def __init__(self):
        self.asked = []

    async def read(self, partition, spans):
        self.asked.append((partition, tuple(spans)))
        for start, end in spans:
            for offset in range(start, end):
                yield SimpleNamespace(offset=offset)


def record(offset):
    return SimpleNamespace(
        topic="t", partition=0, offset=offset, timestamp=offset, timestamp_type=0, key=None, value=b"x", checksum=None,
        serialized_key_size=0, headers=(),
    )  # fmt: skip


def test_what_a_base_remembers_and_nobody_here_has_read_is_read_before_its_reign():
    """Its memory would have holes, and a repetition would pass for a first copy."""

    async def story():
        memory = Memory()
        intake = SimpleNamespace(remembered=lambda one: SimpleNamespace(offset=one.offset))
        made = ShardInput(intake, memory, None, feed=lambda _records: None, crashed=lambda _error: None)
        await made.assigned(frozenset({0}))
        await made.started()
        await made.take(SimpleNamespace(parts=[(0, [record(0), record(1)])], epoch=0))
        base = InputPlace(0, 6, Note(((1, 5),)).encode(6))
        made.durable([base])  # this member has not come that far
        memory.asked.clear()
        await made.complete([base])
        remembered = [one.offset for one in made.remembered(0, 6, ((1, 5),))]
        return memory.asked, remembered

    assert asyncio.run(story()) == ([(0, ((2, 5),))], [1, 2, 3, 4])
