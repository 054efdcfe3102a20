"""Queries in Python threads, for code that releases the interpreter lock.

Torch and faiss each have OpenMP threads of their own. Those of one spin for a while after their work is done, and the
other then takes several times as long. Python threads do not spin.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from bregnet._core.chunks import batches


def in_threads(answer: Callable[[slice], None], n_queries: int) -> None:
    """Answer all queries, in as many threads as torch would use."""
    n_threads = max(1, min(torch.get_num_threads(), n_queries // 64))  # with fewer, a thread costs more than it saves
    step = -(-n_queries // n_threads)
    parts = list(batches(n_queries, step))
    if len(parts) == 1:
        answer(parts[0])
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(answer, parts))
