"""Odd values, as Python expressions: one table for what models, members, selections and offline rows may answer.

Expressions travel where the values themselves could not: a thread and a worker process make the same value of each.
"""

import collections
import enum
import types

import numpy as np
from hypothesis import strategies as st

from spillway.agents.workers import frames


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
np.uint64(2**63+5) np.bool_(1) np.complex64(1j) np.complex128(1j) np.str_('a\\0') np.bytes_(b'a\\0')
np.timedelta64(3,'s') np.datetime64('2020-01-01') Colour.RED Number.ONE Ghost() object() {1} frozenset() range(3)
iter([]) ... int len types.MappingProxyType({'a':1}) collections.UserDict(a=1) collections.deque([1])
collections.OrderedDict(a=1) collections.defaultdict(int,a=1) collections.Counter('aab')
types.SimpleNamespace(a=1) raising(Panic()) raising(SilentError()) raising(KeyboardInterrupt()) raising(GeneratorExit())
raising(StopIteration()) raising(MemoryError()) raising(KeyError(Ghost())) HostileList([1])
HostileDict(a=1) HostileText('a') HostileNumber(1)
"""
_KEYS = "HostileText('h') 'a' 'b' '' 1 None (1,2) b'a' 1.5 np.str_('s') Colour.RED '\\ud800' Ghost()"
_EXPRESSIONS = [*_SCALARS.split(), *_ODD_ARRAYS.split()]
ODD = [eval(each, dict(NAMES)) for each in _EXPRESSIONS if not each.startswith("raising")]  # those that are values


def _map(each):
    return "{" + ", ".join(f"{name}: {value}" for name, value in each.items()) + "}"


VALUES = st.recursive(
    ARRAYS | st.sampled_from(_EXPRESSIONS),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]")
        | st.lists(inner, min_size=1, max_size=3).map(lambda each: f"({', '.join(each)},)")
        | st.dictionaries(st.sampled_from(_KEYS.split()), inner, max_size=3).map(_map)
    ),
    max_leaves=6,
)
