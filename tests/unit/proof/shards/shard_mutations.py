"""The driver of a stateful shard, broken: what it reads, what its reigns begin with, send and end with."""

from spillway.agents.proof.shards.schedule.scenario import Fault, Guards, Kind, Scenario
from spillway.agents.run.primary import Primary
from spillway.agents.run.shard_input import ShardInput
from spillway.agents.run.shard_member import ShardMember
from tests.unit.proof.shards.parts import made, nothing


class SealsAtOnce(Primary):
    """A version is sealed when it is written, whatever is acknowledged."""

    def _obey(self, order):
        super()._obey(order)
        if hasattr(order, "what") and hasattr(order, "version"):
            self._writer.seal(order.version)


class BeginsAnywhere(ShardInput):
    """A reign begins where the input begins, whatever its base covers."""

    def begin(self, core, places):
        return super().begin(core, ())


class ReadsWithoutRoom(ShardInput):
    """It waits for no room, and passes over what it has none for."""

    async def accept(self, records):
        await super().accept({} if self._full else records)


class TrimsWhatIsBased(ShardInput):
    """A base counts as durable as soon as a reign begins with it."""

    def begin(self, core, places):
        taken = super().begin(core, places)
        self.durable(places)
        return taken


class KeepsReigning(ShardMember):
    """It does not end its reign when it stands down."""

    def stand_down(self):
        self._has_changed()


MUTATIONS = {
    # What the base's manifest contains is taken for sent.
    "a reign sends nothing again": Guards(primary=made(Primary, resend=nothing)),
    # It goes on with what its threads bring.
    "a reign that has ended goes on": Guards(primary=made(Primary, close=nothing)),
    "a reign is not told what is durable": Guards(primary=made(Primary, durability_changed=lambda _self: {})),
    "a version is sealed at once": Guards(primary=SealsAtOnce),
    "a reign takes nothing of what was read": Guards(shard_input=made(ShardInput, _since=lambda *_: [])),
    "a reign begins where the input does": Guards(shard_input=BeginsAnywhere),
    "what has no room is passed over": Guards(shard_input=ReadsWithoutRoom),
    "a base counts as durable": Guards(shard_input=TrimsWhatIsBased),
    "a reign that rests on the dead goes on": Guards(shard_member=made(ShardMember, _look_for_dead=nothing)),
    "a reign outlives its member's standing down": Guards(shard_member=KeepsReigning),
}
# A reign begins from a version that rests on an open one, which then dies.
HARM = {
    "a base counts as durable": Scenario(
        queries=40,
        write_seconds=0.002,
        faults=(
            Fault(Kind.SLOW, "a", "primary", 0.2, seconds=1.5),
            Fault(Kind.CRASH, "b", "primary", 0.5, seconds=0.02),
            Fault(Kind.CRASH, "a", "primary", 0.6, seconds=0.3),
        ),
    ),
}
