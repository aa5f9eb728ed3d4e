"""`spillway check`: whether a pipeline file can be served, what is wrong with it if not, and its graph."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from spillway.agents.cli.options import json_option, pipeline_argument
from spillway.agents.cli.policies import ensemble_findings, policy_findings, wrong_policy
from spillway.agents.coding.deployed import load_code, read_parities
from spillway.agents.core.policies import effective, words_for
from spillway.agents.learning.chosen import selection_of
from spillway.agents.profiling.conditions import stale_profiles
from spillway.lineage.errors import ModelError, SpecError, SpillwayError
from spillway.topology.drawing.pictures import dot, text
from spillway.topology.load import load, remarks, unchecked
from spillway.topology.names import model as model_name
from spillway.topology.problems import InvalidPipelineError
from spillway.topology.profiles import read_profiles
from spillway.topology.quantities import show_duration
from spillway.topology.topics import topic_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from spillway.agents.models.model_check import ModelCheck
    from spillway.topology.load import Pipeline
    from spillway.topology.problems import Finding
    from spillway.topology.problems import Path as FieldPath
    from spillway.topology.spec import StageSpec

BAD_INPUT = 2
_WIDTH = 80  # of a terminal
# MB, measured on Linux (proportional set size): a process of serve and a worker of a model that takes nothing.
_OF_SERVE, _OF_WORKER, _OF_KAFKA = 75, 25, 700


@click.command()
@pipeline_argument
@click.option("--dot", "as_dot", is_flag=True, help="Print the graph in the DOT language of Graphviz.")
@click.option("--load", "imports", is_flag=True, help="Also import the models, policies and functions that it names.")
@click.option("--models", "tries", is_flag=True, help="As --load; also construct the models, in a separate process.")
@click.option("--processes", "as_commands", is_flag=True, help="Print each process's command, for an orchestrator.")
@json_option
def check(pipeline: Path, *, as_dot: bool, imports: bool, tries: bool, as_commands: bool, as_json: bool) -> int:
    """Check a pipeline file and draw its graph.

    Lists all problems of the file at once, each with its line and fix. Nothing is imported or started. With --load,
    models, policies and functions are looked up as the stages do: in the working directory, then beside the file. With
    --models, each model is also constructed, on the CPU, those of members, variants and copies, too, and a stateful
    model creates its first state; the check is that it matches what the stage declares, can be called, and that its
    state can be stored. A model that is not constructed within 180 s, the limit of serve, is reported as hanging.

    \b
    Example:
      spillway check examples/plates/pipeline.yaml
      spillway check examples/plates/pipeline.yaml --dot | dot -Tsvg > plates.svg
      spillway check examples/plates/pipeline.yaml --processes

    \b
    Exit codes:
      0  the pipeline can be served
      2  it cannot
    """  # noqa: D301 - click's own marks
    try:
        loaded = _checked(pipeline, imports=imports or tries, tries=tries)
    except SpecError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"valid": False, "problems": _problems(error)}, ensure_ascii=False))
        return BAD_INPUT
    if as_json:
        told = _described(loaded)
        if loaded.learners:
            told["learners"] = [_described(learner) for learner in loaded.learners]
        click.echo(json.dumps(told, ensure_ascii=False))
    elif as_dot:
        click.echo(dot(loaded))
    elif as_commands:
        click.echo("\n".join(line for each in (loaded, *loaded.learners) for line in _processes(each)))
    else:
        _tell(loaded)
        for learner in loaded.learners:
            click.echo()
            _tell(learner)
        click.echo(f"\n{_needs((loaded, *loaded.learners))}")
        if tries:
            click.echo("\nmodels: all could be constructed")
        elif imports:
            click.echo("\nmodels, policies and functions: all were found")
    return 0


def _checked(file: Path, *, imports: bool, tries: bool) -> Pipeline:
    """The pipeline of a file. Raises SpecError with all that is wrong: with its profiles, policies and models, too."""
    findings: list[Finding] = []
    try:
        loaded = load(file)
    except InvalidPipelineError as error:
        try:
            loaded = load(file, profiled=False)
        except SpecError:  # the file itself is at fault: what can be said of single fields is said as well
            raise InvalidPipelineError(str(file), [*error.findings, *_singly(file, imports=imports)]) from None
        findings += error.findings
    every = (loaded, *loaded.learners)
    findings += policy_findings(loaded, imports=imports)
    findings += ensemble_findings(loaded, imports=imports)
    findings += _codings(loaded, imports=imports)
    findings += (found for each in every if imports for found in _imports(each))
    said = {str(found) for found in findings}
    findings += (found for each in every if tries for found in _trials(each) if str(found) not in said)
    if findings:
        raise InvalidPipelineError(str(file), findings)
    return loaded


def _singly(file: Path, *, imports: bool) -> Iterator[Finding]:
    """What is wrong with policies, profile files and models, each by itself, in a file that is no pipeline."""
    from spillway.agents.models.loading import look_up_model  # noqa: PLC0415 - as below

    value, finding = unchecked(file)
    stages = value.get("stages") if isinstance(value, dict) else None
    places: list[tuple[FieldPath, Any]] = [((), value)]
    places += ((("stages", number), stage) for number, stage in enumerate(stages if isinstance(stages, list) else ()))
    for place, fields in places:
        said = {key: text for key, text in fields.items() if isinstance(text, str)} if isinstance(fields, dict) else {}
        if "policy" in said and (wrong := wrong_policy(said["policy"], imports=imports)):
            yield finding((*place, "policy"), wrong)
        if "profile" in said:
            try:
                read_profiles(file.parent / said["profile"])
            except SpecError as error:
                yield finding((*place, "profile"), str(error))
        if place and (unknown := _wrong_selection(fields)):
            yield finding((*place, "ensemble", "selection"), unknown)
        named = {(): said.get("model")} | _inner_models(fields) if imports and place else {}
        for steps, model in named.items():
            if not isinstance(model, str):
                continue
            try:
                look_up_model(said.get("name", ""), model_name(model))
            except ModelError as error:
                yield finding((*place, *steps, "model"), str(error))
            except ValueError:  # it names no model: the file's own findings say so
                continue


def _wrong_selection(stage: Any) -> str | None:
    """What is wrong with the selection of an ensemble; of one of the user's own nothing is said."""
    ensemble = stage.get("ensemble") if isinstance(stage, dict) else None
    said = ensemble.get("selection") if isinstance(ensemble, dict) else None
    whole = {"name": said} if isinstance(said, str) else said
    if not isinstance(whole, dict) or not isinstance(name := whole.get("name"), str) or ":" in name:
        return None
    try:
        selection_of("", whole)
    except SpillwayError as error:
        return str(error)
    return None


