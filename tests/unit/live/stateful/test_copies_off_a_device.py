"""A reign's updates and copies in their order on a device: through `Primary` itself, with its threads run in line."""

from types import SimpleNamespace

import numpy as np
import pytest

from agents.live.stateful.primary import Primary
from agents.live.stateful.work import Updated
from checkpoint.capture import Capture
from lineage.marks import Version
from tests.unit.checkpoint.imagined_device import Device, on_device
from tests.unit.checkpoint.test_staging import read_back


class InLine:
    def submit(self, run, done):
        done(run())


class Core:
    def __init__(self):
        self.copies = {}

    def updated(self, now, seconds):
        pass

    def copied(self, now, version, captured):
        self.copies[version.n] = captured


def primary(device, state):
    class Work:
        def update(self, machine, batch):
            device.model.give(lambda: state["w"].fill(batch))
            return Updated((), 0.0)

    made = Primary.__new__(Primary)
    made._capture = Capture(finder=device.finder)
    made._machine = SimpleNamespace(state=state)
    made._means = SimpleNamespace(
        work=Work(), models=InLine(), copies=InLine(), clock=lambda: 0.0, metrics=SimpleNamespace(state=None)
    )
    made._touched, made._keyed, made._closed, made.core = None, False, False, Core()
    made.pump = lambda: None
    return made


@pytest.mark.parametrize("prompt", ["model", "side", "neither"])
def test_a_version_is_what_its_update_left_though_the_next_one_was_run_before_it_was_read(prompt):
    state = {"w": on_device(np.zeros(1_000))}
    reign = primary(Device(prompt), state)
    reign._update(1)
    reign._copy(Version(1, 1))
    for n in range(2, 6):
        reign._update(n)
        assert read_back(reign.core.copies[n - 1])[0]["w"].tolist() == [n - 1] * 1_000
        reign._copy(Version(1, n))
