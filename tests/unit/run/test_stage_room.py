"""A stage whose output has no reports looked for until somebody asks: it asks where it can go on by nothing else."""

import asyncio

from spillway.agents.live.clock import Clock
from tests.unit.run.test_stage_cost import Ports, build, record


class Late(Ports):
    """The broker has all at once, and nobody hears of it before `hurry`."""

    def hurry(self):
        sent, self.sent = self.sent, []
        if sent:
            self.stage.stored(sent)


def test_a_queue_that_is_full_of_what_was_sent_takes_more_at_once():
    async def main():
        ports, clock = Late(), Clock()
        ports.stage = stage = build(ports)
        stage._core.queue_limit = 2
        await stage.assigned(frozenset({0}))
        while not stage.partitions:  # noqa: ASYNC110 - a stage has no event
            await asyncio.sleep(0)
        for number in range(50):
            await stage.accept({0: [record(number, clock)]})
            while stage._core.stats.emitted <= number:  # noqa: ASYNC110 - nor has its core
                await asyncio.sleep(0)
        while stage.commits().get(0, (0,))[0] < 50:  # noqa: ASYNC110 - nor have commits
            await asyncio.sleep(0)
        return stage

    assert asyncio.run(asyncio.wait_for(main(), 60)).idle
