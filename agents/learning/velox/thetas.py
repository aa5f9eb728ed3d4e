"""The features of several generations of a model, each by its theta: the class's own, or a file of new parameters.

A file is called by the hash of what is in it, in a folder that all hosts see. It is written whole, then renamed, and
never changed; whoever reads it compares the hash. Beside the parameters it has the prior that the trainer has estimated
over them, from which users begin.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.learning.velox.model import Features
from spillway.agents.learning.velox.prior import Prior, plain
from spillway.agents.models.model_errors import words_of
from spillway.lineage.errors import ModelError
from spillway.lineage.values.npz import read_npz

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.agents.learning.velox.model import Parameters, VeloxModel

log = logging.getLogger(__name__)

_PRIOR: Final = "prior"
_KEPT: Final = 4  # files' features: two generations are served, and two may be on their way in or out
_AGAIN: Final = 1.0  # seconds after which a file that could not be loaded is tried again, where it is asked for
_THETA: Final = re.compile(r"\w{1,64}", re.ASCII)
_WARMED: Final = 10_000  # computed features of items that are made again


def theta_of(arrays: Mapping[str, Any]) -> str:
    """The name of a file's contents."""
    hashed = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        hashed.update(repr((name, array.dtype.str, array.shape)).encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()[:16]


def write_theta(folder: Path, parameters: Mapping[str, Any], prior: Prior) -> str:
    """Write a file, unless it is there; its theta. Raises ModelError for what cannot be kept."""
    arrays = {name: np.asarray(value) for name, value in parameters.items()}
    wrong = [name for name, array in arrays.items() if array.dtype.hasobject]
    if wrong or _PRIOR in arrays or not arrays:
        raise ModelError(f"retrain must return arrays by name, none called {_PRIOR!r}, not {wrong or sorted(arrays)}")
    arrays[_PRIOR] = np.vstack(prior)
    theta = theta_of(arrays)
    file, draft = _file(folder, theta), folder / f".{theta}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            with draft.open("wb") as stream:
                np.savez(stream, **arrays)  # type: ignore[arg-type]
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(file)
    except OSError as error:
        raise ModelError(f"{file} cannot be written: {error.strerror or error}") from error
    return theta


def read_theta(folder: Path, theta: str) -> tuple[Parameters, Prior]:
    """Parameters and prior. Raises ModelError where the file is not there, or not what it is called."""
    file = _file(folder, theta)
    try:
        arrays = read_npz(file)
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}; all hosts must see the same folder") from error
    if theta_of(arrays) != theta:
        raise ModelError(f"{file} is damaged: its contents do not match the hash in its name")
    stacked = arrays.pop(_PRIOR)
    dimension = stacked.shape[1]
    return arrays, Prior(stacked[0], *np.split(stacked[1:], [dimension]))


def _file(folder: Path, theta: str) -> Path:
    """Raises ModelError for what could lead out of the folder: it comes of a record."""
    if not _THETA.fullmatch(theta):
        raise ModelError(f"features {theta!r:.80} are not the class's own, and no file is called so")
    return folder / f"{theta}.npz"


class Thetas:
    """A model's features by theta. `get` is for one thread; another may load meanwhile, where `ready` has asked it."""

    def __init__(self, model: VeloxModel, features: Features | None = None, folder: str | None = None) -> None:
        """`features`: the class's own. Without a `folder` there are no others."""
        self._model = model
        self.own = Features(model) if features is None else features
        self.folder = None if folder is None else Path(folder)
        prior = model.prior or plain(model.dimension, model.regularization)
        self._loaded: dict[str, tuple[Features, Prior]] = {self.own.theta: (self.own, prior)}
        self._loading: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()  # of what is loaded, for who writes it

    def get(self, theta: str) -> Features:
        """Load them, if need be. Raises ModelError where there are none."""
        if theta not in self._loaded:
            self._keep(theta, self._load(theta))
        return self._loaded[theta][0]

    def prior(self, theta: str) -> Prior:
        self.get(theta)
        return self._loaded[theta][1]

    def ready(self, theta: str) -> bool:
        """Whether they are at hand; if not, they are from now on loaded beside what is served."""
        if theta in self._loaded:
            return True
        if theta not in self._loading or not self._loading[theta].is_alive():
            hot = next(reversed(self._loaded.values()))[0].recent(_WARMED)
            thread = threading.Thread(target=self._load_beside, args=(theta, hot), name=f"theta-{theta}", daemon=True)
            self._loading[theta] = thread
            thread.start()
        return False

    def wait(self) -> None:
        """Until nothing is loaded any more."""
        for thread in list(self._loading.values()):
            thread.join()

    def _load_beside(self, theta: str, hot: list[Any]) -> None:
        try:
            found = self._load(theta)
            found[0].known(hot)
            self._keep(theta, found)
        except BaseException as error:  # noqa: BLE001 - warming is the author's code
            log.warning("features %s cannot be loaded; trying again: %s", theta, words_of(error))
            time.sleep(_AGAIN)

    def _load(self, theta: str) -> tuple[Features, Prior]:
        if self.folder is None:
            raise ModelError(
                f"these weights were learned over the features {theta!r}, and the class has {self.own.theta!r}: give "
                "stage and learner the same arguments, including 'folder' if features are retrained"
            )
        parameters, prior = read_theta(self.folder, theta)
        try:
            model = self._model.renewed(parameters)
        except BaseException as error:
            raise ModelError(f"{type(self._model).__name__}.renewed raised {words_of(error)}") from error
        model.theta = theta
        return Features(model), prior

    def _keep(self, theta: str, found: tuple[Features, Prior]) -> None:
        with self._lock:
            loaded = {**self._loaded, theta: found}
            files = [each for each in loaded if each != self.own.theta]
            for each in files[:-_KEPT]:
                del loaded[each]
            self._loaded = loaded  # at once, for who reads meanwhile
