"""Partitions that are unassigned although the gates' group is stable: they are found, and assigned again.

With the cooperative protocol a member that is to give partitions up does so, and then joins again, which has them dealt
to others. A static member that dies between the two gets back what it was to keep, without a rebalance, when it
restarts within its session. Nobody reads what it was to give up until the next rebalance, whenever that is (seen with
Kafka 4.3; it takes a SIGKILL in the milliseconds after a gate was added or came back).

So a gate looks at its group once, some seconds after it has started. If there are such partitions it leaves the group,
and joins it again at once as a new member. That has all of them assigned.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

_START_SECONDS: Final = 5.0  # until a group that the gate has joined rests
_SURE_SECONDS: Final = 2.0  # longer than a rebalance takes in which everybody answers
_ANSWER_SECONDS: Final = 5.0


class GroupWatch:
    """Looks at the gates' group from a thread of its own, until `close`."""

    def __init__(self, settings: Mapping[str, Any], group: str, partitions: int, leave: Callable[[], object]) -> None:
        """`partitions`: of the topic. `leave` leaves the group in the gate's name, so that it joins anew."""
        self._settings, self._group = settings, group
        self._partitions, self._leave = partitions, leave
        self._closing = threading.Event()
        threading.Thread(target=self._run, name="group", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    def _run(self) -> None:
        if self._closing.wait(_START_SECONDS):
            return
        client = AdminClient(self._settings, logger=log)
        try:
            found = self._unassigned(client)
            if not found or self._closing.wait(_SURE_SECONDS) or not (found := found & self._unassigned(client)):
                return
        except KafkaException as error:
            log.warning("the group %s was not looked at: %s", self._group, error.args[0].str())
            return
        log.warning(
            "partitions %s of the group %s are unassigned; leaving the group, which assigns them again",
            sorted(found),
            self._group,
        )
        self._leave()

    def _unassigned(self, client: AdminClient) -> frozenset[int]:
        """Return the partitions that no member has; none where the group is not stable, or has one member."""
        (group,) = client.list_groups(self._group, _ANSWER_SECONDS)
        members = group.members
        if group.error is not None or group.state != "Stable" or len(members) < 2:  # noqa: PLR2004 - one has them all
            return frozenset()
        from spillway.agents.live.group_members import assigned  # noqa: PLC0415 - aiokafka is needed for this alone

        dealt = frozenset().union(*(assigned(member.assignment) for member in members))
        return frozenset(range(self._partitions)) - dealt
