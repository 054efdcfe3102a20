"""Long fits that survive an interruption: their state in a folder, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bregnet import _validation as check
from bregnet._files import UnreadableFileError, read_tensors, write_tensors
from bregnet.distributed import ALONE, Ranks

KIND, VERSION = "checkpoint", 1
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
        holds another fit, with other data or parameters, is refused. If False, a fit begins anew.

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


class Keeper:
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
        self._identity = ""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._found = self._read() if checkpoint.resume else None

    @property
    def cells(self) -> Tensor | None:
        """The cells of the fit to go on with, if there is one."""
        return None if self._found is None else self._found[1]["cells"]

    def resumed(self, identity: str) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Values and tensors to go on from, which must be those of this very fit."""
        self._identity = identity
        found, self._found = self._found, None  # the tensors are large
        if self._ranks.any(found is not None and found[0]["identity"] != identity):
            raise ValueError(
                f"checkpoint must be for the same data and parameters, got {str(self._folder)!r} of another fit;"
                " give another folder, or resume=False to begin anew"
            )
        return found

    def due(self, iteration: int) -> bool:
        """Whether it is time to write."""
        if iteration % STRIDE:
            return False
        passed = time.monotonic() - self._written >= self._seconds
        return bool(self._ranks.agreed(float(passed))[0])

    def save(self, iteration: int, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Write a checkpoint; the one before stays until it is whole."""
        ranks, folder = self._ranks, self._folder / _name(iteration)
        failure = None
        try:
            folder.mkdir(exist_ok=True)
            path = folder / _file(ranks)
            partial = path.with_suffix(".partial")
            there = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            write_tensors(partial, KIND, VERSION, values | {"identity": self._identity}, there)
            _flush(partial)
            os.replace(partial, path)
        except (OSError, UnreadableFileError) as error:
            failure = error
        if ranks.any(failure is not None):
            if ranks.rank == 0:
                shutil.rmtree(folder, ignore_errors=True)
            why = failure or "another rank failed"
            warnings.warn(f"the checkpoint in {str(self._folder)!r} could not be written: {why}", stacklevel=2)
        elif ranks.rank == 0:
            _point_to(self._folder, iteration, ranks.size)
        ranks.any(False)  # nobody goes on before the others may find it
        self._written = time.monotonic()

    def _read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Header and tensors of the latest checkpoint, or None where there is none."""
        path = self._folder / LATEST
        found = None
        if path.exists():
            latest = _latest(path)
            if latest["ranks"] != self._ranks.size:
                raise ValueError(
                    f"checkpoint must be resumed by as many processes as wrote it, got {self._ranks.size} for the"
                    f" {latest['ranks']} of {str(self._folder)!r}"
                )
            file = self._folder / _name(latest["iteration"]) / _file(self._ranks)
            if not file.is_file():
                raise UnreadableFileError(f"{file} is missing from the checkpoint")
            found = read_tensors(file, KIND, VERSION, mmap=False)
        if self._ranks.any(found is None) and found is not None:
            raise UnreadableFileError(f"checkpoint in {str(self._folder)!r} is not seen by every process")
        return found


def _name(iteration: int) -> str:
    return f"iteration-{iteration:08d}"


def _file(ranks: Ranks) -> str:
    return f"rank-{ranks.rank}-of-{ranks.size}.safetensors"


def _latest(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_text())
        return {key: int(found[key]) for key in ("iteration", "ranks")}
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableFileError(f"{path} does not name a checkpoint: {error}") from error


def _point_to(folder: Path, iteration: int, n_ranks: int) -> None:
    """Make this the latest checkpoint, and remove what came before."""
    partial = folder / f"{LATEST}.partial"
    partial.write_text(json.dumps({"iteration": iteration, "ranks": n_ranks}))
    _flush(partial)
    os.replace(partial, folder / LATEST)
    for other in folder.glob("iteration-*"):
        if other.name != _name(iteration):
            shutil.rmtree(other, ignore_errors=True)


def _flush(path: Path) -> None:
    """Have the system write a file to its disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
