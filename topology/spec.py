"""What a pipeline file says, as frozen objects; durations are seconds, whatever unit they were written in.

The fields are checked one by one here; what has to fit together (names, edges, choices, bounds) is checked by
`spillway.topology.load`, which is how a pipeline file is to be read. A spec built in Python is not checked any further
than its fields; `spillway.topology.load.parse` does the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool

from spillway.lineage.errors import UsageError
from spillway.lineage.limits import DEFAULT_LIMITS, Limits
from spillway.lineage.values.json_text import read_value
from spillway.lineage.values.tensors import DTYPE_NAMES
from spillway.topology import names
from spillway.topology.sections import (
    BatchingSpec,
    CacheSpec,
    CodingSpec,
    CopiesSpec,
    Count,
    EnsembleSpec,
    MemberSpec,
    ModelReference,
    Positive,
    Reference,
    Seconds,
    Section,
    Size,
    StateSpec,
    TableSpec,
    WorkersSpec,
    kind_alone,
)
from spillway.topology.variant_sections import VariantSpec, VariantsSpec  # noqa: TC001 - pydantic needs it

DEFAULT_PARTITIONS = 12
DEFAULT_QUEUE = 4_096
VALUE_TYPES = ("str", "bytes", "int", "float", "list", "dict")  # of inputs that are no tensors (bool is either)


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _dtype(name: str) -> str:
    known = (*sorted(DTYPE_NAMES), *VALUE_TYPES)
    if name not in known:
        raise ValueError(f"there is no dtype {name!r:.40}; {names.meant(name, known)}")
    return name


def _dimension(value: Any) -> Any:
    if value is None or isinstance(value, str) or (type(value) is int and value >= 0):
        return value
    raise ValueError(f"must be a whole number, or null or a name for any size, not {value!r:.40}")


def _table(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    table: dict[Any, Any] = {}
    for key, seconds in value.items():
        number = int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 8 else key  # noqa: PLR2004
        if type(number) is not int or number < 1:
            raise ValueError(f"its keys must be batch sizes, whole numbers of at least 1, not {key!r:.40}")
        if number in table:
            raise ValueError(f"batch size {number} is given twice; keep one")
        table[number] = seconds
    if not table:
        raise ValueError("is empty; give at least the duration of a batch of 1")
    return dict(sorted(table.items()))


class EmulatedSpec(Section):
    """An emulated accelerator: a batch of n takes `alpha + beta * n`, or what a measured table says."""

    alpha: Seconds | None = None
    beta: Seconds | None = None
    table: Annotated[dict[int, Positive] | None, BeforeValidator(_table)] = None
    load: Seconds | None = None
    """Until a new worker is ready; None: none where it is served, as the hardware says where it is a profile's."""

    def duration(self, count: int) -> float:
        """Seconds that a batch of `count` takes; between two sizes of the table, and beyond its ends, on a line."""
        if self.table is None:
            return (self.alpha or 0.0) + (self.beta or 0.0) * count
        sizes = list(self.table)
        if len(sizes) == 1:
            return self.table[sizes[0]]
        right = min(max(bisect_left(sizes, count), 1), len(sizes) - 1)
        small, large = sizes[right - 1], sizes[right]
        slope = (self.table[large] - self.table[small]) / (large - small)
        return max(0.0, self.table[small] + slope * (count - small))


class JoinSpec(Section):
    """How a stage with several predecessors makes one request of what they deliver."""

    mode: Literal["all", "any"] = "all"
    on_loss: Literal["drop", "partial"] = "drop"
    function: Reference | None = None


