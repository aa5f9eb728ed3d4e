"""The pytest fixture that comes with the package."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spillway.agents.testing.pipeline import ServedPipeline


@pytest.fixture
def served() -> Iterator[Callable[..., ServedPipeline]]:
    """Serve pipelines as `spillway.testing.serve` does, until the test ends."""
    from spillway.testing import serve  # noqa: PLC0415 - pytest loads this file for every project

    with ExitStack() as stack:

        def begin(pipeline: Any, **options: Any) -> ServedPipeline:
            return stack.enter_context(serve(pipeline, **options))

        yield begin
