"""Testing a whole pipeline without Kafka: `serve` runs it in the caller's process, in virtual time.

    from spillway import testing

    def test_a_greeting():
        with testing.serve("pipeline.yaml") as pipeline:
            assert pipeline.predict({"name": "Ada"}).outputs == {"greeting": "Hello, Ada!"}

docs/testing.md is the guide.
"""

from __future__ import annotations

from spillway.agents.testing.pipeline import Pending, ServedPipeline, serve

__all__ = ["Pending", "ServedPipeline", "serve"]
