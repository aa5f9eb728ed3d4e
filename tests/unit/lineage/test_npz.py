"""Archives of arrays that somebody brings: whole ones are read, all others are refused in words."""

import io
import zipfile

import numpy as np
import pytest

from spillway.lineage.values.npz import read_npz


def archive(name, data):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as entries:
        entries.writestr(name, data)
    return made.getvalue()


def saved(save, *values, **named):
    made = io.BytesIO()
    save(made, *values, **named)
    return made.getvalue()


WHOLE = saved(np.savez_compressed, x=np.random.default_rng(0).random((50, 4)))
DAMAGED = bytearray(WHOLE)
DAMAGED[200:260] = bytes(60)
HUGE = b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999,), }    \n"


def test_a_whole_one_is_read(tmp_path):
    (tmp_path / "a.npz").write_bytes(WHOLE)
    assert read_npz(tmp_path / "a.npz")["x"].shape == (50, 4)


@pytest.mark.parametrize(
    ("data", "why"),
    {
        "empty": (b"", "it is not a whole .npz: No data left"),
        "cut": (WHOLE[:-30], "it is not a whole .npz"),
        "damaged": (bytes(DAMAGED), "it is not a whole .npz"),
        "an array": (saved(np.save, np.arange(3)), "it is a single array"),
        "texts": (archive("x.txt", b"hello"), "'x.txt' in it is not an array"),
        "more than there is": (archive("x.npy", HUGE), "it is not a whole .npz"),
        "pickles": (saved(np.savez, x=np.array([{}])), "allow_pickle"),
    }.values(),
)
def test_any_other_is_refused_in_words(tmp_path, data, why):
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(ValueError, match=why):
        read_npz(tmp_path / "a.npz")
