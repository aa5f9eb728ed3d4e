"""What a member's process has beside what its reigns are made with: threads that end, and the log that it follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.agents.run.shard_context import ShardContext

if TYPE_CHECKING:
    from spillway.agents.live.output import Output
    from spillway.agents.live.stateful.threads import Thread
    from spillway.agents.live.stateful.work import StatefulWork
    from spillway.producers.kafka.log import KafkaLog


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberContext(ShardContext):
    """What a member has on Kafka."""

    work: StatefulWork
    output: Output
    models: Thread
    copies: Thread
    kafka: KafkaLog
