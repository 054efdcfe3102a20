"""Where large arrays live: in memory, or in files of a scratch folder that the system reads and writes as needed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


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


def collected(blocks: Iterable[tuple[Any, Any]], folder: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows of all blocks in a file of a folder, as a memory-mapped array, and their targets in memory.

    None is the folder of the system's temporary files.
    """
    if folder is not None and not Path(folder).is_dir():
        raise FileNotFoundError(f"scratch must be a folder that exists, got {str(folder)!r}")
    targets, n_features, n_rows = [], 0, 0
    with tempfile.TemporaryFile(dir=folder) as file:
        for number, block in enumerate(blocks):
            rows, target = _checked_block(number, block, n_features)
            n_features = rows.shape[1]
            n_rows += len(rows)
            targets.append(target)
            file.write(np.ascontiguousarray(rows).data)
        if not n_rows:
            raise ValueError("blocks must hold at least one row, got none")
        file.flush()
        return np.memmap(file, dtype=np.float64, mode="r", shape=(n_rows, n_features)), np.concatenate(targets)


def _checked_block(number: int, block: object, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    if not (isinstance(block, tuple | list) and len(block) == 2):
        raise TypeError(f"blocks must yield pairs (X, y), got {type(block).__name__} as block {number}")
    rows, target = np.asarray(block[0], dtype=np.float64), np.asarray(block[1])
    if rows.ndim != 2 or rows.shape[1] == 0 or n_features not in (0, rows.shape[1]):
        expected = n_features or "n_features"
        raise ValueError(f"blocks must have rows of shape (n, {expected}), got {rows.shape} in block {number}")
    if target.shape != (len(rows),):
        found = f"{target.shape} for {rows.shape} in block {number}"
        raise ValueError(f"blocks must have a target for each row, got {found}")
    return rows, target
