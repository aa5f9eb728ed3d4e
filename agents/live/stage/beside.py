"""What runs beside a stage's own workers: the workers of its dispatch, and what they are given."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.core.dispatch import Dispatch
from spillway.agents.core.pool import Pool
from spillway.agents.live.clock import Clock
from spillway.agents.live.stage.coded import PARITY, CodeWork, load_coding
from spillway.agents.live.stage.crew import Crew
from spillway.agents.live.stage.extras import Beside, CopyWork
from spillway.agents.workers.processes import command_of

if TYPE_CHECKING:
    from spillway.agents.live.stage.config import StageProcessConfig
    from spillway.topology.sections import CodingSpec, CopiesSpec

log = logging.getLogger(__name__)


def beside_of(config: StageProcessConfig) -> Beside | None:
    """What a front has beside its workers; call in a running loop. Raises ModelError for what it cannot have."""
    spec = config.spec
    if spec.coding is not None:
        return _coding(config, spec.coding)
    return None if spec.copies is None else _copies(config, spec.copies)


def _copies(config: StageProcessConfig, copies: CopiesSpec) -> Beside:
    changed: dict[str, Any] = {}
    if copies.model is not None:
        changed |= {"model": copies.model, "arguments": {}}
    if copies.arguments is not None:
        changed["arguments"] = copies.arguments
    crew = _crew(config, f"copies of stage {config.stage!r}", copies.workers, changed)
    dispatch = Dispatch(quantile=copies.quantile, budget=copies.budget)
    return Beside(dispatch, [crew], partial(CopyWork, model=copies.model or ""), stage=config.stage)


def _coding(config: StageProcessConfig, spec: CodingSpec) -> Beside:
    coding = load_coding(config.spec, spec, config.pipeline.path.parent)
    folder, crews = coding.parities.folder, []
    if coding.parities.outdated:
        log.warning("stage %r: serving without coding, which is paused: %s", config.stage, coding.parities.outdated)
    for row in range(0 if coding.parities.outdated else spec.rows):
        changed = {"model": PARITY, "arguments": {"folder": str(folder), "row": row}}
        count = -(-config.workers // spec.k)
        crews.append(_crew(config, f"parity {row} of stage {config.stage!r}", count, changed))
    return Beside(coding.dispatch(), crews, partial(CodeWork, coding=coding), spec.k, config.stage)


def _crew(config: StageProcessConfig, place: str, count: int, changed: dict[str, Any]) -> Crew:
    """Local workers like the stage's, but for what is `changed` of its spec."""
    spec = config.spec.with_workers(where="process").model_copy(update=changed)
    return Crew(place, Pool(count), Clock(), command_of(spec, config.torch_threads), spec.workers.timeout)
