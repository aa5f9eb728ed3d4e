"""The ports: what each stateful stage takes beyond its ordinary model, as functions (or a class) of a few lines."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

from examples.stateful import bandit, labelling, recommend, speech, stocks, vision

if TYPE_CHECKING:
    from collections.abc import Callable

PORTS: dict[str, Callable[..., Any]] = {
    "SA transcribe": speech.transcribe,
    "SA sentiment": speech.sentiment,
    "SA topic": speech.topic,
    "SP lstm": stocks.lstm,
    "SP autoregression": stocks.autoregression,
    "SP neighbours": stocks.neighbours,
    "AP, FD track": vision.track,
    "AP foresee": vision.foresee,
    "OL(V) large": labelling.large,
    "OL(M) small": labelling.small,
    "recommend": recommend.recommend,
    "bandit": bandit.Bandit,
}


def lines(port: Callable[..., Any]) -> int:
    """Lines of code of a port, its `def` or `class` with them; without blank lines, comments and docstrings."""
    source = textwrap.dedent(inspect.getsource(port))
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    numbered = enumerate(source.splitlines(), 1)
    return sum(number not in texts and bool(line.partition("#")[0].strip()) for number, line in numbered)
