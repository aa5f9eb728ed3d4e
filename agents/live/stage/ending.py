"""How the processes of stages end: in their own time after draining, and whatever hangs."""

from __future__ import annotations

import os
import threading
from typing import Final

POLL: Final = 0.02  # seconds between two looks at what is left
LAST_COMMIT: Final = 5.0
END: Final = 10.0  # seconds for everything after draining; then the process ends in any case


class Bound:
    """Ends the process so many seconds after `begin`, whatever hangs: its orchestrator counts on it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = False

    def begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        timer = threading.Timer(self._seconds, os._exit, (1,))
        timer.daemon = True
        timer.start()
