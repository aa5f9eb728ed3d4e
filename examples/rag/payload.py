"""Questions to send: `spillway replay ... --payload examples.rag.payload:question`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

QUESTIONS = (
    "How do I join paths?",
    "How can I copy a file?",
    "What is the greatest common divisor?",
    "How do I shuffle a list?",
    "How do I make a temporary directory?",
    "How do I compress data?",
)


def question(index: int, _rng: np.random.Generator | None) -> dict[str, Any]:
    """Inputs of the query with this index."""
    return {"question": QUESTIONS[index % len(QUESTIONS)]}
