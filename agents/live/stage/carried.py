"""What the driver keeps with a message while the core decides about it. The core never looks inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord

    from lineage.headers import Headers
    from lineage.message import Outcome, Query


@dataclass(slots=True)
class Carried:
    """A decoded message beside the record that it came in: zero-copy tensors keep the record's bytes alive anyway."""

    record: ConsumerRecord  # as it was, for a dead letter
    headers: Headers | None  # None where the headers could not be read
    message: Query | Outcome | None  # None where the value could not be read
