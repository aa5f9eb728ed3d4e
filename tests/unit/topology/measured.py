"""Profiles of a model that nobody has measured."""

from spillway.topology.profiles import Conditions, Measured, StageProfile

CONDITIONS = Conditions(
    model="m:M",
    source="sha256:12e4",
    arguments="sha256:0",
    weights=None,
    version="1e5",
    where="thread",
    device="cpu",
    device_name="A CPU: @ 2 GHz",
    torch=None,
    threads=1,
)


def profile(device="cpu", memory=1 << 20, load=None, **seconds: float) -> StageProfile:
    """A profile from `b1=0.01, b4=0.02`."""
    batches = {
        int(name[1:]): Measured(p50=value, p95=2 * value, memory=memory, runs=30) for name, value in seconds.items()
    }
    return StageProfile(measured=CONDITIONS.model_copy(update={"device": device}), load=load, batches=batches)
