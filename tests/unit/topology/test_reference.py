"""The page on writing pipelines: it names every field, with its default, and its examples are valid."""

import re
from pathlib import Path

import pytest

from topology.load import parse
from topology.spec import PipelineSpec, StageSpec

PAGE = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)


def table(title: str) -> dict[str, str]:
    """Field -> default, of the table below a title."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, flags=re.MULTILINE))


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_is_valid(text):
    parse(text, "docs/pipelines.md")


@pytest.mark.parametrize(("title", "model"), [("The pipeline", PipelineSpec), ("A stage", StageSpec)])
def test_every_field_is_named_with_its_default(title, model):
    told = table(title)
    assert set(told) == set(model.model_fields)
    for name, field in model.model_fields.items():
        if field.is_required():
            assert told[name] == "required"
        elif isinstance(field.default, (int, float)) and field.default:
            assert told[name] == str(field.default)
