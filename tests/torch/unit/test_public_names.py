"""The public names that load torch."""

import pytest

import spillway


@pytest.mark.parametrize("name", [name for name in spillway.__all__ if "torch" in spillway._WHERE[name]])
def test_every_name_is_there(name):
    assert getattr(spillway, name).__name__ == name
