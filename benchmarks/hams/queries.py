"""A service's own queries in batches, as a model is given them; no broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents.models.inputs import Inputs
from producers.load.payloads import find_payload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agents.bench.hams.services import Service

STREAMS = 8  # that the queries of a keyed service are of, at a time


def in_batches(service: Service, count: int, size: int, groups: int = 1) -> Iterator[list[Inputs]]:
    """The first queries; with several groups, each batch has the next ones of the next group's own streams."""
    payload = find_payload(service.payload)
    rng = np.random.default_rng(0)
    for turn in range(count):
        first = turn // groups * size
        batch = []
        for index in range(first, first + size):
            query = dict(payload(index, rng))
            if service.key is not None:
                query[service.key] = f"{query[service.key]}/{turn % groups}"
            batch.append(Inputs(query, {}, str(index)))
        yield batch
