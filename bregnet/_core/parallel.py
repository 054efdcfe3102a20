"""Queries in Python threads, for code that releases the interpreter lock.

Torch and faiss each have OpenMP threads of their own. Those of one spin for a while after their work is done, and the
other then takes several times as long. Python threads do not spin.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

QUERIES_A_THREAD = 64  # at least: below, a thread costs more than it saves


def in_threads(answer: Callable[[slice], None], n_queries: int) -> None:
    """Answer all queries, in as many threads as torch would use."""
    n_threads = max(1, min(torch.get_num_threads(), n_queries // QUERIES_A_THREAD))
    step = -(-n_queries // n_threads)
    parts = [slice(start, start + step) for start in range(0, n_queries, step)]
    if len(parts) == 1:
        answer(parts[0])
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(answer, parts))
