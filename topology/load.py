"""Pipelines from files: read, checked as a whole, and ready to be served."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.lineage.errors import SpecError
from spillway.topology import names
from spillway.topology.problems import InvalidPipelineError, Problem
from spillway.topology.quantities import show_duration
from spillway.topology.reading.document import Document
from spillway.topology.reading.fields import read_fields
from spillway.topology.reading.models import read_bytes
from spillway.topology.routing import Graph
from spillway.topology.rules.structure import check_structure
from spillway.topology.rules.tables import check_learners
from spillway.topology.sizing import HOP_SECONDS, durations_of, least_time, planned, profiles_of, topics_passed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.topology.problems import Finding
    from spillway.topology.problems import Path as FieldPath
    from spillway.topology.profiles import StageProfile
    from spillway.topology.spec import PipelineSpec


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline that passed every check."""

    spec: PipelineSpec
    """With a batch for every stage, where all their durations are known."""
    graph: Graph
    path: Path
    digest: str
    """Of what the file says, whatever its form and comments: equal for equal pipelines."""
    frame: str
    """The same without the ensembles' sections, which may change while it is served: what sizes go with."""
    written: PipelineSpec
    """What the file says: its batches are those that the user gives."""
    profiles: Mapping[str, StageProfile] = field(repr=False)
    """By stage, where it has a model and refers to a profile file."""
    durations: Mapping[str, Callable[[int], float]] = field(repr=False, compare=False)
    """By stage, seconds of a batch of n, emulated or measured; without those that have neither."""
    _document: Document = field(repr=False, compare=False)
    _root: FieldPath = ()  # of a learner: where in the file it stands
    parent: Pipeline | None = field(default=None, repr=False, compare=False)
    """Of a learner: the pipeline that it learns for."""

    @staticmethod
    def load(path: Path | str) -> Pipeline:
        """Read a pipeline file. Raises SpecError with all problems, each with file, line, column, path and fix."""
        return load(path)

    @staticmethod
    def parse(text: str, path: Path | str = "pipeline.yaml") -> Pipeline:
        """Read a pipeline from the text of a file; `path` is what errors call it, and profiles are found beside it."""
        return parse(text, path)

    def for_slo(self, slo: float) -> Pipeline:
        """The same with another SLO (seconds), and batches planned for it. Raises SpecError where it is too short."""
        problems: list[Problem] = []
        spec = planned(self.written.model_copy(update={"slo": slo}), self.durations, problems)
        if problems:
            raise SpecError(problems[0].text)
        return replace(self, spec=spec)

    @property
    def learners(self) -> tuple[Pipeline, ...]:
        """The pipelines of the file's learners, each with its one stage; `load` gives one as FILE#LEARNER."""
        return tuple(self.learner(learner.name) for learner in self.written.learners)

    def learner(self, name: str, *, profiled: bool = True) -> Pipeline:
        """The pipeline of the learner called `name`. Raises SpecError that says which there are."""
        known = [learner.name for learner in self.written.learners]
        if name not in known:
            raise SpecError(f"{self.path} has no learner {name!r:.80}; {names.meant(name, known)}")
        number = known.index(name)
        stage = self.written.learners[number].model_copy(update={"policy": "naive"})
        alone: dict[str, Any] = {"learners": (), "profile": None, "policy": None, "sinks": None, "outputs": None}
        alone |= {"name": names.learner(self.written.name, name), "stages": (stage,)}
        path = self.path.with_name(f"{self.path.name}#{name}")
        learner = _pipeline(self.written.model_copy(update=alone), path, self._document, profiled=profiled)
        return replace(learner, _root=("learners", number), parent=self)

    def finding(self, path: FieldPath, text: str) -> Finding:
        """What a later check found at `path`, as ("stages", 0, "model"), with its place in the file."""
        if self._root and path[:2] == ("stages", 0):
            path = (*self._root, *path[2:])
        return self._document.finding(Problem(path, text))


def load(path: Path | str, *, profiled: bool = True) -> Pipeline:
    """Read a pipeline file. Raises SpecError with all problems, each with file, line, column, path and fix.

    FILE#LEARNER is the pipeline of a learner of FILE. Not `profiled`, it is read as if it referred to no profile files,
    which may be yet to make.
    """
    file = Path(path)
    whole, _, learner = str(file).rpartition("#")
    if whole and not file.exists():
        return load(whole, profiled=profiled).learner(learner, profiled=profiled)
    return parse(_text(file), file, profiled=profiled)


def unchecked(path: Path | str) -> tuple[Any, Callable[[FieldPath, str], Finding]]:
    """What a file says, and what makes a finding of a field's path and a text: to check fields one by one.

    For a file that is no pipeline because of others of its fields. Raises SpecError where it cannot be read at all.
    """
    file = Path(path)
    whole, _, _ = str(file).rpartition("#")
    if whole and not file.exists():
        file = Path(whole)
    document = Document(str(file), _text(file))
    return document.value, lambda place, text: document.finding(Problem(place, text))


