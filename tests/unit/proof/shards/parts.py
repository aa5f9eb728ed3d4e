"""Guards with other parts: classes of the cores whose shares, joins or outboxes are mutated."""

from spillway.agents.core.gate import GateCore, GateShare
from spillway.agents.core.share import Share
from spillway.agents.core.stage import StageCore
from spillway.agents.core.stateful_stage import StatefulCore, StatefulShare
from spillway.agents.proof.shards.schedule.scenario import Guards


def made(base, **parts):
    return type(base.__name__, (base,), {"__slots__": (), **parts})


def nothing(*_given):
    """What a mutation leaves out."""


def everywhere(**parts):
    """Guards whose stages and gate have these parts of a share."""
    core = {"share_type": made(Share, **parts)}
    stateful = {"share_type": made(StatefulShare, **parts)}
    gate = {"share_type": made(GateShare, **parts)}
    return Guards(stage=made(StageCore, **core), stateful=made(StatefulCore, **stateful), gate=made(GateCore, **gate))


def joining(joins):
    """Guards whose stages and gate have these joins."""
    parts = {"joins_type": joins}
    return Guards(stage=made(StageCore, **parts), stateful=made(StatefulCore, **parts), gate=made(GateCore, **parts))


def sending(outbox):
    """Guards whose stateful stages have this outbox."""
    return Guards(stateful=made(StatefulCore, outbox_type=outbox))
