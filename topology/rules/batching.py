"""What has to fit together in a stage's `batching:` section, or between it and the stage's other fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.topology.problems import Problem
from spillway.topology.quantities import show_duration
from spillway.topology.sections import ADAPTIVE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.topology.reading.fields import PipelineFields, StageFields


def check_batching(fields: PipelineFields, stage: StageFields) -> Iterator[Problem]:
    """Find what does not fit together in what this stage says of its batches."""
    spec, batching = stage.spec, stage.spec.batching
    if fields.usable("slo") and stage.usable("batching.delay") and batching.delay >= fields.head.slo:
        text = (
            f"waits {show_duration(batching.delay)} for a batch, and the SLO is {show_duration(fields.head.slo)}: "
            "every query that waits would be late; shorten it"
        )
        yield Problem(stage.path("batching.delay"), text)
    adapts = batching.limit in ADAPTIVE
    if stage.usable("batching.limit") and adapts and batching.size is not None:
        text = f"'limit: {batching.limit}' finds the size itself, up to 'max'; drop 'size'"
        yield Problem(stage.path("batching.size"), text, on_key=True)
    if stage.usable("batching.limit") and not adapts and batching.objective is not None:
        text = "applies only to 'limit: aimd' and 'limit: quantile'; choose one of them, or drop 'objective'"
        yield Problem(stage.path("batching.objective"), text, on_key=True)
    if not stage.usable("batching.size", "batching.max"):
        return
    if batching.size is not None and batching.size > batching.max:
        default = "" if "batching.max" in stage.given else " (the default)"
        text = f"the planned batch of {batching.size} is over 'max', {batching.max}{default}; lower it or raise that"
        yield Problem(stage.path("batching.size"), text)
    if stage.usable("queue") and spec.queue < batching.most:
        default = "" if "queue" in stage.given else " (the default)"
        sized = "batching.size" if batching.size is not None else "batching.max"
        text = (
            f"the queue holds {spec.queue}{default}, so a batch of {batching.most} can never be full; "
            f"raise 'queue' to {batching.most} or more"
        )
        yield Problem(stage.path("queue" if "queue" in stage.given else sized), text)
