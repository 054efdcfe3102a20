"""Queries in Python threads, for code that releases the interpreter lock.

Torch and faiss each have OpenMP threads of their own. Those of one spin for a while after their work is done, and the
other then takes several times as long. Python threads do not spin.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier

import torch

from bregnet._core.chunks import batches


def in_threads(answer: Callable[[slice], None], n_queries: int) -> None:
    """Answer all queries, in as many threads as torch would use; in each of them torch computes on one."""
    n_threads = max(1, min(torch.get_num_threads(), n_queries // 64))  # with fewer, a thread costs more than it saves
    step = -(-n_queries // n_threads)
    parts = list(batches(n_queries, step))
    if len(parts) == 1:
        answer(parts[0])
        return
    list(_pool(len(parts)).map(answer, parts))


@lru_cache(maxsize=4)
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Threads that stay: to start them takes as long as some queries.

    Torch has a number of threads for each thread that calls it, and in addition the one that was set last, which new
    threads begin with. So all of these are started here, and then that number is set back.
    """
    before, started = torch.get_num_threads(), Barrier(n_threads + 1)

    def start() -> None:
        torch.get_num_threads()  # the first use in a thread takes over the common number
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(n_threads, "bregnet", initializer=start)
    for _ in range(n_threads):  # a thread is started for a task that finds none idle
        pool.submit(int)
    started.wait()
    torch.set_num_threads(before)
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