def _text(file: Path) -> str:
    data = read_bytes(file, "pipeline file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SpecError(f"{file}:{line}: this is not UTF-8 text: save the file as UTF-8") from error


def parse(text: str, path: Path | str = "pipeline.yaml", *, profiled: bool = True) -> Pipeline:
    """Read a pipeline from the text of a file; `path` is what errors call it, and profiles are found beside it."""
    file = Path(path)
    document = Document(str(file), text)
    findings = document.findings
    problems: list[Problem] = []
    fields = read_fields(document.value, problems)
    problems += [*check_structure(fields), *check_learners(fields)]
    for learner in fields.learners:
        problems += check_structure(fields.of_learner(learner))
    findings += map(document.finding, problems)
    if findings:
        raise InvalidPipelineError(document.file, findings)
    return _pipeline(fields.spec(), file, document, profiled=profiled)


def _pipeline(written: PipelineSpec, file: Path, document: Document, *, profiled: bool) -> Pipeline:
    """Raises InvalidPipelineError where its profiles do not fit."""
    problems: list[Problem] = []
    digest = _digest(written)
    profiles = profiles_of(written, file.parent, problems) if profiled else {}
    durations = durations_of(written, profiles)
    spec = planned(written, durations, problems)
    if problems:
        raise InvalidPipelineError(document.file, map(document.finding, problems))
    return Pipeline(
        spec, Graph(spec), file, digest, _digest(without_ensembles(written)), written, profiles, durations, document
    )


def without_ensembles(spec: PipelineSpec) -> PipelineSpec:
    """What a file says but for its ensembles, and the learners that come with them."""
    stages = tuple(stage.model_copy(update={"ensemble": None}) for stage in spec.stages)
    theirs = [stage.learner for stage in spec.stages if stage.learner is not None]
    learners = tuple(learner for learner in spec.learners if learner not in theirs)
    return spec.model_copy(update={"stages": stages, "learners": learners})


def _digest(spec: PipelineSpec) -> str:
    """What a file does not say is left out: recordings made before a field came are still of the same pipeline."""
    return hashlib.sha256(spec.model_dump_json(exclude_defaults=True).encode()).hexdigest()


_ALONE = "it has no backup, so after a failure a restarted process reads its state from the log"
_CHOICE = (
    "'choose' sees default answers and reconstructed answers, so a query that is repeated after a crash may take "
    "another path; a join behind it then ends with join-timeout"
)
_OWN = (
    "table {name!r} has 'own: true', so a front finds only keys in its own partitions: input {key!r} must also be the "
    "key of the query's message"
)
_KEYS = "send every query with its key, so that all of a key reach the same shard"


def remarks(pipeline: Pipeline) -> list[str]:
    """What is allowed in a pipeline, but is likely not what its author wants."""
    spec = pipeline.spec
    found = []
    single = {name: duration(1) for name, duration in pipeline.durations.items()}
    least, way = least_time(spec, pipeline.graph, single)
    if least >= spec.slo:
        found.append(
            f"the stages {' -> '.join(way)} take {show_duration(least)} for a batch of one, so no query can "
            f"meet the SLO of {show_duration(spec.slo)}"
        )
    passed = topics_passed(spec, pipeline.graph)
    if least < spec.slo <= least + passed * HOP_SECONDS:
        beside = f", and the models take {show_duration(float(f'{least:.3g}'))}" if least else ""
        found.append(
            f"a query passes {passed} topics, which takes about {show_duration(passed * HOP_SECONDS)} (about "
            f"{show_duration(HOP_SECONDS)} each on a machine of two cores){beside}: with an SLO of "
            f"{show_duration(spec.slo)} most queries will be late"
        )
    for stage in spec.stages:
        count, parts = (stage.shards, "shards") if stage.stateful else (stage.fronts, "fronts")
        if spec.partitions % count:
            some, most = spec.partitions // count, -(-spec.partitions // count)
            found.append(
                f"stage {stage.name!r}: {spec.partitions} partitions do not divide evenly by {count} "
                f"{parts}: some get {some}, others {most}"
            )
        if stage.stateful and not stage.replicated:
            found.append(f"stage {stage.name!r}: its state is not replicated and is lost when its process ends")
        elif stage.state is not None and not stage.state.backups:
            found.append(f"stage {stage.name!r}: {_ALONE}")
        for name, table in (stage.tables or {}).items():
            if table.own and table.key is not None:
                found.append(f"stage {stage.name!r}: {_OWN.format(name=name, key=table.key)}")
        varies = (
            stage.default is not None or stage.coding is not None or bool(stage.lanes) or stage.variants is not None
        )
        if stage.choose is not None and varies:
            found.append(f"stage {stage.name!r}: {_CHOICE}")
        if stage.state is not None and stage.state.kind == "keyed" and stage.shards > 1:
            found.append(f"stage {stage.name!r}: {_KEYS}")
    return found