class InputSpec(Section):
    """What one named input of a stage must be, or an output of the pipeline is; None stands for anything."""

    dtype: Annotated[str, AfterValidator(_dtype)] | None = None
    shape: tuple[Annotated[Any, BeforeValidator(_dimension)], ...] | None = None

    def takes(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """Whether a value of that dtype (or type) and shape is one."""
        if self.shape is not None and len(self.shape) != len(shape):
            return False
        sizes = zip(self.shape or (), shape, strict=False)
        fits = all(type(want) is not int or want == have for want, have in sizes)
        return fits and self.dtype in (None, dtype)

    @property
    def text(self) -> str:
        shape = "" if self.shape is None else f" {list(self.shape)}"
        return f"{self.dtype or 'any dtype'}{shape}"


_LEAST_MESSAGE: Final = 1024  # bytes: a failure with its reason fits, and the shortest queries


class LimitsSpec(Section):
    """Bounds on a message that differ from `spillway.lineage.limits.Limits`, by the same names."""

    max_message_bytes: Annotated[Size | None, Field(ge=_LEAST_MESSAGE)] = None
    max_values: Count | None = None
    max_entries: Count | None = None
    max_depth: Count | None = None
    max_rank: Count | None = None
    max_tensor_bytes: Size | None = None
    max_string_bytes: Size | None = None
    max_name_bytes: Annotated[Size | None, Field(ge=DEFAULT_LIMITS.max_name_bytes)] = None
    """At least what the names of stages and reasons may take."""
    max_timings: Count | None = None

    def merged(self) -> Limits:
        """The bounds to use. Raises UsageError for a value that no message can have."""
        return Limits(**self.model_dump(exclude_none=True))


class StageSpec(Section):
    """One stage of a pipeline."""

    name: Annotated[str, AfterValidator(names.stage_name)]
    model: ModelReference | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    emulated: EmulatedSpec | None = None
    profile: str | None = None
    """The file with the model's measured durations, where it is not the pipeline's (`spillway.topology.profiles`)."""
    version: str | None = None
    after: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """The predecessors; none for a stage that reads the ingress."""
    join: JoinSpec | None = None
    """Where there are several predecessors; None stands for `JoinSpec()`: wait for all, and drop what one drops."""
    split: Reference | None = None
    choose: Reference | None = None
    queue: Count = DEFAULT_QUEUE
    """The most requests that wait in one process; beyond, they wait in Kafka."""
    inputs: dict[str, InputSpec] | None = None
    default: dict[str, Any] | None = None
    """Outputs for a query that is not answered in time; None: there are none, and it is late, or dropped."""
    policy: str | None = None
    """A policy's name, or its setting with parameters, as `pard:quantile=.2`; what policies there are, agents know."""

    workers: WorkersSpec = Field(default_factory=WorkersSpec)
    batching: BatchingSpec = Field(default_factory=BatchingSpec)
    cache: CacheSpec | None = None
    """None: no prediction is remembered."""
    copies: CopiesSpec | None = None
    """None: one worker gets a batch."""
    coding: CodingSpec | None = None
    ensemble: EnsembleSpec | None = None
    """None for a stage with one model."""
    variants: VariantsSpec | None = None
    """Of one application, of which one answers each query (`spillway.topology.variants`)."""
    state: Annotated[StateSpec | None, BeforeValidator(kind_alone)] = None
    """None for a stateless stage."""
    publish: StrictBool = False
    """Of a keyed state: whether what the model's `publish(state)` returns is written to the stage's table."""
    tables: dict[str, TableSpec] | None = None
    """By the name of the input that a query is given of it."""

    @property
    def default_outputs(self) -> dict[str, Any]:
        """The `default` as values that travel. Raises WireError where they cannot."""
        return {name: read_value(value, name) for name, value in (self.default or {}).items()}

    @property
    def required_state(self) -> StateSpec:
        """Its state. Raises UsageError for a stage without one."""
        if self.state is None:
            raise UsageError(f"stage {self.name!r} keeps no state; give it one, as in 'state: {{kind: shared}}'")
        return self.state

    @property
    def stateful(self) -> bool:
        return self.state is not None

    @property
    def replicated(self) -> bool:
        """Whether its state is in a version log, so that its messages carry marks."""
        return self.state is not None and self.state.replicated

    @property
    def shards(self) -> int:
        return 1 if self.state is None else self.state.shards

    @property
    def fronts(self) -> int:
        """Processes that read the stage's input: one for each shard of a state."""
        return self.workers.fronts if self.state is None else self.state.shards

    @property
    def processes(self) -> int:
        """All processes of the stage, those that only stand ready included."""
        if self.state is None:
            return self.workers.fronts + self.workers.standby
        return self.state.shards * self.state.members

    @property
    def worker_count(self) -> int:
        return self.workers.total if self.state is None else self.state.shards

    @property
    def has_generations(self) -> bool:
        """Whether it learns a Velox model, whose features change while it serves."""
        return self.publish and self.model is not None and names.model_parts(self.model)[0] == names.VELOX

    def shard_of(self, partition: int) -> int:
        return partition % self.shards

    @property
    def learner(self) -> StageSpec | None:
        """The learner that comes with its ensemble."""
        ensemble = self.ensemble
        if ensemble is None or not ensemble.learns:
            return None
        told: dict[str, Any] = {"stage": self.name, "members": list(ensemble.members)}
        told |= {"selection": ensemble.selection, "loss": ensemble.loss}
        return StageSpec(
            name=names.weights(self.name),
            model="spillway.agents.learning.learner:Learner",
            arguments=told,
            state=StateSpec(kind="keyed"),
            publish=True,
        )

    @property
    def lanes(self) -> tuple[str, ...]:
        """The members of its ensemble, or its variants; none of a stage with one model."""
        if self.variants is not None:
            return tuple(self.variants.of)
        return () if self.ensemble is None else tuple(self.ensemble.members)

    @property
    def unmeasured(self) -> str:
        """Why nothing is measured of it by itself; empty where it is measured, or emulated."""
        if self.ensemble is not None:
            return "an ensemble, whose members are not profiled"
        if self.variants is not None:
            return "variants, which have profiles of their own"
        if self.model is not None and names.model_parts(self.model)[0] == names.VELOX:
            return "a Velox model, which answers by what its learner has published"
        return ""

    def variant(self, name: str) -> StageSpec:
        """One of its variants as a stage by itself."""
        assert self.variants is not None  # it has some
        spec = self.variants.of[name]
        batching = self.batching.model_copy(update={"limit": "fixed", "size": None, "max": spec.batch})
        return self._lane(spec, workers=spec.workers, batching=batching, variants=None)

    def member(self, name: str) -> StageSpec:
        """A member of its ensemble as a stage by itself, dealt out to as many fronts."""
        assert self.ensemble is not None  # it has members
        spec = self.ensemble.members[name]
        workers = spec.workers.model_copy(update={"fronts": self.fronts})
        batching = spec.batching or self.batching
        return self._lane(spec, workers=workers, batching=batching, cache=spec.cache, ensemble=None)

    def _lane(self, of: MemberSpec | VariantSpec, **changes: Any) -> StageSpec:
        own = {"model": of.model, "arguments": of.arguments, "version": of.version}
        return self.model_copy(update=own | changes)

    def with_batching(self, **changes: Any) -> StageSpec:
        return self.model_copy(update={"batching": self.batching.model_copy(update=changes)})

    def with_workers(self, **changes: Any) -> StageSpec:
        return self.model_copy(update={"workers": self.workers.model_copy(update=changes)})


class PipelineSpec(Section):
    """A whole pipeline."""

    name: Annotated[str, AfterValidator(names.pipeline_name)]
    slo: Positive
    """Seconds within which a prediction is good; a client's deadline where it names none."""
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)] = DEFAULT_PARTITIONS
    sinks: Literal["any", "all"] | None = None
    """Where several stages are the last: whether any one of them makes the outcome or all must."""
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    profile: str | None = None
    """The file with the measured durations of the stages that have a model."""
    policy: str | None = None
    """Of the stages that name none; read from a file, they have it as theirs."""
    outputs: Annotated[dict[str, InputSpec], Field(min_length=1)] | None = None
    """What a prediction holds, as clients are told it; None where the file does not say. Nothing holds it to that."""
    stages: tuple[StageSpec, ...] = Field(min_length=1)
    learners: tuple[StageSpec, ...] = ()
    """Each the one stage of a pipeline of its own, which is served beside this one
    (`spillway.topology.load.Pipeline`)."""

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        """(stage, shard) of every state that has a version log: what a mark can name."""
        return tuple((stage.name, shard) for stage in self.stages if stage.replicated for shard in range(stage.shards))

    def stage(self, name: str) -> StageSpec:
        """The stage called `name`. Raises UsageError that says which there are."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        known = [stage.name for stage in self.stages]
        raise UsageError(f"pipeline {self.name!r} has no stage {name!r}; {names.meant(name, known)}")
