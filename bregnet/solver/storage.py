"""Rows that come in blocks, collected in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bregnet._core import validation as check
from bregnet._core.arrays import to_numpy


def collected(blocks: Iterable[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray, tuple[str, ...] | None]:
    """Rows of all blocks in a temporary file, as a memory-mapped array, their targets in memory, and column names."""
    if not isinstance(blocks, Iterable):
        raise TypeError(f"blocks must be an iterable of pairs (X, y), got {blocks!r}")
    targets: list[np.ndarray] = []
    first: _Block | None = None
    n_rows = 0
    with tempfile.TemporaryFile() as file:
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
