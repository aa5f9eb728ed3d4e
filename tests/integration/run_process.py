"""Runs one process of a pipeline as `serve` does: a member, a replica or the gate. Usage: run_process.py JSON"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from tests.crash_points import arm


def _bound(of: type[Any], options: dict[str, Any], name: str) -> None:
    told = of.__init__.__kwdefaults__  # type: ignore[misc]
    assert name in told
    told[name] = options.pop(name, told[name])


def _bounds(options: dict[str, Any]) -> None:
    """No settings: bounds that only matter with many thousand records."""
    from spillway.agents.core.input_tail import InputTail
    from spillway.agents.core.join_rules import Rule
    from spillway.agents.run import shard_input

    _bound(Rule, options, "payload_bytes")
    _bound(InputTail, options, "most_records")
    shard_input.VALUE_BYTES = options.pop("value_bytes", shard_input.VALUE_BYTES)


def main() -> int:
    """Each kind of process imports its own code alone, as what it takes of memory is told in a test."""
    options = json.loads(sys.argv[1])
    form = "%(asctime)s.%(msecs)03d %(name)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form)
    arm(options.pop("crash", ""))
    pipeline = load(options.pop("pipeline"))
    settings = ClientSettings(bootstrap=options.pop("bootstrap"))
    common = {"pipeline": pipeline, "settings": settings, "run_dir": Path(options.pop("run_dir"))}
    if options["stage"] == "gate":
        from spillway.agents.live.gate import process as gate_process

        return gate_process.run(gate_process.GateProcessConfig(**common))
    from spillway.agents.live.stage.config import StageProcessConfig

    if pipeline.spec.stage(options["stage"]).replicated:
        from spillway.agents.live.stateful import process as member_process

        _bounds(options)
        return member_process.run(StageProcessConfig(**common, **options))
    from spillway.agents.live.stage import process as stage_process
    from spillway.agents.supervise.ownership import Ownership

    return stage_process.run(StageProcessConfig(**common, claims=Ownership, **options))


if __name__ == "__main__":  # a model's own process imports this file
    sys.exit(main())
