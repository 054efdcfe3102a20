"""Compiled functions on several Python threads; they release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np


class Threads:
    """Shares ranges of work among threads.

    Parameters
    ----------
    n_threads : int
        1 runs everything in the calling thread.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = max(1, n_threads)
        self._pool = ThreadPoolExecutor(self.n_threads - 1) if self.n_threads > 1 else None

    def chunks(self, total: int, work: np.ndarray | None = None) -> list[tuple[int, int]]:
        """A range for each thread, of equal size, or of equal share in the cumulative `work` (total + 1,)."""
        parts = np.linspace(0, 1, min(self.n_threads, max(1, total)) + 1)
        if work is None:
            bounds = np.round(parts * total).astype(int)
        else:
            bounds = np.searchsorted(work, parts * work[-1])
            bounds[0], bounds[-1] = 0, total
        return [(int(begin), int(end)) for begin, end in pairwise(bounds)]

    def run(self, function: Callable[[int, int, int], None], chunks: Sequence[tuple[int, int]]) -> None:
        """Call ``function(number, begin, end)`` for every chunk and wait for all."""
        if self._pool is None or len(chunks) == 1:
            for number, chunk in enumerate(chunks):
                function(number, *chunk)
            return
        waiting = [self._pool.submit(function, number, *chunk) for number, chunk in enumerate(chunks) if number]
        function(0, *chunks[0])
        for task in waiting:
            task.result()
