"""A stage that serves the registered variants of its application, and moves to those registered later.

Its front reads the table of models before it serves, and follows the table from then on. New variants become lanes with
workers while the old ones serve (`spillway.topology.variants.renewal`). Once they are ready, the route uses them alone,
queries that wait for the old ones move to them, and the old ones' workers drain.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from spillway.agents.live.stage.build import build_lane
from spillway.agents.live.stage.variants import versions_of
from spillway.lineage.errors import SpecError
from spillway.producers.models import Models
from spillway.topology.variants.manifest import section_of
from spillway.topology.variants.renewal import Renewal
from spillway.topology.variants.variant import variants_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import ExitStack

    from spillway.agents.core.laned_stage import LanedCore
    from spillway.agents.core.routes.variants import Variants
    from spillway.agents.live.stage.config import StageProcessConfig
    from spillway.agents.live.stage.variants import VariantCrews
    from spillway.agents.run.stage import Stage
    from spillway.producers.kafka.log import KafkaLog

log = logging.getLogger(__name__)

_LOOK: Final = 0.2  # seconds between looks at variants that load


def registered(
    config: StageProcessConfig, stack: ExitStack, kafka: KafkaLog
) -> tuple[StageProcessConfig, Models | None]:
    """The stage with what is registered, and the table, open in `stack`; as it is where the file lists its variants.

    Raises SpecError where nothing is registered of its application, BrokerError where the table cannot be read.
    """
    section = config.spec.variants
    if section is None or not section.registered:
        return config, None
    models = stack.enter_context(Models(config.settings, log=kafka))
    try:
        return config.with_variants(section_of(section, models.require().values())), models
    except SpecError as error:
        raise SpecError(f"stage {config.stage!r}: {error}") from error


class Renewing:
    """Follows the table for one front; on its loop."""

    def __init__(
        self,
        config: StageProcessConfig,
        models: Models,
        crews: VariantCrews,
        core: LanedCore,
        route: Variants,
        driver: Stage,
    ) -> None:
        self._config, self._models, self._crews = config, models, crews
        self._core, self._route, self._driver = core, route, driver
        self._renewal = Renewal(crews.section)
        self._closing: set[asyncio.Task[bool]] = set()
        self._said = ""

    def begin(self) -> None:
        """Follow the table from now on. Call in the running loop."""
        loop = asyncio.get_running_loop()
        self._models.follow(lambda: None if loop.is_closed() else loop.call_soon_threadsafe(self._look))
        self._look()

    def _look(self) -> None:
        renewal = self._renewal
        try:
            target = section_of(self._crews.section, self._models.now())
        except SpecError as error:
            self._say(f"{self._config.stage}: keeping the present variants: {error}")
            return
        if not renewal.is_news(target):
            return
        self._forget()
        over = renewal.begin(target, self._crews.wanted())
        self._retire(over)
        assert renewal.coming is not None  # it has begun
        stage = self._config.with_variants(renewal.coming).spec
        for each in variants_of(renewal.coming):
            if each.name not in self._crews.wanted():
                lane = build_lane(self._config, stage.variant(each.name), each.duration)
                self._crews.add(stage, each.name, self._core.lanes.add(each.name, *lane))
        self._crews.keep(renewal.needed)
        if renewal.needed:
            log.info("%s: loading new variants: %s", self._config.stage, ", ".join(renewal.needed))
        self._check()

    def _check(self) -> None:
        """Go on to the next variants if they are ready, else look again soon."""
        renewal = self._renewal
        if renewal.coming is None:
            return
        if not renewal.ready(self._core.lanes.ready()):
            asyncio.get_running_loop().call_later(_LOOK, self._check)
            return
        gone = renewal.finish()
        self._crews.section = section = renewal.section
        self._crews.keep(())
        self._route.replace(variants_of(section), versions_of(section))
        self._retire(gone)
        log.info("%s: serves %d registered variants; %d drain", self._config.stage, len(section.of), len(gone))

    def _retire(self, names: Collection[str]) -> None:
        self._driver.changed(lambda now: self._core.retire(now, names))
        self._crews.retire(names)

    def _forget(self) -> None:
        for lane, crew in self._crews.forget().items():
            self._core.lanes.forget(lane)
            closing = asyncio.get_running_loop().create_task(asyncio.to_thread(crew.close, 1.0))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            log.warning("%s", text)
