"""Waiting for what a follower of a log has read (`spillway.lineage.ports.Following`)."""

import asyncio


async def caught_up(following):
    """Wait until all was accepted that the partition has now; return the offset of its end."""
    loop = asyncio.get_running_loop()
    read = loop.create_future()
    following.when_read(lambda end: loop.call_soon_threadsafe(read.set_result, end))
    return await read
