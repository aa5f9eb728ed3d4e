"""What a pipeline file says, as frozen objects; durations are seconds, whatever unit they were written in.

The fields are checked one by one here; what has to fit together (names, edges, choices, bounds) is checked by
`topology.load`, which is how a pipeline file is to be read. A spec built in Python is not checked any further than
its fields; `topology.load.parse` does the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from lineage.errors import UsageError
from lineage.limits import Limits
from lineage.values.tensors import DTYPE_NAMES
from topology import names, quantities

Mode = Literal["nspb", "remus", "lineage-stash", "s1", "s2", "kafka-eos", "none"]

DEFAULT_PARTITIONS = 12
DEFAULT_MAX_BATCH = 64
DEFAULT_QUEUE = 4_096
DEFAULT_TIMEOUT = 30.0  # seconds of a batch
DEFAULT_CHECKPOINT = 150  # requests; what the HAMS paper gives Lineage Stash (section VI-A)
LEAST_LEASE = 1.0  # seconds; the same as checkpoint.leases.LEASE_SECONDS: ordinary gaps between beats reach .3 s
OF_STATES = ("state", "shards", "backups", "replication", "checkpoint_every", "lease", "standby")  # fields of a stage
VALUE_TYPES = ("str", "bytes", "int", "float", "list", "dict")  # of inputs that are no tensors (bool is either)

Seconds = Annotated[float, BeforeValidator(quantities.duration), Field(ge=0)]
Positive = Annotated[float, BeforeValidator(quantities.duration), Field(gt=0)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Size = Annotated[int, BeforeValidator(quantities.size), Field(ge=1)]
Some = Annotated[int, Field(strict=True, ge=0, le=1_000)]
Reference = Annotated[str, AfterValidator(names.reference)]


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _joined(value: Any) -> Any:
    return {"mode": value} if isinstance(value, str) else value


def _policy(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    name = value.get("name")
    if not isinstance(name, str):
        raise ValueError("needs a name, as {name: pard, quantile: .2}")  # noqa: TRY004 - pydantic wants a ValueError
    parameters = {key: each for key, each in value.items() if key != "name"}
    for key, each in parameters.items():
        if not isinstance(each, str | int | float) or {",", "="} & {*str(key), *str(each)}:
            raise ValueError(f"its parameter {key} must be a name or a number, not {each!r:.40}")
    return ":".join(filter(None, (name, ",".join(f"{key}={each}" for key, each in parameters.items()))))


def _dtype(name: str) -> str:
    known = (*sorted(DTYPE_NAMES), *VALUE_TYPES)
    if name not in known:
        raise ValueError(f"there is no dtype {name!r:.40}; {names.meant(name, known)}")
    return name


def _dimension(value: Any) -> Any:
    if value is None or isinstance(value, str) or (type(value) is int and value >= -1):
        return value
    raise ValueError(f"must be a whole number, or null, -1 or a name for any size, not {value!r:.40}")


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
        raise ValueError("is empty; give a duration for at least a batch of 1")
    return dict(sorted(table.items()))


def _lease(seconds: float) -> float:
    if seconds < LEAST_LEASE:
        raise ValueError(
            f"must be at least {quantities.show_duration(LEAST_LEASE)}, not {quantities.show_duration(seconds)}: gaps "
            "of 300 ms between heartbeats are ordinary while state streams, and would fell a healthy primary"
        )
    return seconds


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class EmulatedSpec(_Spec):
    """An emulated accelerator: a batch of n takes `alpha + beta * n`, or what a measured table says."""

    alpha: Seconds | None = None
    beta: Seconds | None = None
    table: Annotated[dict[int, Positive] | None, BeforeValidator(_table)] = None

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


class JoinSpec(_Spec):
    """How a stage with several predecessors makes one request of what they deliver."""

    mode: Literal["all", "any"] = "all"
    on_loss: Literal["drop", "partial"] = "drop"
    function: Reference | None = None


class InputSpec(_Spec):
    """What one named input of a stage must be; None stands for anything."""

    dtype: Annotated[str, AfterValidator(_dtype)] | None = None
    shape: tuple[Annotated[Any, BeforeValidator(_dimension)], ...] | None = None


class LimitsSpec(_Spec):
    """Bounds on a message that differ from `lineage.limits.Limits`, by the same names."""

    max_message_bytes: Size | None = None
    max_values: Count | None = None
    max_entries: Count | None = None
    max_depth: Count | None = None
    max_rank: Count | None = None
    max_tensor_bytes: Size | None = None
    max_string_bytes: Size | None = None
    max_name_bytes: Size | None = None
    max_timings: Count | None = None

    def merged(self) -> Limits:
        """The bounds to use. Raises UsageError for a value that no message can have."""
        return Limits(**self.model_dump(exclude_none=True))


class StageSpec(_Spec):
    """One stage of a pipeline."""

    name: Annotated[str, AfterValidator(names.stage_name)]
    model: Reference | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    emulated: EmulatedSpec | None = None
    profile: str | None = None
    """The file with the model's measured durations, where it is not the pipeline's (`topology.profiles`)."""
    version: str | None = None
    batch: Count | None = None
    """The planned size: batches are formed up to it. Where it is not given, it is planned (`topology.sizing`)."""
    max_batch: Count = DEFAULT_MAX_BATCH
    """The most that the model takes at once, whoever plans the batch."""
    batch_delay: Seconds = 0.0
    """How long the first of a batch may wait for others while a model instance is free."""
    replicas: Count = 1
    """Processes."""
    instances: Count = 1
    """Instances of the model in each process, fed by one queue."""
    device: Annotated[str, AfterValidator(names.device)] = "cpu"
    executor: Literal["thread", "process"] = "thread"
    timeout: Positive = DEFAULT_TIMEOUT
    """The longest that a batch may run: beyond, the model hangs, and its process is ended."""
    after: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """The predecessors; none for a stage that reads the ingress."""
    join: Annotated[JoinSpec | None, BeforeValidator(_joined)] = None
    """Where there are several predecessors; None stands for `JoinSpec()`: wait for all, and drop what one drops."""
    split: Reference | None = None
    choose: Reference | None = None
    sink: StrictBool | None = None
    """A declaration that is only checked: whether this stage is one of the last."""
    queue: Count = DEFAULT_QUEUE
    """The most requests that wait in one process; beyond, they wait in Kafka."""
    inputs: dict[str, InputSpec] | None = None
    policy: Annotated[str | None, BeforeValidator(_policy)] = None
    """A policy's name, or its setting with parameters, as `pard:quantile=.2`; what policies there are, agents know."""

    state: Literal["shared", "keyed"] | None = None
    """What the model keeps: one state for all queries of a shard, or one for each key; None for a stateless stage."""
    shards: Count = 1
    """How many states split the stage's partitions; each has a primary of its own."""
    backups: Some = 1
    """Processes of each shard beside its primary."""
    replication: Mode = "nspb"
    """How a state outlives its primary; `none`: not at all."""
    checkpoint_every: Count = DEFAULT_CHECKPOINT
    """Requests between two checkpoints of `lineage-stash`."""
    lease: Annotated[Positive, AfterValidator(_lease)] = LEAST_LEASE
    """How long a primary may be silent before a backup takes its place."""
    standby: Some = 0
    """Processes of a stateless stage that have the model loaded and wait for a replica to die."""

    @property
    def batch_size(self) -> int:
        return self.batch if self.batch is not None else self.max_batch

    @property
    def stateful(self) -> bool:
        return self.state is not None

    @property
    def replicated(self) -> bool:
        """Whether its state is in a version log, so that its messages carry marks."""
        return self.state is not None and self.replication != "none"

    @property
    def members(self) -> int:
        return 1 + self.backups if self.replicated else 1

    @property
    def processes(self) -> int:
        """All processes of the stage, those that only stand ready included."""
        return self.shards * self.members if self.stateful else self.replicas + self.standby

    @property
    def workers(self) -> int:
        return self.shards if self.stateful else self.replicas * self.instances

    def shard_of(self, partition: int) -> int:
        return partition % self.shards


class PipelineSpec(_Spec):
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
    policy: Annotated[str | None, BeforeValidator(_policy)] = None
    """Of the stages that name none; read from a file, they have it as theirs."""
    stages: tuple[StageSpec, ...] = Field(min_length=1)

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
