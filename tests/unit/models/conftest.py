import sys
from pathlib import Path

import pytest


@pytest.fixture
def samples(monkeypatch):
    """Make `sample_models` importable by name, as a user's module in the working directory is."""
    here = Path(__file__).parent
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(here))
    yield "sample_models"
    sys.modules.pop("sample_models", None)
