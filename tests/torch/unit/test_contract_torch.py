"""Torch's tensors by the same contract: what a model answers, and what it may do to what it is given."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from spillway.lineage import reasons  # noqa: E402
from spillway.lineage.values import codec  # noqa: E402
from spillway.lineage.values.plain import Bfloat16  # noqa: E402
from tests.unit.workers import answers  # noqa: E402
from tests.unit.workers.answers import Worker, in_thread, shown  # noqa: E402

DECODER = codec.Decoder()
NAMES = {"torch": torch, "np": np}
_DTYPES = "bool uint8 int8 int16 int32 int64 float16 float32 float64 bfloat16 complex64 complex128".split
TENSORS = [
    f"torch.ones(2, 3, dtype=torch.{name}){view}" for name in _DTYPES() for view in ("", ".T", "[:, ::2]", "[0, 0]")
]
TENSORS += [
    "torch.ones(2, requires_grad=True)", "torch.ones(2, requires_grad=True) * 2", "torch.nn.Parameter(torch.ones(2))",
    "torch.ones(2, dtype=torch.complex64).conj()", "torch.ones(2, dtype=torch.complex64).conj().imag",
    "torch.ones(3).expand(2, 3)", "torch.ones(0, 3)", "torch.tensor(1.5)", "torch.tensor([float('nan'), float('inf')])",
    "[torch.ones(1), {'a': (torch.ones(2, dtype=torch.bfloat16),)}]",
]  # fmt: skip
ODD = [
    "torch.ones(2, dtype=torch.complex32)", "torch.ones(2).to_sparse()", "torch.ones(2, device='meta')",
    "torch.float32",
    "torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)", "torch.nn.Linear(1, 1)", "torch.Generator()",
    "{torch.ones(1): 1}", "torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])", "torch.device('cpu')",
]  # fmt: skip


@pytest.fixture(scope="module")
def worker():
    made = Worker(answers.model(NAMES))
    yield made
    made.close()


@pytest.mark.parametrize("expression", TENSORS + ODD)
def test_a_tensor_is_the_same_to_a_client_from_a_thread_and_a_process(worker, expression):
    inputs = [{"of": each} for each in ("7", expression, "8")]
    thread = [shown(result, DECODER) for result in in_thread(answers.model(NAMES), inputs)]
    process = [shown(result, DECODER) for result in worker.run(inputs)]
    assert thread == process
    assert (thread[0], thread[2]) == ({"y": ("int", "7")}, {"y": ("int", "8")})
    assert (thread[1] == reasons.BAD_RESULT) == (expression in ODD)


class InPlace:
    """Changes its tensors in place, and raises at the first query of its batch that says so."""

    def predict(self, batch):
        for query in batch:
            query["t"].mul_(2)
            torch.from_numpy(query["x"]).mul_(2)
        if any(query["raises"] for query in batch):
            raise ValueError
        return [{"t": query["t"].float().numpy(), "x": query["x"]} for query in batch]


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_what_is_changed_in_place_is_seen_by_nobody_else():
    inputs = [
        {"t": Bfloat16(np.array([16256 + n], np.uint16)).torch(), "x": np.ones(2), "raises": n == 1} for n in range(3)
    ]
    worker = Worker(InPlace())
    for results in (in_thread(InPlace(), inputs), worker.run(inputs), in_thread(InPlace(), inputs)):
        told = [shown(result, DECODER) for result in results]
        assert told[1] == reasons.MODEL_RAISED
        for n in (0, 2):
            expected = float(Bfloat16(np.array([16256 + n], np.uint16)).float32()[0]) * 2
            assert np.frombuffer(told[n]["t"][2], np.float32)[0] == expected
            assert np.frombuffer(told[n]["x"][2], np.float64).tolist() == [2.0, 2.0]
    worker.close()
