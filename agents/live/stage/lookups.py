"""What a stage's queries are given of tables of published state: looked up when their batch starts.

Models never see a table, so any worker can serve. A query gets two inputs more for each table, NAME and NAME.version;
both are null where there is no row.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

from lineage import reasons
from lineage.errors import WireError
from lineage.flags import KEYS, REQUEST, STALE, VERSIONS
from producers.published import Published, Row
from topology.sections import TableSpec
from topology.topics import table_of

if TYPE_CHECKING:
    from lineage.flags import Flags
    from producers.connection import ClientSettings
    from topology.spec import PipelineSpec, StageSpec


WEIGHTS: Final = "weights"
"""The table of an ensemble's learner."""


def _tables(stage: StageSpec) -> dict[str, TableSpec]:
    learner = stage.learner
    return (stage.tables or {}) if learner is None else {WEIGHTS: TableSpec(of=learner.name)}


class Lookups:
    """The tables of one stage. A context, from when they are followed."""

    def __init__(self, settings: ClientSettings, spec: PipelineSpec, stage: StageSpec) -> None:
        self._tables: dict[str, tuple[TableSpec, Published]] = {}
        publishing = {each.name: each for each in (*spec.learners, *spec.stages)}
        for name, table in _tables(stage).items():
            shards = publishing[table.of].shards
            topic, limits = table_of(spec, table.of), spec.limits.merged()
            published = Published(settings, topic, partitions=spec.partitions, shards=shards, limits=limits)
            self._tables[name] = table, published
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for _, published in self._tables.values():
            self._open.enter_context(published)
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def read(self) -> None:
        """Wait until all are read to their ends, each for as long as that may take."""
        for _, published in self._tables.values():
            published.read()

    def row(self, name: str, key: str) -> tuple[Row | None, bool]:
        """A key's row of a table, and whether that may be out of date."""
        published = self._tables[name][1]
        return published.find(key), published.stale

    def add(self, inputs: dict[str, Any], key: str, request_id: str) -> tuple[dict[str, Any], Flags]:
        """A query's inputs with what is looked up for it, and what its outcome tells of that.

        Raises WireError for a query without the key.
        """
        found, keys, versions, stale = dict(inputs), {}, {}, False
        for name, (table, published) in self._tables.items():
            own = key if table.key is None else inputs.get(table.key)
            if not isinstance(own, str):
                raise WireError(
                    reasons.BAD_INPUT,
                    f"input {table.key!r}, the key of table {name!r}, is {type(own).__name__}, no text",
                )
            row = published.find(own)
            found[name] = None if row is None else row.value
            found[f"{name}.version"] = versions[name] = None if row is None else list(row.version)
            keys[table.of] = own
            stale = stale or published.stale
        flags: Flags = {REQUEST: request_id, KEYS: keys, VERSIONS: versions}
        return found, {**flags, STALE: True} if stale else flags
