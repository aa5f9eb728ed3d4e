"""Values that a model may answer with, as Python expressions, and the two ways of running a model that answers so.

Expressions travel where the values themselves could not: a thread and a worker process make the same value of each.
"""

import collections
import enum
import socket
import threading
import types
from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as st

from spillway.agents.core.request import Delivery, Request
from spillway.agents.live.stage.batch_work import BatchWork, UserFunctions
from spillway.agents.live.stage.emission import Carried
from spillway.agents.models import contract
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.raised import words_of
from spillway.agents.workers import frames, shim
from spillway.lineage.limits import Limits
from spillway.lineage.message import Query

RECORD = SimpleNamespace(key=b"k", topic="in")


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Ghost:
    """Raises whatever is asked of it."""

    def __repr__(self):
        raise ValueError("no text")

    __str__ = __repr__


class HostileList(list):
    def __iter__(self):
        raise Panic

    __len__ = __iter__


class HostileDict(dict):
    items = keys = __iter__ = HostileList.__iter__


class HostileText(str):
    __slots__ = ()
    encode = isascii = __str__ = HostileList.__iter__


class HostileNumber(int):
    __int__ = __index__ = HostileList.__iter__


class Panic(BaseException):
    """As a Rust panic comes through PyO3."""


class SilentError(Exception):
    def __str__(self):
        raise Panic

    __repr__ = __str__


def raising(error):
    raise error


NAMES = {"np": np, "collections": collections, "types": types, "Colour": Colour, "Number": Number, "Ghost": Ghost}
NAMES |= {each.__name__: each for each in (HostileList, HostileDict, HostileText, HostileNumber)}
NAMES |= {"Panic": Panic, "SilentError": SilentError, "raising": raising, "frames": frames}

_DTYPES = [name for name in frames.DTYPES if name != "bfloat16"] + [
    *(">f4", ">i8", "longdouble", "clongdouble", "U3", "S3", "object", "datetime64[s]", "V4")
]
ARRAYS = st.sampled_from(
    [
        f"np.zeros({shape}).astype({dtype!r}){view}"
        for dtype in _DTYPES
        for shape in ("()", "(3,)", "(0,2)", "(2,3)")
        for view in ("", "[::-1]" * (shape != "()"), ".T")
    ]
)
# One expression between two spaces.
_ODD_ARRAYS = """
np.ma.masked_array([1.0,2.0],[0,1]) np.ma.masked np.array([np.nan,np.inf,-np.inf]) np.rec.array([(1,2.0)])
np.array([2**63+1],np.uint64) np.array([None,'a']) np.broadcast_to(1.5,(4,)) np.ndarray((2,),buffer=bytearray(16))
frames.plain.Bfloat16(np.array([16256,49152],np.uint16)) np.zeros((2,3)).view(np.recarray)
np.zeros((0,10**12)) np.zeros((1,)*17) np.zeros((1,)*32) np.zeros(70000) [np.zeros(1)]*300
"""
_SCALARS = """
None True 0 -2**63 2**63-1 2**63 -2**63-1 10**40 1.5 float('nan') float('-inf') 1j '' 'käte' '\\ud800' 'a'*70000 b''
b'\\xff' bytearray(b'a') memoryview(b'abc') np.float32(1) np.float16(1) np.float64(1) np.longdouble(1) np.int8(-1)
np.uint64(2**63+5) np.bool_(1) np.complex64(1j) np.complex128(1j) np.str_('a') np.bytes_(b'a') np.timedelta64(3,'s')
np.datetime64('2020-01-01') Colour.RED Number.ONE Ghost() object() {1} frozenset() range(3) iter([]) ... int len
types.MappingProxyType({'a':1}) collections.UserDict(a=1) collections.deque([1]) collections.OrderedDict(a=1)
collections.defaultdict(int,a=1) collections.Counter('aab') types.SimpleNamespace(a=1) raising(Panic())
raising(SilentError()) raising(KeyboardInterrupt()) raising(GeneratorExit()) raising(StopIteration())
raising(MemoryError()) raising(KeyError(Ghost())) HostileList([1]) HostileDict(a=1) HostileText('a') HostileNumber(1)
"""
_KEYS = "HostileText('h') 'a' 'b' '' 1 None (1,2) b'a' 1.5 np.str_('s') Colour.RED '\\ud800' Ghost()"
SCALARS, KEYS = st.sampled_from([*_SCALARS.split(), *_ODD_ARRAYS.split()]), st.sampled_from(_KEYS.split())


