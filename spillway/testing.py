"""Testing a whole pipeline without Kafka: `serve` runs it in the caller's process, in virtual time.

    from spillway import testing

    def test_a_greeting():
        with testing.serve("pipeline.yaml") as pipeline:
            assert pipeline.predict({"name": "Ada"}).outputs == {"greeting": "Hello, Ada!"}

docs/testing.md is the guide.
"""

from __future__ import annotations

from spillway.lineage.errors import lacking

try:
    from spillway.agents.testing.pipeline import Pending, ServedPipeline, serve
except ModuleNotFoundError as error:
    if (text := lacking(error)) is None:
        raise
    raise ModuleNotFoundError(f"spillway.testing needs {error.name}: {text}", name=error.name) from error

__all__ = ["Pending", "ServedPipeline", "serve"]
