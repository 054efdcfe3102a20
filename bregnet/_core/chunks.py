"""Work on many rows some at a time: one memory budget, and one iterator over blocks of rows.

Budgets are counts of numbers, not bytes: of one intermediate result, of which a computation has a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

MEMORY = 1 << 22  # numbers held at once where a computation need only be bounded: 32 MB in double precision
CACHE = 1 << 18  # where it passes over them several times: a processor's cache holds a few such, and is 6 times faster

_caps: list[int] = []


def cache(device: torch.device) -> int:
    """The budget of what is passed over several times: a GPU has no such cache, but many cores to keep busy."""
    return CACHE if device.type == "cpu" else MEMORY


def batches(n_rows: int, batch_size: int, start: int = 0) -> Iterator[slice]:
    """Slices of `batch_size` rows from `start` up to `n_rows`, the last one perhaps shorter.

    Examples
    --------
    >>> from bregnet._core.chunks import batches
    >>> list(batches(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(first, min(first + batch_size, n_rows)) for first in range(start, n_rows, batch_size))


def rows_at_once(row_elements: int, *, budget: int = MEMORY) -> int:
    """How many rows of so many numbers the budget allows, at least one.

    Examples
    --------
    >>> from bregnet._core.chunks import rows_at_once
    >>> rows_at_once(100, budget=1000), rows_at_once(10**9)
    (10, 1)
    """
    return max(1, min([budget, *_caps]) // max(1, row_elements))


def blocks(n_rows: int, row_elements: int, *, budget: int = MEMORY) -> Iterator[slice]:
    """Slices of as many rows of so many numbers as the budget allows.

    Examples
    --------
    >>> from bregnet._core.chunks import blocks
    >>> list(blocks(3, 500, budget=1000))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    return batches(n_rows, rows_at_once(row_elements, budget=budget))


@contextmanager
def at_most(elements: int) -> Iterator[None]:
    """No budget is above so many numbers inside the ``with`` block, in all threads.

    Examples
    --------
    >>> from bregnet._core.chunks import at_most, rows_at_once
    >>> with at_most(50):
    ...     rows_at_once(10)
    5
    """
    _caps.append(elements)
    try:
        yield
    finally:
        _caps.remove(elements)