def _map(each):
    return "{" + ", ".join(f"{name}: {value}" for name, value in each.items()) + "}"


VALUES = st.recursive(
    ARRAYS | SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]")
        | st.lists(inner, min_size=1, max_size=3).map(lambda each: f"({', '.join(each)},)")
        | st.dictionaries(KEYS, inner, max_size=3).map(_map)
    ),
    max_leaves=6,
)


def model(names=NAMES):
    """Return a model that evaluates the expression in each query."""

    def predict(batch):
        return [{"y": eval(query["of"], dict(names))} for query in batch]

    return SimpleNamespace(predict=predict)


def request(number, inputs):
    part = Delivery(f"r{number}", 0, number, 1.0, 9.0, "", None, payload=Carried(RECORD, None, Query(inputs)))
    return Request(f"r{number}", 0, 1.0, 9.0, 2.0, (part,), {}, 2.5, 3.0)


def work(served, functions=None):
    spec = SimpleNamespace(coding=None, name="s", join=None, split=None, choose=None)
    return BatchWork(
        "s", [served], functions or UserFunctions(spec, ()), joins=False, model_name="m", version="1", signature=None,
        limits=Limits(),
    )  # fmt: skip


def in_thread(served, inputs, functions=None):
    """Return the results of a batch that a thread runs."""
    batch = SimpleNamespace(requests=[request(n, each) for n, each in enumerate(inputs)])
    return work(served, functions).run(0, batch).results


class Worker:
    """A worker that runs `shim.work` in a thread: its stream, its frames and its loop, without the process."""

    def __init__(self, served):
        ours, theirs = socket.socketpair()
        self._stream = shim.Stream(ours)
        self._sockets = (ours, theirs)
        self.ended = threading.Event()
        args = (shim.Stream(theirs), served, {}, Inputs, words_of, self.ended.set)
        self._thread = threading.Thread(target=shim.work, args=args, daemon=True)
        self._thread.start()
        self._frames = []
        assert self.next()["kind"] == frames.HELLO

    def next(self):
        while not self._frames:
            self._frames += self._stream.receive()
        return self._frames.pop(0)

    def run(self, inputs, functions=None, *, singly=False):
        """Return the results of a batch, as the front makes them of the worker's answers."""
        batch = SimpleNamespace(requests=[request(n, each) for n, each in enumerate(inputs)])
        done = work(None, functions)
        prepared = done.prepare(batch)
        queries = [{"inputs": dict(i), "parameters": {}, "id": i.request_id, "key": i.key} for i in prepared.inputs]
        self._stream.send({"kind": frames.BATCH, "id": [b"f", 1], "queries": queries, "singly": singly})
        answers = []
        while len(answers) < len(inputs):
            answers += self.next()["results"]
        return done.finish(prepared, dict(enumerate(answers)), 0.0).results

    def close(self):
        self._stream.send({"kind": frames.BYE})
        self._thread.join(10)
        for each in self._sockets:
            each.close()


def shown(result, decoder):
    """Return what a client reads of a result: the reason, or the outputs as text, exact in types and bits."""
    reason = getattr(result, "reason", None)
    return reason if reason is not None else exact(decoder.outcome(result.payloads[None]).outputs)


def exact(value):
    if isinstance(value, dict):
        return {name: exact(each) for name, each in value.items()}
    if isinstance(value, list):
        return [exact(each) for each in value]
    if frames.plain.is_tensor(value):
        name, array = frames.plain.tensor(value)
        return name, array.shape, array.tobytes()
    return type(value).__name__, repr(value)


__all__ = ["VALUES", "Worker", "contract", "exact", "in_thread", "model", "request", "shown", "work"]
