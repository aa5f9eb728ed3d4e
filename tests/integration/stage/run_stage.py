"""Runs one stage replica as `serve --stage` does, with the knobs that tests turn. Usage: run_stage.py JSON"""

import json
import logging
import sys
from pathlib import Path

from spillway.agents.live.stage.process import StageProcessConfig, run
from spillway.agents.supervise.ownership import Ownership
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load


def main() -> int:
    options = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    return run(
        StageProcessConfig(
            pipeline=load(options.pop("pipeline")),
            settings=ClientSettings(bootstrap=options.pop("bootstrap")),
            run_dir=Path(options.pop("run_dir")),
            claims=Ownership,
            **options,
        )
    )


if __name__ == "__main__":  # a model's own process imports this file
    sys.exit(main())
