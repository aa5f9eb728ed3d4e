import pytest

from .worlds import KafkaWorld, MemoryWorld


@pytest.fixture(params=["memory", "kafka"])
def world(request):
    """Each of the worlds; a broker is started for the second one alone."""
    if request.param == "memory":
        return MemoryWorld()
    return KafkaWorld(request.getfixturevalue("broker"))
