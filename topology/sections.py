"""The sections of a stage in a pipeline file: see `spillway.topology.rules` for what has to fit together.

A stage that says nothing of a section has the section's defaults, and no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from spillway.topology import names, quantities

if TYPE_CHECKING:
    from collections.abc import Mapping

Mode = Literal["nspb", "remus", "lineage-stash", "s1", "s2", "kafka-eos", "none"]

DEFAULT_MAX_BATCH = 64
ADAPTIVE = ("aimd", "quantile")  # batch limits that find themselves
DEFAULT_TIMEOUT = 30.0  # seconds of a batch
DEFAULT_CHECKPOINT = 150  # requests; what the HAMS paper gives Lineage Stash (section VI-A)
LEAST_LEASE = 1.0  # seconds; the same as checkpoint.leases.LEASE_SECONDS: ordinary gaps between beats reach .3 s

Seconds = Annotated[float, BeforeValidator(quantities.duration), Field(ge=0)]
Positive = Annotated[float, BeforeValidator(quantities.duration), Field(gt=0)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Size = Annotated[int, BeforeValidator(quantities.size), Field(ge=1)]
Reference = Annotated[str, AfterValidator(names.reference)]
ModelReference = Annotated[str, AfterValidator(names.model)]
Some = Annotated[int, Field(strict=True, ge=0, le=1_000)]


def _lease(seconds: float) -> float:
    if seconds < LEAST_LEASE:
        raise ValueError(
            f"must be at least {quantities.show_duration(LEAST_LEASE)}, not {quantities.show_duration(seconds)}: gaps "
            "of 300 ms between heartbeats are normal while state is copied, and a shorter lease would depose a "
            "healthy primary"
        )
    return seconds


class Section(BaseModel):
    """A part of a pipeline file: frozen, and without fields that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", defer_build=True)


class WorkersSpec(Section):
    """How many copies of the model there are, and where they run."""

    count: Count | None = None
    """Of the whole stage, dealt out to its fronts; None: one for each front."""
    fronts: Count = 1
    """Processes that read the stage's partitions, form batches and emit."""
    standby: Some = 0
    """Processes that have the model loaded and wait for a front to die."""
    where: Literal["thread", "process", "remote"] = "thread"
    """In the front itself, each in a process of its own, or wherever `spillway worker` is started."""
    device: Annotated[str, AfterValidator(names.device)] = "cpu"
    timeout: Positive = DEFAULT_TIMEOUT
    """The longest that a batch may run: beyond, the model hangs, and its process is ended."""
    threads: Count | None = None
    """Threads of a worker's torch and BLAS, of `process` and `remote`; None: one of torch, and BLAS as it likes."""
    python: str | None = None
    """The interpreter of `process` workers, which needs numpy, msgpack and the model's packages; None: the front's."""
    listen: Annotated[str, AfterValidator(names.address)] | None = None
    """Where the front waits for `remote` workers: HOST:PORT."""
    tls: str | None = None
    """The folder with the front's ca.pem, cert.pem and key.pem."""

    @property
    def total(self) -> int:
        return self.fronts if self.count is None else self.count

    def of_front(self, front: int) -> int:
        """How many workers a front has; the first ones have one more where they cannot be dealt out evenly."""
        each, rest = divmod(self.total, self.fronts)
        return each + (front < rest)


class BatchingSpec(Section):
    """How large a batch may be, and how long it may be waited for."""

    limit: Literal["planned", "fixed", "aimd", "quantile"] | None = None
    """Whether `size` is planned, is always `size` or `max`, or is found by what batches take
    (`spillway.agents.core.limits`).

    None: planned where `size` is given or the durations of all stages are known, else `aimd`.
    """
    objective: Positive | None = None
    """Of `aimd` and `quantile`: how long a batch may run; None: half the stage's share of the SLO."""
    size: Count | None = None
    """The planned size: batches are formed up to it. Where it is not given, it is planned
    (`spillway.topology.sizing`)."""
    max: Count = DEFAULT_MAX_BATCH
    """The most that the model takes at once, whoever plans the batch."""
    delay: Seconds = 0.0
    """How long the first of a batch may wait for others while a worker is free."""

    @property
    def most(self) -> int:
        """The largest batch that is ever formed."""
        return self.max if self.size is None else self.size


class CacheSpec(Section):
    """Predictions that are remembered (`spillway.agents.core.cache`)."""

    bytes: Size
    """The most that they take in each front; those that were not used for longest leave first."""


class CopiesSpec(Section):
    """A second worker for a batch, in a pool of its own; whichever answers first settles a query."""

    workers: Count = 1
    """Processes beside each front."""
    quantile: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None
    """A batch is copied when it takes longer than this quantile of batches; None: every batch, at once."""
    budget: Annotated[float, Field(strict=True, gt=0, le=1)] = 1.0
    """The most copies, as a share of all batches."""
    model: ModelReference | None = None
    """What the copies run, a cheaper model say; None: the stage's own."""
    arguments: dict[str, Any] | None = None
    """Of `model`; None: the stage's where that is its own, else none."""


