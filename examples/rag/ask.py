"""`python -m examples.rag.ask [QUESTION ...]`: the RAG pipeline on a real Kafka, asked some questions.

Trains on the first run, starts a broker of its own, serves the pipeline, prints each answer with the passages it was
written from, and ends everything it started, also on Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from examples.rag.payload import QUESTIONS
from examples.rag.training import ensure_trained
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage.errors import SpillwayError
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load

ROOT = Path(__file__).parents[2]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def run(console: Console, stack: ExitStack, questions: list[str]) -> int:
    """Train, start, ask; 0 if every question was answered."""
    began = time.monotonic()
    ensure_trained(lambda text: console.print(f"  training {text}"))
    console.print(f"models ready after {time.monotonic() - began:.1f} s")
    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-rag-")))
    broker = stack.enter_context(EmbeddedBroker(work / "kafka", notice=console.print))
    console.print(f"Apache Kafka ready at {broker.bootstrap} after {broker.start_seconds:.1f} s")
    pipeline = load(ROOT / "examples" / "rag" / "pipeline.yaml")
    settings = ClientSettings(bootstrap=broker.bootstrap)
    service = ServiceSettings(
        pipeline=pipeline, cluster=settings, run_dir=work / "run", environment={**ONE_THREAD, **os.environ}
    )
    stack.enter_context(served(service, say=lambda text: console.print(text, markup=False)))
    missed = 0
    with Client(pipeline.spec, settings) as client:
        asked = time.monotonic()
        for index, outcome in client.outcomes([{"question": question} for question in questions]):
            told = f"after {1000 * (time.monotonic() - asked):.0f} ms"
            console.print(f"\n[bold]{questions[index]}[/]  ({told})", highlight=False)
            if outcome.kind == PREDICTION:
                console.print(f"  {outcome.outputs['answer']}", markup=False)
                console.print(f"  from {', '.join(outcome.outputs['passages'])}", markup=False, style="dim")
            else:
                missed += 1
                console.print(f"  {outcome.kind} at {outcome.stage}: {outcome.reason}", markup=False, style="red")
    return 1 if missed else 0


def main() -> int:
    """Run the demo with the questions of the command line, or some of its own."""
    console = Console(highlight=False)
    try:
        with ExitStack() as stack:
            return run(console, stack, sys.argv[1:] or list(QUESTIONS))
    except SpillwayError as error:
        console.print(f"error: {error}", markup=False, style="red")
        return error.exit_code
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has ended")
        return 130


if __name__ == "__main__":
    sys.exit(main())
