"""A shard's part in the exchange of states: its primary speaks for it, as a replica does for itself.

To the other stages the shard's number is the replica's: whoever is primary, it is the same one that speaks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agents.live.plan.planner import Planner
from agents.live.stage.parts import build_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.live.plan.feed import Word
    from agents.live.stage.config import StageProcessConfig
    from agents.live.stateful.means import Means
    from agents.live.stateful.primary import Primary
    from lineage.values.codec import Decoder


class Speaker:
    """Speaks while there is a reign. All methods are the loop's."""

    def __init__(self, config: StageProcessConfig, shard: int, period: float, decoder: Decoder, means: Means) -> None:
        """`period`: seconds between two words."""
        self._config = config
        self._shard = shard
        self._period = period
        self._decoder = decoder
        self._means = means
        self._planner: Planner | None = None
        self._speaking: asyncio.Task[None] | None = None

    def hear(self, words: Sequence[Word]) -> None:
        if self._planner is not None:
            self._planner.hear(words)

    def begin(self, primary: Primary) -> None:
        self.end()
        means, pipeline = self._means, self._config.pipeline
        planner = self._planner = Planner(
            pipeline.spec,
            build_view(pipeline, self._config.spec, self._shard, self._period),
            primary.core,
            clock=means.clock,
            decoder=self._decoder,
            metrics=means.metrics,
            reload_schemas=means.reload_schemas,
        )
        means.tally.observes(planner.observed)
        self._speaking = asyncio.get_running_loop().create_task(planner.run(means.output, primary.tick))
        self._speaking.add_done_callback(self._ended)

    def end(self, *, farewell: bool = False) -> None:
        """Say nothing more; with a farewell, that the shard's speaker stops for good."""
        if farewell and self._planner is not None:
            self._planner.farewell(self._means.output)
        self._planner = None
        if self._speaking is not None:
            self._speaking.cancel()
            self._speaking = None

    def _ended(self, speaking: asyncio.Task[None]) -> None:
        if not speaking.cancelled() and (error := speaking.exception()) is not None:
            self._means.crashed(error)


def others_than_words(tokens: Sequence[Any]) -> list[Any]:
    """Tell the planners which of their words are stored; give the rest of what is."""
    rest = []
    for token in tokens:
        if isinstance(token, Planner):
            token.stored()
        else:
            rest.append(token)
    return rest
