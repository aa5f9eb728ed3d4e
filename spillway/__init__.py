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

import os

# The rooms are folders of this one. In a checkout they are links, and where git made none (Windows), they are files.
if os.path.isfile(os.path.join(os.path.dirname(__file__), "agents")):  # noqa: PTH113, PTH118, PTH120 - pathlib takes time
    raise ImportError(
        f"{os.path.dirname(__file__)} has files where links to folders should be, as this checkout was made without "  # noqa: PTH120
        "symbolic links: turn them on ('git config core.symlinks true', on Windows in Developer Mode) and check it out "
        "again ('git checkout HEAD -- spillway'), or install Spillway from a wheel",
        name=__name__,
    )

TYPE_CHECKING = False  # as typing's, which takes longer to import than all else here
if TYPE_CHECKING:
    from spillway.agents.learning.velox.model import VeloxModel
    from spillway.agents.models.flagged import Flagged
    from spillway.agents.models.loading import Model
    from spillway.agents.models.per_key import PerKey
    from spillway.agents.models.stateful import StatefulModel
    from spillway.agents.models.torch_learner import Learner
    from spillway.agents.models.torch_streams import Streams
    from spillway.agents.models.warm_up import rehearse
    from spillway.agents.registry.register import register_model
    from spillway.lineage.errors import (
        BrokerError,
        ModelError,
        SpecError,
        SpillwayError,
        TopicError,
        UsageError,
        WireError,
    )
    from spillway.lineage.message import Outcome, StageTiming
    from spillway.producers.client import (
        AsyncClient,
        Client,
        ClientClosedError,
        OutcomeTimeoutError,
        TooManyInFlightError,
    )
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

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
    "spillway.agents.learning.velox.model": ("VeloxModel",),
    "spillway.agents.models.flagged": ("Flagged",),
    "spillway.agents.models.loading": ("Model",),
    "spillway.agents.models.per_key": ("PerKey",),
    "spillway.agents.models.warm_up": ("rehearse",),
    "spillway.agents.models.stateful": ("StatefulModel",),
    "spillway.agents.models.torch_learner": ("Learner",),
    "spillway.agents.models.torch_streams": ("Streams",),
    "spillway.agents.registry.register": ("register_model",),
    "spillway.lineage.errors": (
        "BrokerError",
        "ModelError",
        "SpecError",
        "SpillwayError",
        "TopicError",
        "UsageError",
        "WireError",
    ),
    "spillway.lineage.message": ("Outcome", "StageTiming"),
    "spillway.producers.client": (
        "AsyncClient",
        "Client",
        "ClientClosedError",
        "OutcomeTimeoutError",
        "TooManyInFlightError",
    ),
    "spillway.producers.connection": ("ClientSettings",),
    "spillway.topology.load": ("Pipeline",),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker reads the imports above, and would take any name for one of ours by this

    def __getattr__(name: str) -> object:
        """Import a public name, once. Raises ModuleNotFoundError where what it needs is not installed."""
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - what takes time comes when it is needed

        try:
            found = getattr(import_module(_WHERE[name]), name)
        except ModuleNotFoundError as error:
            from spillway.lineage.errors import lacking  # noqa: PLC0415

            if (text := lacking(error)) is None:
                raise
            raise ModuleNotFoundError(f"spillway.{name} needs {error.name}: {text}", name=error.name) from error
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
