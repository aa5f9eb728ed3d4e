"""Every evaluation can be found by its name."""

import pytest
from click.testing import CliRunner

from agents.cli.commands.bench import MOVED
from benchmarks.__main__ import BENCHMARKS, benchmarks


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_is_found_by_its_name(name):
    assert (
        f"benchmarks {name} [OPTIONS]"
        in CliRunner().invoke(benchmarks, [name, "--help"], prog_name="benchmarks").output
    )


def test_the_command_points_to_each():
    assert set(MOVED) == set(BENCHMARKS)