def _inner_models(stage: Any) -> dict[FieldPath, Any]:
    """The models of an ensemble's members and of variants, as they are written, by where."""
    found: dict[FieldPath, Any] = {}
    for section, of in (("ensemble", "members"), ("variants", "of")):
        inner = stage.get(section) if isinstance(stage, dict) else None
        each = inner.get(of) if isinstance(inner, dict) else None
        for name, fields in each.items() if isinstance(each, dict) else ():
            if isinstance(fields, dict):
                found[section, of, name] = fields.get("model")
    return found


def _codings(pipeline: Pipeline, *, imports: bool) -> Iterator[Finding]:
    """What is wrong with parity models, as serve would find it. With `imports` encoders of the user's are loaded."""
    for number, stage in enumerate(pipeline.spec.stages):
        if stage.coding is None:
            continue
        try:
            read_parities(stage, stage.coding, pipeline.path.parent)
            if imports or ":" not in stage.coding.encoder:
                load_code(stage, stage.coding)
        except ModelError as error:
            yield pipeline.finding(("stages", number, "coding"), str(error))


def _imports(pipeline: Pipeline) -> Iterator[Finding]:
    from spillway.agents.models.loading import load_function, look_up_model  # noqa: PLC0415 - only where it is asked for

    for number, stage in enumerate(pipeline.spec.stages):
        join = stage.join.function if stage.join is not None else None
        finish = stage.coding.finish if stage.coding is not None else None
        named: dict[tuple[str, ...], str | None] = {(*section, "model"): model for section, model, _ in _models(stage)}
        named |= {("join", "function"): join, ("split",): stage.split, ("choose",): stage.choose}
        named["coding", "finish"] = finish
        for steps, name in named.items():
            if name is None:
                continue
            try:
                if steps[-1] == "model":
                    look_up_model(stage.name, name)
                else:
                    load_function(stage.name, "finish" if steps[0] == "coding" else steps[0], name)
            except ModelError as error:
                yield pipeline.finding(("stages", number, *steps), str(error))


