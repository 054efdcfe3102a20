"""Queries in Python threads, for code that releases the interpreter lock.

Torch and faiss each have OpenMP threads of their own. Those of one spin for a while after their work is done, and the
other then takes several times as long. Python threads do not spin.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from threading import Barrier, Lock
from typing import Any, TypeVar

import torch
from threadpoolctl import ThreadpoolController
from tqdm import tqdm

from bregnet._core import validation as check
from bregnet._core.chunks import batches

Result = TypeVar("Result")


def in_threads(answer: Callable[[slice], None], n_queries: int, least: int = 64) -> None:
    """Answer all queries, in as many threads as torch would use; in each of them torch computes on one.

    Each has at least so many queries, or one has them all: with fewer it costs more than it saves.
    """
    n_threads = torch.get_num_threads()
    if n_threads == 1:
        answer(slice(0, n_queries))
        return
    list(_pool(n_threads).map(answer, shares(n_queries, n_threads, least)))  # one, too: torch's own threads may spin


def shares(n_queries: int, n_threads: int, least: int) -> Iterator[slice]:
    """Equal parts of at least so many queries, at most one for each thread."""
    return batches(n_queries, -(-n_queries // max(1, min(n_threads, n_queries // least))))


def shared(function: Callable[[slice], Result], parts: Sequence[slice], n_threads: int | None = None) -> list[Result]:
    """Results for all parts: the caller begins with the first, and does what no other thread has begun by then.

    So to wake a thread, which takes some 40 us, is not waited for, and the caller may be a thread of
    :func:`in_threads`: these never wait for each other's waiting. Its torch must compute on one thread.
    """
    pool_size = n_threads or torch.get_num_threads()
    first, *others = parts
    futures = [_pool(pool_size).submit(function, part) for part in others]
    try:
        results = [function(first)]
        for part, future in zip(others, futures, strict=True):
            results.append(function(part) if future.cancel() else future.result())
    finally:
        wait([future for future in futures if not future.cancel()])
    return results


def mapped(function: Callable[[slice], Result], parts: Sequence[slice]) -> Iterator[Result]:
    """Results for all parts, in their order, from as many threads as torch would use; few wait to be taken."""
    n_threads = min(torch.get_num_threads(), len(parts))
    if n_threads < 2:
        yield from map(function, parts)
        return
    pool, waiting = _pool(n_threads), deque[Future[Result]]()
    try:
        for part in parts:
            waiting.append(pool.submit(function, part))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


class _SingleThreadedBlas:
    """Products of numpy on the thread that asks for them, for as long as anyone is inside: the setting is common."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limiter: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limiter = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limiter.restore_original_limits()


single_threaded_blas = _SingleThreadedBlas()


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """The libraries for products; to look for them takes as long as some queries."""
    return ThreadpoolController()


@contextmanager
def progress_bar(title: str, total: int, shown: bool | None) -> Iterator[Callable[[int], object]]:
    """What to call with the number of queries that were answered; without a choice, a bar is shown on a terminal."""
    if not (sys.stderr.isatty() if shown is None else check.boolean("progress", shown)):
        yield lambda count: None  # a bar that is not shown starts a thread all the same
        return
    with tqdm(total=total, desc=title, unit=" queries", delay=2.0) as bar:
        yield bar.update


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
