"""The worker processes that a stage's process has now."""

from contextlib import suppress

import psutil


def workers_of(process, part="spillway.agents.workers.local"):
    """Return those whose command line has such a part, oldest first; one that has just ended is none."""
    found = []
    for each in process.children():
        with suppress(psutil.NoSuchProcess):
            if any(part in one for one in each.cmdline()):
                found.append(each)
    return sorted(found, key=lambda each: each.pid)
