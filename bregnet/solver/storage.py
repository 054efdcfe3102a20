"""Where large arrays live: in memory, or in files of a scratch folder that the system reads and writes as needed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet import _validation as check
from bregnet._arrays import to_numpy


class Storage:
    """Arrays in memory."""

    state_in_memory = True

    def state(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Zeros for the solver's state."""
        return torch.zeros(shape, dtype=dtype, device=device)

    def points(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Zeros for coordinates of points."""
        return torch.zeros(shape, dtype=dtype, device=device)


class Scratch(Storage):
    """Points, and the state too unless it is to stay in memory, in files of a folder.

    A file has no name any more once it is open, so that nothing is left of it however the process ends, and its space
    is reserved at once, so that a full disk is an error here and not a fault later.

    Parameters
    ----------
    folder : Path
    state_in_memory : bool
    """

    def __init__(self, folder: Path, *, state_in_memory: bool = False) -> None:
        if not folder.is_dir():
            raise FileNotFoundError(f"scratch must be a folder that exists, got {str(folder)!r}")
        self.folder, self.state_in_memory = folder, state_in_memory

    def state(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Zeros for the solver's state."""
        return super().state(shape, dtype, device) if self.state_in_memory else self.points(shape, dtype, device)

    def points(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Zeros whose memory is a file."""
        if device.type != "cpu":
            return super().points(shape, dtype, device)
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        n_bytes = int(np.prod(shape)) * kind.itemsize
        if n_bytes == 0:
            return torch.zeros(shape, dtype=dtype)
        with tempfile.TemporaryFile(dir=self.folder) as file:
            try:
                _reserve(file.fileno(), n_bytes)
            except OSError as error:
                text = f"scratch must have room for {n_bytes:,} bytes, got {error.strerror} in {str(self.folder)!r}"
                raise OSError(error.errno, text) from error
            return torch.from_numpy(np.memmap(file, dtype=kind, mode="r+", shape=shape))


MEMORY = Storage()


def _reserve(descriptor: int, n_bytes: int) -> None:
    """Make a file this long, with all of its space if the system can do that."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, n_bytes)
    else:
        os.truncate(descriptor, n_bytes)


def collected(blocks: Iterable[tuple[Any, Any]], folder: Any) -> tuple[np.ndarray, np.ndarray, tuple[str, ...] | None]:
    """Rows of all blocks in a file of a folder, as a memory-mapped array, their targets in memory, and column names.

    None is the folder of the system's temporary files.
    """
    where = None if folder is None else check.folder("scratch", folder)
    if where is not None and not where.is_dir():
        raise FileNotFoundError(f"scratch must be a folder that exists, got {str(where)!r}")
    if not isinstance(blocks, Iterable):
        raise TypeError(f"blocks must be an iterable of pairs (X, y), got {blocks!r}")
    targets: list[np.ndarray] = []
    first: _Block | None = None
    n_rows = 0
    with tempfile.TemporaryFile(dir=where) as file:
        for number, given in enumerate(blocks):
            block = _Block.checked(number, given, first)
            if len(block.rows) == 0:
                continue
            first = first or block
            n_rows += len(block.rows)
            targets.append(check.same_kind(f"y of block {number}", block.targets, first.targets))
            file.write(np.ascontiguousarray(block.rows).data)
        if first is None:
            raise ValueError("blocks must hold at least one row, got none")
        file.flush()
        rows = np.memmap(file, dtype=np.float64, mode="r", shape=(n_rows, first.rows.shape[1]))
    return rows, np.concatenate(targets), first.names


@dataclass(frozen=True)
class _Block:
    """Rows, their targets, and the names of their columns, if any."""

    rows: np.ndarray
    targets: np.ndarray
    names: tuple[str, ...] | None

    @classmethod
    def checked(cls, number: int, given: object, first: _Block | None) -> _Block:
        """A block that goes with the first."""
        if not (isinstance(given, tuple | list) and len(given) == 2):
            raise TypeError(f"blocks must yield pairs (X, y), got {type(given).__name__} as block {number}")
        X, y = given
        names = tuple(map(str, X.columns)) if hasattr(X, "columns") else None
        try:
            rows = np.asarray(to_numpy(X, "blocks"), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"blocks must have rows of numbers, got in block {number}: {error}") from error
        targets = np.asarray(to_numpy(y, "blocks"))
        n_features = rows.shape[1] if first is None and rows.ndim == 2 else first.rows.shape[1] if first else 0
        if rows.ndim != 2 or rows.shape[1] == 0 or rows.shape[1] != n_features:
            expected = n_features or "n_features"
            raise ValueError(f"blocks must have rows of shape (n, {expected}), got {rows.shape} in block {number}")
        if targets.shape != (len(rows),):
            found = f"{targets.shape} for {rows.shape} in block {number}"
            raise ValueError(f"blocks must have a target for each row, got {found}")
        if first is not None and names != first.names:
            raise ValueError(f"blocks must have the columns {first.names} in this order, got {names} in block {number}")
        return cls(rows, targets, names)
