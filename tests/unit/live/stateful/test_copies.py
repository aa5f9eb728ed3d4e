"""A backup's copy of its shard's state: what it has applied is told at once."""

from types import SimpleNamespace

import numpy as np
import pytest

from spillway.agents.live.stateful.copies import Copies
from spillway.agents.live.stateful.work import Updated
from spillway.agents.live.states.standby import Applied
from spillway.agents.models.placement import UnfitStateError
from spillway.agents.run.primary import Primary
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.logs import Logs
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.replication import Entry, InputPlace
from tests.unit.checkpoint.imagined_device import Device, on_device
from tests.unit.checkpoint.test_staging import read_back
from tests.unit.live.stateful.shard_doubles import InLine

PLACE = ("s", 0)
CLOCK = SimpleNamespace(now=lambda: 0.0, monotonic=lambda: 0.0)


class Reader:
    """In place of a thread with a consumer: the test says what it has applied."""

    def __init__(self, applied):
        self.applied = applied

    def begin(self):
        pass

    def durable(self, _version):
        """Nothing: the test applies."""


class Told:
    """A copy, what it has told of, and its reader."""

    def __init__(self, *, keyed=False):
        self.changes, self.covered, readers = [], [], []

        def reader(applied, _missing):
            readers.append(Reader(applied))
            return readers[-1]

        self.copies = Copies(
            PLACE,
            Logs([PLACE]),
            reader=reader,
            read_to_ends=None,
            machine=None,
            covers=self.covered.extend,
            changed=lambda: self.changes.append(self.copies.applied),
            keyed=keyed,
        )
        (self.reader,) = readers


def test_an_idle_backup_says_what_it_has_applied():
    told = Told()
    assert told.copies.applied == INITIAL
    place = InputPlace(0, 7)
    told.copies.durable(Version(1, 5))
    told.reader.applied(Applied(Version(1, 5), 10, 0.1, (place,)))
    assert told.changes == [Version(1, 5)]
    assert told.covered == [place]


def test_what_a_base_covers_is_needed_until_the_base_is_durable():
    told = Told()
    told.copies.durable(Version(1, 5))
    told.reader.applied(Applied(Version(1, 8), 10, 0.1, (InputPlace(0, 9),)))  # a base: complete, and no more
    assert told.changes == [Version(1, 8)]
    assert told.covered == []


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_state_of_the_other_kind_is_refused(keyed):
    entries = (Entry("w", "value", "", ()),)  # a keyed state may have some beside its keys'
    for kind, those in ((keyed, entries), (keyed, ()), (not keyed, entries)):
        told = Told(keyed=keyed)
        told.reader.applied(Applied(Version(1, 5), 10, 0.1, (), those, keyed=kind))
        if kind == keyed:
            await told.copies.begin(Version(1, 5))
        else:
            with pytest.raises(UnfitStateError, match=r"stage 's': the state in the log is .* start with an empty"):
                await told.copies.begin(Version(1, 5))


# A reign's updates and copies in their order on a device: through `Primary` itself, with its threads run in line.


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
        work=Work(), models=InLine(), copies=InLine(), clock=CLOCK, metrics=SimpleNamespace(state=None)
    )
    made._touched, made._keyed, made._closed, made.core = None, False, False, Core()
    made.pump, made._publishing = lambda: None, None
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