def _models(stage: StageSpec) -> Iterator[tuple[tuple[str, ...], str | None, Mapping[str, Any] | None]]:
    """Yield the models of a stage, with the section in which each is written and its arguments."""
    yield (), stage.model, stage.arguments
    for member, each in (stage.ensemble.members if stage.ensemble is not None else {}).items():
        yield ("ensemble", "members", member), each.model, each.arguments
    for variant, one in (stage.variants.of if stage.variants is not None else {}).items():
        yield ("variants", "of", variant), one.model, one.arguments
    if stage.copies is not None:
        yield ("copies",), stage.copies.model, stage.copies.arguments


def _trials(pipeline: Pipeline) -> Iterator[Finding]:
    from spillway.agents.models.model_check import ModelCheck, verdicts  # noqa: PLC0415 - only where it is asked for
    from spillway.agents.supervise.lifecycle import RestartPolicy  # noqa: PLC0415

    numbers = {stage.name: number for number, stage in enumerate(pipeline.spec.stages)}
    trials = [trial for stage in pipeline.spec.stages for trial in _trials_of(stage, ModelCheck)]
    for verdict in verdicts(trials, RestartPolicy().start_timeout):
        path: FieldPath = ("stages", numbers[verdict.stage], *verdict.section, verdict.field)
        yield pipeline.finding(path, verdict.text)


def _trials_of(stage: StageSpec, trial: type[ModelCheck]) -> Iterator[ModelCheck]:
    state = None if stage.state is None else stage.state.kind
    for section, named, arguments in _models(stage):
        other = section == ("copies",) and arguments is not None  # the stage's own model, otherwise made
        if (model := named or (stage.model if other else None)) is not None:
            declared = (None, False) if section else (state, stage.publish)
            yield trial(stage.name, model, arguments or {}, *declared, section)


def _problems(error: SpecError) -> list[dict[str, Any]]:
    if not isinstance(error, InvalidPipelineError):
        return [{"text": str(error)}]
    return [
        {
            "file": finding.file,
            "line": finding.place.line,
            "column": finding.place.column,
            "path": finding.place.path,
            "text": finding.text,
        }
        for finding in error.findings
    ]


def _described(pipeline: Pipeline) -> dict[str, Any]:
    spec, graph = pipeline.spec, pipeline.graph
    return {
        "valid": True,
        "remarks": _remarks(pipeline),
        "digest": pipeline.digest,
        "spec": json.loads(spec.model_dump_json()),
        "planned": _planned(pipeline),
        "policies": effective(spec),
        "order": graph.order,
        "roots": graph.roots,
        "sinks": graph.sinks,
        "topics": [
            {
                "name": topic.name,
                "partitions": topic.partitions,
                "config": {**topic.config, **topic.wished},
                "purpose": topic.purpose,
            }
            for topic in topic_plan(spec)
        ],
    }


def _remarks(pipeline: Pipeline) -> list[str]:
    coded = [stage for stage in pipeline.spec.stages if stage.coding is not None]
    parities = [read_parities(stage, stage.coding, pipeline.path.parent) for stage in coded if stage.coding]
    pauses = [
        f"stage {stage.name!r}: coding is paused, and the stage serves without it: {each.outdated}"
        for stage, each in zip(coded, parities, strict=True)
        if each.outdated
    ]
    return [*remarks(pipeline), *stale_profiles(pipeline), *pauses]


def _tell(pipeline: Pipeline) -> None:
    spec = pipeline.spec
    stages = f"{len(spec.stages)} stage{'s' if len(spec.stages) > 1 else ''}"
    processes = sum(stage.processes for stage in spec.stages)
    notes = _remarks(pipeline)
    fine = "is fine" if not notes else f"is valid, with {len(notes)} note{'s' if len(notes) > 1 else ''} at the end"
    click.echo(
        f"{pipeline.path} {fine}: pipeline {spec.name}, {stages}, {processes} process{'es' if processes > 1 else ''} "
        f"and the gate, SLO {show_duration(spec.slo)}, {spec.partitions} partitions\n"
    )
    click.echo(text(pipeline))
    click.echo(f"\n{_batches(pipeline)}\n{_timeouts(pipeline)}")
    click.echo(words_for(spec))
    if spec.outputs is not None:
        click.echo("outputs: " + ", ".join(f"{name} {output.text}" for name, output in spec.outputs.items()))
    for remark in notes:
        click.echo(f"\nnote: {remark}")


