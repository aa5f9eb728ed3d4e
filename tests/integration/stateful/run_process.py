"""Runs one process of a pipeline as `serve` does: a member, a replica or the gate. Usage: run_process.py JSON"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from spillway.agents.core.input_tail import InputTail
from spillway.agents.core.join_rules import Rule
from spillway.agents.live.gate import process as gate_process
from spillway.agents.live.stage import process as stage_process
from spillway.agents.live.stage.config import StageProcessConfig
from spillway.agents.live.stateful import process as member_process
from spillway.agents.run import shard_input as reading
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from tests.crash_points import arm


def _bound(of: type[Any], options: dict[str, Any], name: str) -> None:
    told = of.__init__.__kwdefaults__  # type: ignore[misc]
    assert name in told
    told[name] = options.pop(name, told[name])


def main() -> int:
    options = json.loads(sys.argv[1])
    form = "%(asctime)s.%(msecs)03d %(name)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form)
    # No settings: bounds that only matter with many thousand records.
    _bound(Rule, options, "payload_bytes")
    _bound(InputTail, options, "most_records")
    reading.VALUE_BYTES = options.pop("value_bytes", reading.VALUE_BYTES)
    arm(options.pop("crash", ""))
    pipeline = load(options.pop("pipeline"))
    settings = ClientSettings(bootstrap=options.pop("bootstrap"))
    common = {"pipeline": pipeline, "settings": settings, "run_dir": Path(options.pop("run_dir"))}
    if options["stage"] == "gate":
        return gate_process.run(gate_process.GateProcessConfig(**common))
    config = StageProcessConfig(**common, **options)
    return (member_process if config.spec.replicated else stage_process).run(config)


if __name__ == "__main__":
    sys.exit(main())
