"""What a trainer's process does: read a durable version of a learner's state, train new features, judge them, end.

It reads what is in the logs and writes nothing but the file of the new features, so it may die at any time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.learning.velox.learning import HELD
from spillway.agents.learning.velox.retraining import retrain
from spillway.agents.learning.velox.served import Served
from spillway.agents.learning.velox.thetas import write_theta
from spillway.agents.live.operator.histories import read_histories
from spillway.agents.live.operator.stored import Store
from spillway.agents.models.loading import load_stateful_model
from spillway.agents.models.stateful import SHARED
from spillway.checkpoint.logs import Fate
from spillway.lineage.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

_NICE: Final = 10  # what serves comes first


def trained(learner: Pipeline, settings: ClientSettings, current: int) -> dict[str, Any]:
    """What came of it: `old` and `new` errors on `held` observations, and how likely so much less is by `chance`.

    Beside these, the `theta` of features that are better, or `why` they are not taken.

    Raises ModelError where the class cannot be retrained, or there is nothing to train from.
    """
    os.nice(_NICE)
    (stage,) = learner.spec.stages
    if not stage.has_generations or stage.model is None:
        raise UsageError(f"{stage.name!r} does not learn a Velox model: write its model as velox:module:Class")
    model = load_stateful_model(stage.name, stage.model, stage.arguments)
    if not isinstance(model, Served) or model.thetas.folder is None:
        raise ModelError(f"learner {stage.name!r} has no 'folder' in its arguments, for files of retrained features")
    users, theta = read_users(learner, settings, str(current))
    made = retrain(model.thetas.get(theta), str(current), users)
    told = {"old": made.old, "new": made.new, "held": made.held, "users": len(users), "chance": made.chance()}
    if made.better(model.stale.gain, model.stale.level):
        return told | {"theta": write_theta(model.thetas.folder, made.parameters, made.prior)}
    return told | {"why": made.why(model.stale.gain, model.stale.level)}


def read_users(
    learner: Pipeline, settings: ClientSettings, generation: str
) -> tuple[dict[str, Mapping[str, Any]], str]:
    """The states of users of whom something was observed, of all shards' newest durable versions, and a theta.

    Raises ModelError where there is none.
    """
    histories = read_histories(settings, learner.spec)
    users: dict[str, Mapping[str, Any]] = {}
    theta = ""
    for place in learner.spec.places:
        durable = [kept for kept in histories.kept(place) if kept.standing is Fate.DURABLE]
        if not durable:
            continue
        newest = max(durable, key=lambda kept: kept.version.n)
        store = Store(settings, learner.spec.name, place)
        _, keyed = store.state(store.contents(newest.manifest, histories.decoder))
        for key, state in (keyed or {}).items():
            if key == SHARED:
                theta = state[HELD].get(generation, {}).get("theta", theta)
            elif state["n"]:
                users[key] = state
    if not users or not theta:
        raise ModelError("there are no observations yet to train features from")
    return users, theta
