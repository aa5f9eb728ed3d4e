"""A consumer group of a memory world: static members, sessions, and rebalances that everybody takes part in.

Where somebody joins, leaves or is silent for a session, all members join again, and a new generation is dealt out, in
the order of the instance ids. As in Kafka with the eager protocol a member lets go of what it has before, or with the
cooperative one keeps it: then nobody else is dealt that, and a member that is to lose something lets it go and asks for
another round. Whoever has not joined again in time is left out. An offset is committed by a member of the current
generation alone. A member that comes under an instance id that is in use takes its place: the one before is fenced.
What a cooperative member was to give up when it died stays unassigned until somebody looks, as gates do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.lineage.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from spillway.agents.memory.world import World
    from spillway.lineage.ports import Commit

HEARTBEAT: Final = 0.1
SESSION: Final = 0.5  # seconds of silence after which a member is out
_LOOK: Final = 0.05
_UNASSIGNED: Final = 5.0  # seconds until unassigned partitions are dealt anew


@dataclass(eq=False)
class Member:
    """One process's membership. `notify` is called in the world when there is something to hear."""

    instance: str
    notify: Callable[[], None]
    number: int
    heard: float
    joined: int = -1  # the generation that it has asked for
    partitions: frozenset[int] = field(default_factory=frozenset)
    keeps: frozenset[int] = field(default_factory=frozenset)  # while it joins again
    gone: bool = False  # out of the group: it left, was silent, or another has its instance id


class Ticket(NamedTuple):
    """What goes with offsets in a transaction: whose they are, and what the group says of it when they arrive."""

    number: int
    check: Callable[[Collection[int]], None] = lambda _partitions: None  # raises FencedError where they are refused


class Group:
    """One group, which reads one topic."""

    def __init__(self, world: World[Any], name: str, topic: str, partitions: Sequence[int] | None = None) -> None:
        """`partitions`: those of the topic that it reads; None: all."""
        self.name, self.topic = name, topic
        self.partitions = range(world.partitions[topic]) if partitions is None else partitions
        self.generation = 0
        self.preparing = False  # whether members are to let go and join again
        self._world = world
        self._members: dict[str, Member] = {}
        self._numbers = count(1)
        self._deadline = 0.0
        self._whole = world.now  # when all partitions were somebody's, or on their way
        self._turns = 0  # by how many places what is dealt has moved on
        world.at(world.now + _LOOK * world.pace, self._look)

    # For members -----------------------------------------------------------------------------------------------

    def join(self, instance: str, notify: Callable[[], None]) -> Member:
        """Take a new process in. One with the instance id of a member gets that one's place, without a rebalance."""
        before = self._members.get(instance)
        member = Member(instance, notify, next(self._numbers), self._world.now)
        self._members[instance] = member
        if before is not None:
            before.gone = True
            if not self.preparing:
                member.joined, member.partitions = self.generation, before.partitions
                self._own(member)
                notify()
                return member
        self._prepare()
        return member

    def rejoin(self, member: Member, keeps: frozenset[int] = frozenset()) -> None:
        """Learn that a member has let go of everything but what it `keeps`, and waits to be dealt its share."""
        self._check(member)
        member.heard, member.joined, member.keeps = self._world.now, self.generation + 1, keeps
        self._complete()

    def deal_again(self, member: Member) -> None:
        """Learn that a member has let go of what it was not dealt."""
        self._check(member)
        self._prepare()

    def heartbeat(self, member: Member) -> bool:
        """Return whether the group is to be joined again. Raises FencedError where the member is out."""
        self._check(member)
        member.heard = self._world.now
        return self.preparing

    def fences(self, member: Member) -> bool:
        """Return whether another process has a member's instance id, so that it may not come back."""
        return member.gone and member.instance in self._members

    def turn(self) -> None:
        """Deal anew, to each member what another one has."""
        self._turns += 1
        self._prepare()

    def leave(self, member: Member) -> None:
        if not member.gone:
            self._remove(member)
            self._prepare()

    def commit(self, member: Member, generation: int, offsets: Mapping[int, Commit]) -> None:
        """Commit. Raises FencedError where the member is not of this generation, or has not these partitions."""
        self.check(member, generation, offsets.keys())
        places = {partition: (commit.offset, commit.metadata) for partition, commit in offsets.items()}
        self._world.broker.commit(self.name, member.number, places)

    def check(self, member: Member, generation: int, partitions: Collection[int]) -> None:
        """Raise FencedError where a member is not of this generation, or has not these partitions."""
        self._check(member)
        if generation != self.generation or not member.partitions.issuperset(partitions):
            raise FencedError

    # Inside ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _check(member: Member) -> None:
        if member.gone:
            raise FencedError

    def _remove(self, member: Member) -> None:
        member.gone = True
        del self._members[member.instance]

    def _prepare(self) -> None:
        self._deadline = self._world.now + SESSION * self._world.pace
        if not self.preparing:
            self.preparing = True
            for member in tuple(self._members.values()):
                member.notify()
        self._complete()

    def _complete(self) -> None:
        if not self.preparing or any(member.joined <= self.generation for member in self._members.values()):
            return
        self.preparing = False
        self.generation += 1
        ordered = sorted(self._members.values(), key=lambda member: member.instance)
        for index, member in enumerate(ordered):
            kept = frozenset().union(*(other.keeps for other in ordered if other is not member))
            first = (index + self._turns) % len(ordered)
            member.partitions = frozenset(self.partitions[first :: len(ordered)]) - kept
            self._own(member)
        for member in ordered:
            member.notify()

    def _own(self, member: Member) -> None:
        for partition in member.partitions:
            self._world.broker.own(self.name, partition, member.number)

    def _look(self) -> None:
        """Leave out who is silent, or has not joined again in time."""
        now = self._world.now
        for member in tuple(self._members.values()):
            late = self.preparing and now > self._deadline and member.joined <= self.generation
            if late or now - member.heard > SESSION * self._world.pace:
                self._remove(member)
                self._prepare()
        dealt = sum(len(member.partitions) for member in self._members.values())
        if self.preparing or not self._members or dealt == len(self.partitions):
            self._whole = now
        elif now - self._whole > _UNASSIGNED * self._world.pace:
            self._prepare()
        self._world.at(now + _LOOK * self._world.pace, self._look)