class CodingSpec(Section):
    """Answers for slow workers by coded computation (ParM): a parity model answers for one batch in each `k`."""

    k: Annotated[int, Field(strict=True, ge=2, le=8)]
    """Batches of a group; a stage of m workers has m / k parity workers beside it, rounded up."""
    rows: Annotated[int, Field(strict=True, ge=1, le=4)] = 1
    """Missing batches of a group that can be answered for; each row has parity workers of its own."""
    parity: str
    """The folder with the parity models, beside the pipeline file."""
    encoder: str = "sum"
    """`sum`, `concatenation`, or `module:Class`."""
    finish: Reference | None = None
    """`module:function` that makes a stage's outputs of the model's: an arg max, say."""
    group_wait: Positive = 0.025
    """How long the first batch of a group waits for the others."""
    room: Count = 64
    """The most parity batches that wait."""
    release: Literal["first", "budget"] = "first"
    """When an answer that was made is given: at once, or when there is no time left for an exact one."""
    floor: Annotated[float, Field(strict=True, gt=0, le=1)] | None = None
    """Coding pauses while fewer answers that were made agree with the exact ones; None: whatever they are worth."""
    tolerance: Annotated[float, Field(ge=0)] = 0.0
    """By how much numbers of two answers that agree may differ."""
    shared: StrictBool = False
    """The parity workers load the model, too, and run its batches before parity batches."""


def in_processes(value: Any) -> Any:
    return {"where": "process"} | value if isinstance(value, dict) else value


class MemberSpec(Section):
    """One of an ensemble's models, with workers of its own."""

    model: ModelReference
    arguments: dict[str, Any] = Field(default_factory=dict)
    version: str | None = None
    workers: Annotated[WorkersSpec, BeforeValidator(in_processes)] = Field(
        default_factory=lambda: WorkersSpec(where="process")
    )
    batching: BatchingSpec | None = None
    """None: as the stage's."""
    cache: CacheSpec | None = None
    """Asked when the member is; its workers hear of what is not in it."""


FIXED_SELECTIONS = ("static", "uniform")  # they learn nothing
MOST_MEMBERS = 32  # of which an outcome can tell
_FAMILIES = {"exp3": "exp", "exp4": "exp", "epsilon": "tally", "thompson": "tally"}


def selection_family(name: str) -> str:
    """Selections of one family keep the same numbers of a member, so that one may follow the other."""
    return _FAMILIES.get(name, name)


def _policy_alone(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class EnsembleSpec(Section):
    """Several models behind one stage, of which some are asked for each query and whose answers are combined."""

    members: dict[Annotated[str, AfterValidator(names.stage_name)], MemberSpec]
    selection: Annotated[dict[str, Any], BeforeValidator(_policy_alone)] = Field(default={"name": "exp4"})
    """The policy's name and its parameters, as `{name: exp3, eta: .2}`; which there are, agents know."""
    context: Literal["none", "key"] = "none"
    """Of what there are weights of its own: of nothing, or of each message key."""
    wait: Positive | None = None
    """How long a query that has any answer waits for others; None: to its last moment."""
    missing: Literal["own_mean", "ensemble_mean", "skip"] = "own_mean"
    """What counts in place of a score that is missing: the member's mean, the others', or nothing."""
    answer: str = "label"
    """The output of the members that is combined, and the stage's only one."""
    loss: str = "zero_one"
    """How far an answer is from the truth: `zero_one`, `absolute`, or `module:function`."""
    threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    """The least confidence; below it the stage's `default` is the answer."""
    learn: StrictBool = True
    """Whether a learner comes with it, which takes truths and changes the weights."""

    @property
    def learns(self) -> bool:
        return self.learn and self.selection.get("name") not in FIXED_SELECTIONS


class TableSpec(Section):
    """Published state that the queries of a stage are given, looked up by a key when their batch starts."""

    of: str
    """A learner of the pipeline, or one of its own stages that publishes."""
    key: str | None = None
    """The input that has the key, a text; None: the key of the query's message."""
    own: StrictBool = False
    """Whether a front follows only the partitions that it owns, so that a key elsewhere cannot be looked up."""


class StateSpec(Section):
    """What the model keeps from one query to the next, and how that outlives its process."""

    kind: Literal["shared", "keyed"]
    """One state for all queries of a shard, or one for each key."""
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

    @property
    def replicated(self) -> bool:
        return self.replication != "none"

    @property
    def members(self) -> int:
        """Processes of each shard."""
        return 1 + self.backups if self.replicated else 1


def with_counts(lanes: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the members, or variants, some of them with so many workers."""
    return {
        name: lane.model_copy(update={"workers": lane.workers.model_copy(update={"count": counts[name]})})
        if name in counts
        else lane
        for name, lane in lanes.items()
    }


def kind_alone(value: Any) -> Any:
    """`state: keyed` stands for `state: {kind: keyed}`."""
    return {"kind": value} if isinstance(value, str) else value