def _processes(pipeline: Pipeline) -> Iterator[str]:
    """The commands that serve a pipeline without `spillway serve` as its supervisor: docs/deploy.md."""
    serve = f"spillway serve {pipeline.path}"
    for stage in pipeline.spec.stages:
        for replica in range(stage.processes):
            yield f"{serve} --stage {stage.name} --replica {replica}"
    yield f"{serve} --gate"
    for stage in pipeline.spec.stages:
        if stage.workers.where == "remote":
            port = stage.workers.listen.rpartition(":")[2] if stage.workers.listen else "PORT"
            worker = f"spillway worker {pipeline.path} {stage.name} --connect FRONT:{port} --tls FOLDER"
            yield f"{worker}  # {stage.workers.count} of these, on any hosts; FRONT is the host of the stage's process"


def _needs(pipelines: Sequence[Pipeline]) -> str:
    """Return how many processes `spillway serve` starts for all of these, and about how much memory, as a text."""
    stages = [stage for each in pipelines for stage in each.spec.stages]
    own, workers = sum(stage.processes for stage in stages), sum(map(_workers, stages))
    memory = (1 + own + len(pipelines)) * _OF_SERVE + workers * _OF_WORKER
    return (
        f"processes on one machine: serve, {own} of stages, {len(pipelines)} gate{'s' if pipelines[1:] else ''}, "
        f"{workers} workers\nmemory: about {memory} MB before any model is loaded; a local Kafka takes up to "
        f"{_OF_KAFKA} MB more"
    )


def _workers(stage: StageSpec) -> int:
    """Return how many worker processes a stage has on the machines of its fronts."""
    if stage.lanes:
        inner = stage.variants.of.values() if stage.variants else stage.ensemble.members.values()  # type: ignore[union-attr]
        spare = stage.workers.standby
        return sum(each.workers.total + spare * each.workers.of_front(0) for each in inner)
    own = [stage.workers.of_front(0 if n >= stage.fronts else n) for n in range(stage.processes)]
    beside = 0 if stage.copies is None else stage.copies.workers
    rows, k = (0, 1) if stage.coding is None else (stage.coding.rows, stage.coding.k)
    return sum((each if stage.workers.where == "process" else 0) + beside + rows * -(-each // k) for each in own)


def _timeouts(pipeline: Pipeline) -> str:
    """For how long a batch may run before its model counts as hanging."""
    stages = pipeline.spec.stages
    if len({stage.workers.timeout for stage in stages}) == 1:
        return f"timeout of a batch: {show_duration(stages[0].workers.timeout)}"
    return "timeouts of a batch: " + ", ".join(
        f"{stage.name} {show_duration(stage.workers.timeout)}" for stage in stages
    )


def _planned(pipeline: Pipeline) -> dict[str, int]:
    """The batches that are planned, of the stages without a `batch` of their own."""
    free = {stage.name for stage in pipeline.written.stages if stage.batching.size is None}
    return {
        stage.name: stage.batching.size
        for stage in pipeline.spec.stages
        if stage.name in free and stage.batching.size is not None
    }


def _batches(pipeline: Pipeline) -> str:
    """The plan in words: each stage's batch, what it takes, and where it comes from."""
    planned, told = _planned(pipeline), []
    for stage in pipeline.spec.stages:
        if stage.batching.objective is not None:
            objective = show_duration(float(f"{stage.batching.objective:.3g}"))
            told.append(f"{stage.name} by {stage.batching.limit} within {objective}, at most {stage.batching.max}")
            continue
        duration = pipeline.durations.get(stage.name)
        seconds = "" if duration is None else f" in {show_duration(float(f'{duration(stage.batching.most):.3g}'))}"
        source = "" if stage.name in planned else " (given)" if stage.batching.size is not None else " (max)"
        told.append(f"{stage.name} {stage.batching.most}{seconds}{source}")
    line = f"batches: {', '.join(told)}"
    if len(line) > _WIDTH:
        line = "batches: " + ",\n         ".join(told)
    unknown = [stage.name for stage in pipeline.spec.stages if stage.name not in pipeline.durations]
    unmeasured = any(stage.lanes for stage in pipeline.spec.stages)
    if unknown and any(stage.batching.size is None for stage in pipeline.spec.stages):
        line += f"\n         no batch sizes planned: the durations of {', '.join(unknown)} are unknown"
        line += "" if unmeasured else " (run 'spillway plan profile')"
    return line
