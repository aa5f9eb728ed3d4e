"""Files of named arrays, as numpy.savez writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def read_npz(file: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays by name; no pickle is loaded. Raises OSError, or ValueError that says what is wrong with it."""
    try:
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise ValueError("it is a single array without a name; numpy.savez writes an .npz")  # noqa: TRY004, TRY301
        with found:
            arrays = dict(found)
    except (OSError, ValueError):
        raise
    except Exception as error:  # of zipfile, zlib or numpy, as the damage is
        raise ValueError(f"it is not a whole .npz: {error}") from error
    if odd := [name for name, each in arrays.items() if not isinstance(each, np.ndarray)]:
        raise ValueError(f"{odd[0]!r} in it is not an array")
    return arrays
