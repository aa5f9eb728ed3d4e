"""Capture off a GPU, where there is one; and none of it is loaded where there is none.

What waits for what is tested on an imagined device (test_staging.py); here torch's streams, events and pinned memory
are put to the same questions. The copies are held up by work on the GPU that takes far longer than they do.
"""

import subprocess
import sys
import threading

import pytest
import torch

from spillway.checkpoint.capture import Capture
from spillway.checkpoint.pages import Pages
from tests.unit.checkpoint.states import same
from tests.unit.checkpoint.test_staging import read_back

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device (torch.cuda.is_available() is False): run where there is one"
)
WORDS = 1 << 22  # 16 MB


def test_it_is_imported_by_nobody_who_has_no_gpu():
    script = (
        "import sys, numpy, spillway.checkpoint.chunks; from spillway.checkpoint.capture import Capture\n"
        "Capture().take({'w': numpy.zeros(3)}).blocks\n"
        "import spillway.agents.models.placement, spillway.agents.live.stateful.build_reign\n"
        "assert 'spillway.checkpoint.cuda' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.fixture
def device():
    return torch.device("cuda", 0)


@pytest.fixture
def busy(device):
    """Keep the model's stream busy for a while: some hundreds of milliseconds at 1 to 2 GHz."""
    torch.cuda.synchronize(device)
    return lambda: torch.cuda._sleep(500_000_000)


def on_host(state):
    torch.cuda.synchronize()
    tensors = {name: leaf for name, leaf in state.items() if isinstance(leaf, torch.Tensor)}
    return state | {name: leaf.detach().resolve_conj().cpu().clone() for name, leaf in tensors.items()}


def varied(device):
    """Dtypes, shapes and layouts in memory; tensors on the host and small values among them."""
    random = torch.Generator().manual_seed(0)
    base = torch.rand(300, 500, generator=random)
    return {
        "float32": base.to(device),
        "bfloat16": base.bfloat16().to(device),
        "float16": base.half().to(device),
        "int64": torch.arange(9, device=device),
        "bool": torch.tensor([True, False], device=device),
        "transposed": base.to(device).t(),
        "strided": base.to(device)[::3, ::7],
        "conjugated": torch.complex(base, base).to(device).conj(),
        "parameter": torch.nn.Parameter(base.to(device)),
        "nothing": torch.zeros(0, 3, device=device),
        "scalar": torch.tensor(3.5, device=device),
        "step": torch.tensor(7.0),
        "small": [1, "two"],
    }


@needs_gpu
def test_what_is_captured_is_the_state_bit_for_bit(device):
    state = varied(device)
    capture = Capture()
    for _ in range(3):
        restored, _ = read_back(capture.take(state))
        assert same(restored, on_host(state))
        with capture.updating(), torch.no_grad():
            for name in ("float32", "bfloat16", "parameter", "scalar", "step"):
                state[name].add_(1)


@needs_gpu
def test_a_copy_runs_while_the_model_computes_on_and_the_next_update_waits_for_it_alone(device, busy):
    weights = torch.zeros(WORDS, device=device)
    capture = Capture(guard=threading.Lock())
    capture.take({"w": weights}).release()
    for n in range(1, 6):
        with capture.updating():
            weights.fill_(n)
        computed = torch.cuda.Event()
        busy()  # the next compute
        computed.record()
        captured = capture.take({"w": weights})
        with capture.updating():
            weights.add_(100)  # the next update
        assert not computed.query(), "take or updating has waited for the compute"
        assert captured.staged is not None, "nobody has read it yet"
        captured.blocks  # noqa: B018 - waits for the copy
        assert not computed.query(), "the copy has waited for the compute"
        restored, _ = read_back(captured)
        assert restored["w"].unique().tolist() == [n]
        captured.release()
        torch.cuda.synchronize(device)


@needs_gpu
def test_a_copy_waits_for_its_own_update(device, busy):
    weights = torch.zeros(WORDS, device=device)
    capture = Capture()
    for n in range(1, 4):
        with capture.updating():
            busy()  # an update that takes its time; of the first copy, without a mark, likewise
            weights.fill_(n)
        restored, _ = read_back(capture.take({"w": weights}))
        assert restored["w"].unique().tolist() == [n]


@needs_gpu
def test_an_update_does_not_overtake_a_copy_that_is_held_up(device):
    """The side stream is kept busy in front of the copy; the update is given before the copy has begun."""
    from spillway.checkpoint.cuda import device_of

    weights = torch.zeros(WORDS, device=device)
    capture = Capture()
    capture.take({"w": weights}).release()
    side = device_of(weights)._side
    for n in range(1, 4):
        with capture.updating():
            weights.fill_(n)
        with torch.cuda.stream(side):
            torch.cuda._sleep(500_000_000)
        captured = capture.take({"w": weights})
        with capture.updating():
            weights.fill_(-1)
        restored, _ = read_back(captured)
        assert restored["w"].unique().tolist() == [n]


@needs_gpu
def test_tensors_that_the_model_lets_go_are_copied_before_their_memory_is_used_again(device):
    from spillway.checkpoint.cuda import device_of

    state = {"w": torch.zeros(WORDS, device=device)}
    capture = Capture()
    capture.take(state).release()
    for n in range(1, 4):
        with capture.updating():
            state["w"] = torch.full((WORDS,), float(n), device=device)
        with torch.cuda.stream(device_of(state["w"])._side):
            torch.cuda._sleep(500_000_000)
        captured = capture.take(state)
        del state["w"]
        other = torch.full((WORDS,), -1.0, device=device)  # outside `updating`: only the allocator keeps them apart
        restored, _ = read_back(captured)
        assert restored["w"].unique().tolist() == [n]
        del other


@needs_gpu
def test_what_did_not_change_is_neither_kept_nor_hashed_again_and_memory_is_pinned_and_used_again(device):
    state = {"w": torch.zeros(WORDS, device=device), "b": torch.ones(WORDS, device=device)}
    capture = Capture()
    first = capture.take(state)
    assert all(buffer.is_pinned() for _, buffer in first.staged.staged.buffers)
    memory = {buffer.data_ptr() for _, buffer in first.staged.staged.buffers}
    assert first.changed == 8 * WORDS
    with capture.updating():
        state["w"][-1] = 1
    second = capture.take(state)
    assert {buffer.data_ptr() for _, buffer in second.staged.staged.buffers} == memory
    shared = [one is other for one, other in zip(first.blocks, second.blocks, strict=True)]
    assert shared.count(False) == 1
    assert second.changed == len(second.blocks[shared.index(False)].data)


@needs_gpu
def test_the_touched_keys_of_a_keyed_state_are_captured(device):
    keyed = {f"user-{n}": {"h": torch.full((64,), float(n), device=device), "n": n} for n in range(50)}
    capture = Capture(pages=Pages(4_096, page_bytes=512))
    capture.take({}, keyed).release()  # that nobody has read
    with capture.updating():
        keyed["user-7"] = {"h": torch.full((64,), -1.0, device=device), "n": -1}
    captured = capture.take({}, keyed, ["user-7"])
    with capture.updating():
        keyed["user-7"]["h"].fill_(-2)
    _, restored = read_back(captured)
    assert restored["user-7"]["h"].unique().tolist() == [-1]
    assert all(same(restored[key], {"h": keyed[key]["h"].cpu(), "n": n}) for n, key in enumerate(keyed) if n != 7)


@needs_gpu
def test_a_state_from_the_log_goes_back_to_where_initialize_has_it(device):
    from spillway.agents.models.placement import Placement

    class Model:
        def initialize(self):
            return {"w": torch.zeros(1_000, device=device), "steps": torch.zeros(3), "n": 1}

    state = Model().initialize()
    state["w"].normal_()
    state["moments"], state["step"] = torch.ones(1_000, device=device), torch.tensor(3.0)
    restored, _ = read_back(Capture().take(state))
    assert not any(leaf.is_cuda for leaf in restored.values() if isinstance(leaf, torch.Tensor))
    placement = Placement()
    placement.learn(Model())
    placed = placement.put(restored, keyed=False)
    assert {name: str(leaf.device) for name, leaf in placed.items() if name != "n"} == {
        "w": "cuda:0", "steps": "cpu", "moments": "cpu", "step": "cpu"
    }  # fmt: skip
    assert torch.equal(placed["w"], state["w"])
    fresh = Model().initialize()
    with torch.no_grad():
        fresh["w"].copy_(restored["w"])
    assert fresh["w"].is_cuda
    assert torch.equal(fresh["w"], state["w"])
    users = placement.put({"a": {"w": restored["w"]}}, keyed=True)
    assert users["a"]["w"].is_cuda


@needs_gpu
def test_a_learner_goes_on_from_its_captured_state_as_if_nothing_had_been(device):
    from spillway.agents.models.placement import Placement
    from spillway.agents.models.stateful import Machine
    from spillway.agents.models.torch_learner import Learner

    def learner():
        return Learner(
            lambda: torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 1)),
            lambda parameters: torch.optim.Adam(parameters, fused=True),
            inputs=lambda batch: torch.stack([query["x"] for query in batch]),
            loss=lambda said, batch: (said - torch.stack([query["y"] for query in batch]).to(device)).square().mean(),
            answers=lambda said, batch: [{"y": float(each)} for each in said[:, 0]],
            device="cuda",
        )

    random = torch.Generator().manual_seed(1)
    batches = [
        [{"x": torch.rand(8, generator=random), "y": torch.rand(1, generator=random)} for _ in range(16)]
        for _ in range(6)
    ]
    machine, capture, captured = Machine("a", learner()), Capture(guard=threading.Lock()), None
    for n, batch in enumerate(batches):
        machine.compute(batch)
        with capture.updating():
            machine.update()
        if n == 3:
            captured = capture.take(machine.state)
    restored, _ = read_back(captured)
    model, placement = learner(), Placement()
    placement.learn(model)
    again = Machine("a", model, placement.put(restored, keyed=False), 4)
    for batch in batches[4:]:
        again.compute(batch)
        again.update()
    for name, leaf in machine.state.items():
        if isinstance(leaf, torch.Tensor):
            assert again.state[name].device == leaf.device
            torch.testing.assert_close(again.state[name], leaf)


@needs_gpu
def test_streams_goes_on_with_keys_from_the_log_beside_its_own(device):
    from spillway.agents.models.torch_streams import Streams

    streams = Streams(
        lambda: torch.nn.LSTM(4, 8),
        lambda: {"h": torch.zeros(1, 1, 8), "c": torch.zeros(1, 1, 8)},
        key=lambda query: query["user"],
        inputs=lambda batch: torch.stack([query["x"] for query in batch])[None],
        answers=lambda said, batch: [{"y": each.tolist()} for each in said[0]],
        device="cuda",
    )
    mine, read = streams.initialize(), {name: leaf.cpu() for name, leaf in streams.initialize().items()}
    batch = [{"user": user, "x": torch.ones(4)} for user in ("mine", "read")]
    one, other = streams.compute({"mine": mine, "read": read}, batch)
    assert one == other


def test_without_a_gpu_the_bench_says_that_it_was_not_measured():
    from benchmarks.state_copy import cuda_table

    assert cuda_table(None).text() == "no CUDA device: not measured"
