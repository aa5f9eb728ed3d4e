"""Every module of the examples can be imported: demonstrations are seldom run, and what they import moves."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "examples").rglob("*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_examples_can_be_imported(name):
    importlib.import_module(name)
