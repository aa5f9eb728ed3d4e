"""What a stage's queries are given of tables of published state: looked up when their batch starts.

Models never see a table, so any worker can serve. A query gets two inputs more for each table, NAME and NAME.version;
both are null where there is no row. Of a Velox learner's it also gets NAME.generation: the one that is current now. A
row has all that it may be, so whichever of the two logs is read first, weights and features go together.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from spillway.agents.core.token_wait import Want
from spillway.lineage import reasons
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.flags import KEYS, REQUEST, STALE, VERSIONS
from spillway.lineage.headers import AFTER
from spillway.lineage.tokens import Token
from spillway.producers.generations import Followed
from spillway.producers.published import Published, Row
from spillway.topology.sections import TableSpec
from spillway.topology.topics import generations_of, table_of

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable

    from spillway.agents.core.request import Request
    from spillway.agents.core.token_wait import Version
    from spillway.agents.run.emission import Carried
    from spillway.lineage.flags import Flags
    from spillway.lineage.headers import Pair
    from spillway.producers.connection import ClientSettings
    from spillway.producers.kafka.log import KafkaLog
    from spillway.topology.spec import PipelineSpec, StageSpec


WEIGHTS: Final = "weights"
"""The table of an ensemble's learner."""


_CHANGES: Final = 10_000  # of rows, that are kept for who waits for one


def _tables(stage: StageSpec) -> dict[str, TableSpec]:
    learner = stage.learner
    return (stage.tables or {}) if learner is None else {WEIGHTS: TableSpec(of=learner.name)}


def key_of(carried: Carried) -> str:
    """The key of a query's message as text: what is no UTF-8 in it is escaped."""
    return (carried.record.key or b"").decode("utf-8", "backslashreplace")


def after_of(extra: Iterable[Pair]) -> Token | None:
    """The token that a query came with; None where there is none, or one that cannot be read."""
    said = next((value for name, value in extra if name == AFTER), None)
    try:
        return None if said is None else Token.parse(said.decode("ascii", "replace"))
    except UsageError:
        return None


class Lookups:
    """The tables of one stage. A context, from when they are followed."""

    def __init__(self, settings: ClientSettings, spec: PipelineSpec, stage: StageSpec, kafka: KafkaLog) -> None:
        self._tables: dict[str, tuple[TableSpec, Published]] = {}
        self._generations: dict[str, Followed] = {}
        self._changes: deque[tuple[Hashable, Version | None]] = deque(maxlen=_CHANGES)
        publishing = {each.name: each for each in (*spec.learners, *spec.stages)}
        for name, table in _tables(stage).items():
            shards = publishing[table.of].shards
            topic, limits = table_of(spec, table.of), spec.limits.merged()
            published = Published(
                settings,
                topic,
                partitions=spec.partitions,
                shards=shards,
                limits=limits,
                own=table.own,
                log=kafka,
                changed=partial(self._changed, name),
            )
            self._tables[name] = table, published
            if (generations := generations_of(spec, table.of)) is not None:
                self._generations[name] = Followed(settings, generations, log=kafka)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for _, published in self._tables.values():
            self._open.enter_context(published)
        for followed in self._generations.values():
            self._open.enter_context(followed)
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def read(self, *, own: bool = False) -> None:
        """Wait until all are read to their ends, each for as long as that may take.

        Those of which no more than what is `own` is to be followed are waited for apart: when that is known.
        """
        for table, published in self._tables.values():
            if table.own is own:
                published.read()
        if not own:
            for followed in self._generations.values():
                followed.wait()

    def own(self, partitions: Collection[int]) -> None:
        """Follow what is in these partitions, of the tables of which no more is to be."""
        for table, published in self._tables.values():
            if table.own:
                published.follow(partitions)

    def row(self, name: str, key: str) -> tuple[Row | None, bool]:
        """A key's row of a table, and whether that may be out of date."""
        published = self._tables[name][1]
        return published.find(key), published.stale

    def behind(self, request: Request) -> bool:
        """Whether a query came with a token of a version that the table does not have of its key."""
        return bool(self.wants(request))

    def wants(self, request: Request) -> tuple[Want, ...]:
        """The rows of which one has to reach the version of the query's token; none where that is there."""
        carried = request.parts[0].payload
        token = None if carried.headers is None else after_of(carried.headers.extra)
        if token is None:
            return ()
        for name, (table, published) in self._tables.items():
            key = key_of(carried) if table.key is None else carried.message.inputs.get(table.key)
            if table.of == token.learner and isinstance(key, str) and self._is_of(published, key, token):
                row, version = published.find(key), (token.epoch, token.n)
                if row is None or row.version < version:
                    return tuple(Want((name, each), version) for each in published.rows_of(key))
        return ()

    def news(self) -> dict[Hashable, Version | None] | None:
        """The rows that changed since this was asked before, with their versions; None where not all are known."""
        changes = self._changes
        if len(changes) > _CHANGES // 2:  # before any can have fallen out
            changes.clear()
            return None
        return dict(changes.popleft() for _ in range(len(changes)))

    def _changed(self, name: str, key: bytes, row: Row | None) -> None:
        """On the log's thread."""
        self._changes.append(((name, key), None if row is None else row.version))

    @staticmethod
    def _is_of(published: Published, key: str, token: Token) -> bool:
        return published.follows(key) and published.shard_of(key) == token.shard

    def add(self, inputs: dict[str, Any], request: Request) -> tuple[dict[str, Any], Flags]:
        """A query's inputs with what is looked up for it, and what its outcome tells of that.

        Raises WireError for a query without the key, or with one whose partition is not followed.
        """
        found, keys, versions, stale = dict(inputs), {}, {}, self.behind(request)
        for name, (table, published) in self._tables.items():
            own = key_of(request.parts[0].payload) if table.key is None else inputs.get(table.key)
            if not isinstance(own, str):
                raise WireError(
                    reasons.BAD_INPUT,
                    f"input {table.key!r}, the key of table {name!r}, is {type(own).__name__}, not a text",
                )
            if not published.follows(own):
                raise WireError(
                    reasons.BAD_INPUT,
                    f"table {name!r} has 'own: true', and key {own!r:.80} is in partition "
                    f"{published.partition_of(own)}, which this front does not own: send the query with that key as "
                    "its message's key, or drop 'own'",
                )
            row = published.find(own)
            found[name] = None if row is None else row.value
            found[f"{name}.version"] = versions[name] = None if row is None else list(row.version)
            keys[table.of] = own
            stale = stale or published.stale
            if (followed := self._generations.get(name)) is not None:
                found[f"{name}.generation"] = None if followed.stale else followed.now.current
                stale = stale or followed.stale
        flags: Flags = {REQUEST: request.request_id, KEYS: keys, VERSIONS: versions}
        return found, {**flags, STALE: True} if stale else flags
