"""Calls from several threads at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor


def in_threads(call, n_threads):
    """What a call returns in each of so many threads, which begin together; an error in one of them is raised."""
    together = threading.Barrier(n_threads)

    def begin(_):
        together.wait()
        return call()

    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(begin, range(n_threads)))
