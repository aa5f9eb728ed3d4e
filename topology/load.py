"""Pipelines from files: YAML of our own form, or the paper's JSON; read, checked as a whole, and ready to be served."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lineage.errors import SpecError
from topology.reading.document import MAX_BYTES, Document
from topology.reading.fields import read_fields
from topology.reading.paper import is_paper, translate
from topology.routing import Graph
from topology.rules.problems import InvalidPipelineError, Problem
from topology.rules.structure import check_structure

if TYPE_CHECKING:
    from topology.rules.problems import Finding
    from topology.rules.problems import Path as FieldPath
    from topology.spec import PipelineSpec


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline that passed every check."""

    spec: PipelineSpec
    graph: Graph
    path: Path
    digest: str
    """Of what the file says, whatever its form and comments: equal for equal pipelines."""
    _document: Document = field(repr=False, compare=False)

    def finding(self, path: FieldPath, text: str) -> Finding:
        """What a later check found at `path`, as ("stages", 0, "model"), with its place in the file."""
        return self._document.finding(Problem(path, text))


def load(path: Path | str) -> Pipeline:
    """Read a pipeline file. Raises SpecError with all problems, each with file, line, column, path and fix."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(f"cannot read the pipeline file {file}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise SpecError(f"{file} is larger than {MAX_BYTES} bytes; is it a pipeline file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SpecError(f"{file}:{line}: this is no UTF-8 text; save the file as UTF-8") from error
    if file.suffix == ".json":
        text = text.replace("\t", " ")  # JSON may be indented with tabs; YAML may not, and JSON's texts hold none
    return parse(text, file)


def parse(text: str, path: Path | str = "pipeline.yaml") -> Pipeline:
    """Read a pipeline from the text of a file; `path` is what errors call it."""
    file = Path(path)
    document = Document(str(file), text)
    value, findings = document.value, document.findings
    if is_paper(value):
        in_file: list[Problem] = []
        value, document.origins = translate(value, in_file)
        findings += map(document.finding_in_file, in_file)
    problems: list[Problem] = []
    fields = read_fields(value, problems)
    check_structure(fields, problems)
    findings += map(document.finding, problems)
    if findings:
        raise InvalidPipelineError(document.file, findings)
    spec = fields.spec()
    digest = hashlib.sha256(spec.model_dump_json().encode()).hexdigest()
    return Pipeline(spec, Graph(spec), file, digest, document)
