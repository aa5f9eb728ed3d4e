"""A stage's record that waits for its writer's schema while its partition goes, and perhaps comes back."""

import asyncio
import threading
from dataclasses import replace

import pytest

from spillway.agents.live.clock import Clock
from tests.unit.run.test_stage_cost import Ports, build, record

CLOCK = Clock()
RECORDS = [record(number, CLOCK) for number in range(4)]
STRANGE = replace(RECORDS[3], value=RECORDS[3].value[:2] + bytes(8) + RECORDS[3].value[10:])  # of an unknown schema


async def ready(stage):
    while not stage.partitions:  # noqa: ASYNC110 - a stage has no event
        await asyncio.sleep(0)


@pytest.mark.parametrize("goes", [True, False])
async def test_a_record_that_waits_for_a_schema_hides_none_that_are_read_again(goes):
    looking, found = threading.Event(), threading.Event()
    ports = Ports()
    ports.stage = stage = build(ports)
    stage._context.reload_schemas = lambda: looking.set() or found.wait(60)
    await stage.assigned(frozenset({0}))
    await ready(stage)
    accepting = asyncio.create_task(stage.accept({0: [*RECORDS[:3], STRANGE]}))
    await asyncio.to_thread(looking.wait, 60)
    await stage.revoked()
    starts = await stage.assigned(frozenset() if goes else frozenset({0}))
    if goes:
        starts = await stage.assigned(frozenset({0}))
        await ready(stage)
    found.set()
    await accepting
    await stage.accept({0: [*RECORDS[:3], STRANGE][starts[0] :]})
    assert stage._core.stats.stray == 0
    assert stage._core.stats.received == (7 if goes else 4)
