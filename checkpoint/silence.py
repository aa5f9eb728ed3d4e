"""Whether a peer is dead: its silence tells, while one is heard oneself; a supervisor's word tells at once (rule 13).

A member writes probes (its own heartbeats) where the peer writes its beats, and reads both. A beat that the peer sent
before a probe that has come back would have come too. Invariants:

* A peer is suspected of silence only if, for a whole lease, every probe came back in time and no beat of the peer came.
  A probe that comes late, or long after the one before, says that the broker, the network or the member itself had
  stopped: what was counted until then is void, and the peer gets a whole lease anew. So a broker's stall fells nobody.
* A report names one process and counts at once, heard or not. What a reported process sent before it died, and what is
  read of it later, changes nothing; a peer of another name is another one.
* A peer that was suspected of silence and is heard again is no longer suspected; what has begun since (a claim) goes
  its way, and the log decides.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillway.checkpoint.leases import Lease

_PROBES_MISSED = 4  # beats: a probe that took longer, or came longer after the one before, was not in time
_KEPT = 256


class Peer(Enum):
    """What is thought of the peer."""

    HEARD = "heard"
    SILENT = "silent"  # for a lease, while probes came back
    DEAD = "dead"  # reported


class Sign(Enum):
    """What is learned of it."""

    BEAT = "a beat of its own"
    SILENCE = "a lease without a beat"
    REPORT = "a supervisor's word"


# What follows, and whether a failover is due. What is missing changes nothing.
TABLE: dict[tuple[Peer, Sign], tuple[Peer, bool]] = {
    (Peer.HEARD, Sign.SILENCE): (Peer.SILENT, True),
    (Peer.HEARD, Sign.REPORT): (Peer.DEAD, True),
    (Peer.SILENT, Sign.BEAT): (Peer.HEARD, False),
    (Peer.SILENT, Sign.REPORT): (Peer.DEAD, True),
}


class Watch:
    """One member's watch over one peer, a process. A new peer is given a lease to be heard."""

    table = TABLE

    def __init__(self, lease: Lease, peer: str, now: float) -> None:
        """`peer`: the name of the process, as its claim, beats and a supervisor's report have it."""
        self.peer = peer
        self.state = Peer.HEARD
        self._lease = lease
        self._since = now  # from when on its silence is counted
        self._returned = now  # when the last probe came back
        self._sent: dict[int, float] = {}  # probes on the way

    def probe_sent(self, now: float, sequence: int) -> None:
        self._sent[sequence] = now
        if len(self._sent) > _KEPT:
            del self._sent[next(iter(self._sent))]

    def probe_returned(self, now: float, sequence: int) -> bool:
        """Note that a probe was read back; say whether a failover is due."""
        sent = self._sent.pop(sequence, None)
        if sent is None:
            return False
        longest = _PROBES_MISSED * self._lease.beat
        if now - sent > longest or now - self._returned > longest:
            self._since = now
        self._returned = now
        # What the peer sent before this probe stands before it in the log: silence is known up to when it was sent.
        return sent - self._since >= self._lease.seconds and self._sign(Sign.SILENCE)

    def heard(self, now: float, peer: str) -> None:
        if peer == self.peer:
            self._since = max(self._since, now)
            self._sign(Sign.BEAT)

    def reported(self, peer: str) -> bool:
        """Note that a supervisor has found a process dead; say whether a failover is due."""
        return peer == self.peer and self._sign(Sign.REPORT)

    def _sign(self, sign: Sign) -> bool:
        found = self.table.get((self.state, sign))
        if found is None:
            return False
        self.state, due = found
        return due
