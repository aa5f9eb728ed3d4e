"""The hash of a model's code: what changes it, what does not, and that nothing is imported for it."""

from __future__ import annotations

import sys

import pytest

from agents.profiling.sources import source_hash

MODELS = '''\
"""Models."""

import math
from layers import Layer, unused
import tools

FACTOR = 2


def scale(x):
    return FACTOR * x


class Base:
    def predict(self, batch):
        return [{"y": scale(query["x"])} for query in batch]


class Model(Base):
    """The model."""

    def __init__(self):
        self.layer = Layer()  # of the code beside it

    def help(self):
        return tools.help()


class Other:
    pass
'''
LAYERS = "class Layer:\n    width = 3\n\n\ndef unused():\n    return 1\n"
TOOLS = "def help():\n    return 1\n"


@pytest.fixture
def beside(tmp_path):
    """Write modules; give a function that changes one and says whether the hash of models:Model changed."""
    files = {"models.py": MODELS, "layers.py": LAYERS, "tools.py": TOOLS}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    first = source_hash("models:Model", [str(tmp_path)])
    assert first is not None

    def changes(name: str, before: str, after: str) -> bool:
        assert before in files[name]
        (tmp_path / name).write_text(files[name].replace(before, after))
        second = source_hash("models:Model", [str(tmp_path)])
        (tmp_path / name).write_text(files[name])
        assert source_hash("models:Model", [str(tmp_path)]) == first
        return second != first

    return changes


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("models.py", "self.layer = Layer()", "self.layer = Layer(1)"),
        ("models.py", "FACTOR * x", "FACTOR + x"),
        ("models.py", "FACTOR = 2", "FACTOR = 3"),
        ("models.py", 'query["x"]', 'query["z"]'),
        ("models.py", "import math\n", "import math\nmath.tau = 6\n"),
        ("layers.py", "width = 3", "width = 4"),
        ("tools.py", "return 1", "return 2"),
    ],
)
def test_what_the_model_uses_changes_it(beside, name, before, after):
    assert beside(name, before, after)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("models.py", '"""The model."""', '"""Another text."""'),
        ("models.py", "  # of the code beside it", ""),
        ("models.py", '"""Models."""', '"""All models."""'),
        ("models.py", "class Other:\n    pass", "class Other:\n    x = 1"),
        ("models.py", "FACTOR = 2\n", "\n\nFACTOR = 2\n"),
        ("layers.py", "return 1", "return 2"),
    ],
)
def test_what_it_does_not_use_does_not(beside, name, before, after):
    assert not beside(name, before, after)


def test_nothing_is_run_and_packages_need_no_init(tmp_path):
    (tmp_path / "rooms" / "deep").mkdir(parents=True)
    (tmp_path / "rooms" / "deep" / "models.py").write_text(
        "from . import parts\nraise SystemExit\nclass M(parts.P): pass\n"
    )
    (tmp_path / "rooms" / "deep" / "parts.py").write_text("class P: a = 1\n")
    first = source_hash("rooms.deep.models:M", [str(tmp_path)])
    assert first is not None
    assert "rooms" not in sys.modules
    (tmp_path / "rooms" / "deep" / "parts.py").write_text("class P: a = 2\n")
    assert source_hash("rooms.deep.models:M", [str(tmp_path)]) != first


def test_code_that_cannot_be_found_or_was_installed_has_none(tmp_path):
    assert source_hash("nowhere:M", [str(tmp_path)]) is None
    assert source_hash("numpy:ndarray", sys.path) is None


def test_modules_that_import_each_other(tmp_path):
    (tmp_path / "one.py").write_text("from two import B\nclass A(B): pass\n")
    (tmp_path / "two.py").write_text("import one\nclass B:\n    a = lambda self: one.A\n")
    assert source_hash("one:A", [str(tmp_path)]) is not None
