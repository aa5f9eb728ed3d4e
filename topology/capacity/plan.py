"""A plan: what hardware each stage has, how much of it, how large its batches are, and what that was reckoned to do.

`spillway plan provision` writes one; whatever serves by it, or changes it while it serves, needs no other file:

    spillway-plan: 1
    pipeline: social
    digest: 3f..                    # of the pipeline's file
    slo: 0.15
    cost: 3.19                      # an hour
    p99: 0.142                      # estimated, of the trace
    misses: 0.0071                  # the share of the trace's queries that took longer than the SLO
    trace: {name: trace.csv, queries: 90000, seconds: 600.0, rate: 150.0, service_time: 0.061}
    envelope:                       # a window's seconds, and the most queries in one (InferLine, section 4.5)
    - [0.061, 24]
    - [0.122, 41]
    stages:
      detect: {hardware: k80, runs: emulated, count: 5, batch: 8, price: 0.634, load: 5.0, share: 1.0,
               throughput: 41.2, ratio: 0.73, takes: {1: 0.05, 8: 0.194}}
    kept: {track: 2}                # workers of the stages that keep what the pipeline's file says
    limits: {k80: 128}              # units that there are
    steps: [...]

`share` is s_m, `throughput` mu_m of one worker at this batch limit, `ratio` rho_m = lambda s_m / (count mu_m); `takes`
are the model's seconds by batch size, without what else a batch takes (`plan provision --overhead`), which `throughput`
counts. All durations are seconds, all prices of an hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from spillway.topology.reading.models import read_model, write_yaml
from spillway.topology.sections import Count, Positive, Seconds, Section

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = 1
_KEY: Final = "spillway-plan"
_HEADER: Final = "# Written by `spillway plan provision`. Durations are seconds, prices are per hour.\n"

Share = Annotated[float, Field(ge=0, le=1)]
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TraceFacts(Section):
    """What a plan was made for."""

    name: str
    queries: Count
    seconds: Positive
    rate: Positive
    """lambda, queries per second over all of it."""
    service_time: Positive
    """p99 of a query that waits for nothing under this plan: the smallest window of the envelope."""


class PlannedStage(Section):
    """What one stage has."""

    hardware: str
    runs: Literal["core", "cuda", "emulated"]
    count: Count
    """Workers; one has one unit of the hardware."""
    batch: Count
    """The most queries of a batch."""
    price: Figure
    """Of a unit."""
    load: Seconds
    """Until a new worker serves."""
    share: Share
    """s_m: of the queries, those that visit it."""
    throughput: Positive
    """mu_m: queries per second of one worker in full batches."""
    ratio: Figure
    """rho_m: its load over its throughput."""
    takes: Annotated[dict[Annotated[int, Field(ge=1)], Positive], Field(min_length=1)]
    """Seconds by batch size, as `emulated: {table: ...}` has them."""
    parity: Annotated[int, Field(ge=0)] = 0
    """Parity workers beside them, of a coded stage, on the same hardware."""


class Plan(Section):
    """A whole plan."""

    version: Annotated[Literal[1], Field(alias=_KEY)] = VERSION
    pipeline: str
    digest: str
    """Of what the pipeline's file said."""
    slo: Positive
    cost: Figure
    p99: Positive
    misses: Share
    trace: TraceFacts
    envelope: tuple[tuple[Positive, Annotated[int, Field(ge=0)]], ...]
    """(seconds, queries): a window, and the most queries of the trace that fell into one."""
    stages: dict[str, PlannedStage]
    kept: dict[str, Count] = Field(default_factory=dict)
    """By stage that is not planned, the workers that the pipeline's file gives it."""
    limits: dict[str, Count] = Field(default_factory=dict)
    """By hardware of which there is not any number, its units."""
    steps: tuple[str, ...] = ()
    """How it was found."""
    remarks: tuple[str, ...] = ()


def read_plan(path: Path) -> Plan:
    """Read a plan. Raises SpecError that names the file, the place and the fix."""
    return read_model(path, Plan, "plan", "plans are written by 'spillway plan provision'")


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan, whole or not at all. Raises SpecError where it cannot be written."""
    write_yaml(path, plan.model_dump(by_alias=True), "plan", _HEADER)
