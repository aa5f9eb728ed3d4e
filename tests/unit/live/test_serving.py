"""How a stage's process ends: by what its loop's callbacks raise, and whether or not its last commit is answered."""

import asyncio
from types import SimpleNamespace

import pytest

from spillway.agents.live.stage import startup
from spillway.agents.live.stage.startup import Serving
from spillway.lineage.errors import SpillwayError


def fails():
    raise RuntimeError("nobody foresaw this")


async def test_a_callback_that_raises_ends_the_process_that_would_wait_for_what_it_was_to_do():
    loop = asyncio.get_running_loop()
    app = SimpleNamespace(_crashed=asyncio.Event())
    serving = Serving(None)._until_stopped(
        app, loop.create_task(asyncio.sleep(0)), loop.create_future(), lambda: loop.call_soon_threadsafe(fails)
    )
    with pytest.raises(SpillwayError, match="RuntimeError: nobody foresaw this"):
        await serving


@pytest.mark.parametrize("settled", [True, False])
async def test_a_process_ends_in_order_though_nobody_answers_its_last_commit(monkeypatch, settled):
    monkeypatch.setattr(startup, "_end_within", lambda *_: None)
    monkeypatch.setattr(startup, "_LAST_COMMIT", 0.01)
    asked = []

    async def force_commit():
        asked.append("commit")
        await asyncio.Event().wait()

    consumer = SimpleNamespace(close_flow=lambda: asked.append("close"), force_commit=force_commit)
    ended = await Serving(SimpleNamespace(drain=0.05))._finish(
        SimpleNamespace(stage_consumer=consumer),
        asyncio.get_running_loop().create_future(),
        stop_taking=lambda: asked.append("stop"),
        settled=lambda: settled,
    )
    assert ended is settled
    assert asked == ["stop", "close", "commit"]


def test_a_partition_that_was_added_meanwhile_is_named_and_not_read(caplog, monkeypatch):
    monkeypatch.setattr(startup, "transacted", lambda _config: True)
    spec = SimpleNamespace(partitions=4)
    config = SimpleNamespace(
        pipeline=SimpleNamespace(spec=spec), topic="p.ingress", settings=None, session=10.0, heartbeat=0.3
    )
    reads = Serving(config)._membership("g", "g.0").reads
    assert [reads(partition) for partition in (0, 3, 4)] == [True, True, False]
    assert "p.ingress[4] is not read: the pipeline has 4 partitions" in caplog.text
    assert not Serving(config)._membership("g", "g.0", lambda partition: partition == 1).reads(0)
