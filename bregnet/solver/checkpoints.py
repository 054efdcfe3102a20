"""Long fits that survive an interruption: their state in a folder, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.files import UnreadableFileError, read_tensors, write_tensors
from bregnet.distributed import ALONE, Ranks

KIND, VERSION = "checkpoint", 3
LATEST = "latest.json"
STRIDE = 5  # iterations between looks at the clock, which ranks must agree on


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit keeps its state, and how often.

    Parameters
    ----------
    path : str or path-like
        A folder, made where there is none. Every process of a fit on several machines must see the same folder.
    seconds : float, default=300
        Time between two writes, at least.
    resume : bool, default=True
        Whether a fit goes on from what the folder holds. It then ends as if it had not been interrupted. A folder that
        holds another fit, with other data or parameters, is refused, unless that has ended. If False, a fit begins
        anew.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from bregnet import Checkpoint, ConvexRegressor
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = Checkpoint(folder, seconds=60)
    ...     model = ConvexRegressor(1e-3, n_pieces=20, checkpoint=kept, random_state=0).fit(x, x[:, 0] ** 2)
    >>> model.result_.converged
    True
    """

    path: str | os.PathLike
    seconds: float = 300.0
    resume: bool = True


def checked(value: Any) -> Checkpoint | None:
    """The parameter `checkpoint` of an estimator."""
    if value is None or isinstance(value, Checkpoint):
        found = value
    elif isinstance(value, str | os.PathLike):
        found = Checkpoint(value)
    else:
        raise TypeError(f"checkpoint must be None, a path or a Checkpoint, got {value!r}")
    if found is not None:
        check.folder("path of checkpoint", found.path)
        check.at_least_zero("seconds of checkpoint", found.seconds)
        check.boolean("resume of checkpoint", found.resume)
    return found


def digest(values: Iterable[Any], tensors: Iterable[Tensor | None]) -> str:
    """A number that tells one fit from another."""
    out = hashlib.sha256(json.dumps(list(values)).encode())
    for tensor in tensors:
        out.update(b"none" if tensor is None else f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        if tensor is not None:
            out.update(tensor.detach().cpu().contiguous().numpy().data)
    return out.hexdigest()


@dataclass(frozen=True)
class _Latest:
    """The note that names the latest checkpoint of a folder."""

    folder: str
    ranks: int
    finished: bool

    @classmethod
    def read(cls, path: Path) -> _Latest | None:
        """The note, or None where there is none."""
        try:
            found = json.loads(path.read_text())
            name, ranks, finished = found["folder"], int(found["ranks"]), bool(found["finished"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableFileError(f"{path} does not name a checkpoint: {error}") from error
        if not isinstance(name, str) or Path(name).name != name:
            raise UnreadableFileError(f"{path} does not name a checkpoint: {name!r}")
        return cls(name, ranks, finished)

    def write(self, path: Path) -> None:
        """Put it in place of the one before."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)))
        _flush(partial)
        os.replace(partial, path)


class CheckpointWriter:
    """Writes the state of one fit to its folder, and reads what is there.

    Parameters
    ----------
    checkpoint : Checkpoint
    ranks : Ranks
        Who shares the fit; each writes a file of its own.
    """

    def __init__(self, checkpoint: Checkpoint, ranks: Ranks = ALONE) -> None:
        self._folder, self._ranks = Path(checkpoint.path), ranks
        self._seconds, self._written = checkpoint.seconds, time.monotonic()
        self._about = self._identity = ""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._latest = _Latest.read(self._folder / LATEST) if checkpoint.resume else None
        self._found = None if self._latest is None else self._read(self._latest)
        if ranks.any(self._found is None) and self._found is not None:
            raise UnreadableFileError(f"checkpoint in {str(self._folder)!r} is not seen by every process")

    def cells(self, about: str) -> Tensor | None:
        """The cells of the fit to go on with, if there is one; it must be about the same."""
        self._about = about
        self._require("about", about)
        return None if self._found is None else self._found[1]["cells"].clone()

    def resumed(self, identity: str) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Values and tensors to go on from, which must be those of this very fit."""
        self._identity = identity
        self._require("identity", identity)
        found, self._found = self._found, None  # its tensors need not stay
        return found

    def _require(self, name: str, value: str) -> None:
        """Refuse what is of another fit, unless that has ended."""
        other = self._found is not None and self._found[0][name] != value
        if not self._ranks.any(other):
            return
        if self._latest is None or not self._latest.finished:
            raise ValueError(
                f"checkpoint must be for the same data and parameters, got {str(self._folder)!r} of another fit that"
                " has not ended; give another folder, or resume=False to begin anew"
            )
        self._found = None

    def due(self, iteration: int) -> bool:
        """Whether it is time to write."""
        if iteration % STRIDE:
            return False
        passed = time.monotonic() - self._written >= self._seconds
        return bool(self._ranks.agreed(float(passed))[0])

    def save(self, iteration: int, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Write a checkpoint; the one before stays until it is whole."""
        ranks = self._ranks
        token = int(ranks.agreed(float(secrets.randbits(48)))[0])  # never the name of one that is there
        name = f"iteration-{iteration:08d}-{token:012x}"
        failure = None
        try:
            (self._folder / name).mkdir(exist_ok=True)
            path = self._folder / name / _file(ranks)
            there = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            header = values | {"about": self._about, "identity": self._identity}
            write_tensors(path, KIND, VERSION, header, there)
            _flush(path)
        except OSError as error:
            failure = error
        if ranks.any(failure is not None):
            why = failure or "another rank failed"
            warnings.warn(f"the checkpoint in {str(self._folder)!r} could not be written: {why}", stacklevel=2)
            if ranks.rank == 0:
                shutil.rmtree(self._folder / name, ignore_errors=True)
        else:
            self._latest = _Latest(name, ranks.size, finished=False)
            self._point()
        ranks.any(False)  # nobody goes on before the others may find it
        self._written = time.monotonic()

    def finish(self) -> None:
        """Note that the fit has ended: another may take the folder."""
        if self._latest is not None:
            self._latest = replace(self._latest, finished=True)
            self._point()

    def _point(self) -> None:
        """Name the latest checkpoint, and remove those before."""
        if self._ranks.rank == 0 and self._latest is not None:
            self._latest.write(self._folder / LATEST)
            for other in self._folder.glob("iteration-*"):
                if other.name != self._latest.folder:
                    shutil.rmtree(other, ignore_errors=True)

    def _read(self, latest: _Latest) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Header and tensors of a checkpoint, which stay in its file until they are used."""
        if latest.ranks != self._ranks.size:
            if latest.finished:
                return None
            raise ValueError(
                f"checkpoint must be resumed by as many processes as wrote it, got {self._ranks.size} for the"
                f" {latest.ranks} of {str(self._folder)!r}"
            )
        file = self._folder / latest.folder / _file(self._ranks)
        if not file.is_file():
            raise UnreadableFileError(f"{file} is missing from the checkpoint")
        return read_tensors(file, KIND, VERSION, mmap=True)


def _file(ranks: Ranks) -> str:
    return f"rank-{ranks.rank}-of-{ranks.size}.safetensors"


def _flush(path: Path) -> None:
    """Have the system write a file to its disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
