"""Spillway's public names: clients, pipelines and what models are made of, under one roof.

    from spillway import Client, Pipeline

    pipeline = Pipeline.load("pipeline.yaml")
    with Client(pipeline, "127.0.0.1:9092") as client:
        outcome = client.predict({"name": "Ada"})

Each is imported when it is first asked for, so `import spillway` costs next to nothing. What is not in `__all__` may
change between any two releases.

A pipeline is checked as a whole before anything is served, and all that is wrong with it is told at once:

>>> from spillway import Pipeline, SpecError
>>> pipeline = Pipeline.parse('''
... name: hello
... slo: 500ms
... stages:
...   - {name: greet, model: "hello:Greet"}
... ''')
>>> pipeline.spec.slo
0.5
>>> [stage.name for stage in pipeline.spec.stages]
['greet']
>>> try:
...     Pipeline.parse("{name: hello, slo: 500ms, stages: [{name: greet, model: 'hello:Greet', after: gret}]}")
... except SpecError as error:
...     print(error)
pipeline.yaml has 1 problem:
  pipeline.yaml:1:79: stages[0].after[0]: there is no stage 'gret'; did you mean 'greet'?

Settings say where a cluster is, and show no secret:

>>> from spillway import ClientSettings
>>> ClientSettings.load("kafka-1:9092,kafka-2:9092")
ClientSettings(bootstrap='kafka-1:9092,kafka-2:9092', properties={})

What an outcome says, whoever reads it:

>>> from spillway import Outcome
>>> Outcome("dropped", reason="policy", text="it would have been 40 ms late", stage="detect").kind
'dropped'
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, which takes longer to import than all else here
if TYPE_CHECKING:
    from agents.learning.velox.model import VeloxModel
    from agents.models.flagged import Flagged
    from agents.models.loading import Model
    from agents.models.per_key import PerKey
    from agents.models.rehearsal import rehearse
    from agents.models.stateful import StatefulModel
    from agents.models.torch_learner import Learner
    from agents.models.torch_streams import Streams
    from agents.registry.register import register_model
    from lineage.errors import BrokerError, ModelError, SpecError, SpillwayError, TopicError, UsageError, WireError
    from lineage.message import Outcome, StageTiming
    from producers.client import AsyncClient, Client, ClientClosedError, OutcomeTimeoutError, TooManyInFlightError
    from producers.connection import ClientSettings
    from topology.load import Pipeline

__all__ = [
    "AsyncClient",
    "BrokerError",
    "Client",
    "ClientClosedError",
    "ClientSettings",
    "Flagged",
    "Learner",
    "Model",
    "ModelError",
    "Outcome",
    "OutcomeTimeoutError",
    "PerKey",
    "Pipeline",
    "SpecError",
    "SpillwayError",
    "StageTiming",
    "StatefulModel",
    "Streams",
    "TooManyInFlightError",
    "TopicError",
    "UsageError",
    "VeloxModel",
    "WireError",
    "register_model",
    "rehearse",
]

_NAMES = {
    "agents.learning.velox.model": ("VeloxModel",),
    "agents.models.flagged": ("Flagged",),
    "agents.models.loading": ("Model",),
    "agents.models.per_key": ("PerKey",),
    "agents.models.rehearsal": ("rehearse",),
    "agents.models.stateful": ("StatefulModel",),
    "agents.models.torch_learner": ("Learner",),
    "agents.models.torch_streams": ("Streams",),
    "agents.registry.register": ("register_model",),
    "lineage.errors": (
        "BrokerError",
        "ModelError",
        "SpecError",
        "SpillwayError",
        "TopicError",
        "UsageError",
        "WireError",
    ),
    "lineage.message": ("Outcome", "StageTiming"),
    "producers.client": ("AsyncClient", "Client", "ClientClosedError", "OutcomeTimeoutError", "TooManyInFlightError"),
    "producers.connection": ("ClientSettings",),
    "topology.load": ("Pipeline",),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker reads the imports above, and would take any name for one of ours by this

    def __getattr__(name: str) -> object:
        """Import a public name, once. Raises ImportError where a package beside us is not ours, or lacks torch."""
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - what takes time comes when it is needed

        from spillway.foreign import refuse_foreign  # noqa: PLC0415

        refuse_foreign()
        try:
            found = getattr(import_module(_WHERE[name]), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            from lineage.errors import NO_TORCH  # noqa: PLC0415

            raise ModuleNotFoundError(f"spillway.{name} needs torch: {NO_TORCH}", name="torch") from error
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
