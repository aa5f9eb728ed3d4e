"""What runs beside a stage's own workers: the workers of its dispatch, and what they are given."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.coding.parity import PARITY, SHARED
from spillway.agents.core.dispatch import Dispatch
from spillway.agents.live.stage.coded import CodeWork, load_coding
from spillway.agents.live.stage.redundancy_workers import Beside, CopyWork

if TYPE_CHECKING:
    from spillway.agents.live.stage.config import StageConfig
    from spillway.agents.live.stage.crew import Crew, Crews
    from spillway.topology.sections import CodingSpec, CopiesSpec

log = logging.getLogger(__name__)


def beside_of(config: StageConfig, crews: Crews) -> Beside | None:
    """What a front has beside its workers; call in a running loop. Raises ModelError for what it cannot have."""
    spec = config.spec
    if spec.coding is not None:
        return _coding(config, crews, spec.coding)
    return None if spec.copies is None else _copies(config, crews, spec.copies)


def _copies(config: StageConfig, crews: Crews, copies: CopiesSpec) -> Beside:
    changed: dict[str, Any] = {}
    if copies.model is not None:
        changed |= {"model": copies.model, "arguments": {}}
    if copies.arguments is not None:
        changed["arguments"] = copies.arguments
    crew = _crew(config, crews, f"copies of stage {config.stage!r}", copies.workers, "copies", changed)
    dispatch = Dispatch(quantile=copies.quantile, budget=copies.budget)
    return Beside(dispatch, [crew], partial(CopyWork, model=copies.model or ""), stage=config.stage)


def _coding(config: StageConfig, crews: Crews, spec: CodingSpec) -> Beside:
    coding = load_coding(config.spec, spec, config.pipeline.path.parent)
    folder, rows = coding.parities.folder, []
    if coding.parities.outdated:
        log.warning("stage %r: serving without coding, which is paused: %s", config.stage, coding.parities.outdated)
    for row in range(0 if coding.parities.outdated else spec.rows):
        arguments: dict[str, Any] = {"folder": str(folder), "row": row}
        if spec.shared:
            own = config.spec
            arguments |= {"stage": config.stage, "model": own.model, "arguments": own.arguments}
            arguments["device"] = own.workers.device
        changed = {"model": SHARED if spec.shared else PARITY, "arguments": arguments}
        count = -(-config.workers // spec.k)
        rows.append(_crew(config, crews, f"parity {row} of stage {config.stage!r}", count, "parity", changed))
    return Beside(coding.dispatch(), rows, partial(CodeWork, coding=coding), spec.k, config.stage)


def _crew(config: StageConfig, crews: Crews, place: str, count: int, lane: str, changed: dict[str, Any]) -> Crew:
    """Local workers like the stage's, but for what is `changed` of its spec."""
    spec = config.spec.with_workers(where="process").model_copy(update=changed)
    return crews.make(place, spec, count, lane)
