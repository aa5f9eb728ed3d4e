"""The way off a GPU needs one: tested where there is one, and not needed where there is none."""

import subprocess
import sys

import pytest
import torch


def test_it_is_imported_by_nobody_who_has_no_gpu():
    script = "import sys, checkpoint.chunks, checkpoint.capture; assert 'checkpoint.cuda' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_state_is_copied_while_the_model_computes_on():
    from checkpoint.cuda import Transfers, device_of

    device = torch.device("cuda", 0)
    weights = torch.zeros(1 << 24, device=device)
    assert device_of({"w": weights}) == device
    transfers = Transfers(device)
    for n in range(5):
        weights.fill_(n)
        transfer = transfers.start({"w": weights, "host": torch.ones(2)})
        torch.mm(torch.ones(2_000, 2_000, device=device), torch.ones(2_000, 2_000, device=device))
        transfer.hold_back()
        weights.add_(100)  # the next update
        transfer.wait()
        assert transfer.ready()
        assert transfer.state["w"].is_pinned()
        assert transfer.state["w"].unique().tolist() == [n]
        assert transfer.state["host"].tolist() == [1, 1]
