"""Measuring one iteration, memory in a process of its own, and a fit as a row."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import torch

from bregnet.solver.admm import Options
from bregnet.solver.problem import Problem
from bregnet.solver.result import Result
from bregnet.solver.solve import LAYOUTS

AT_ONCE = 5  # iterations between two looks at the clock: small ones run without a return to Python
TILE_ELEMENTS = 1 << 22  # of the product that fits are compared with
PASS_SECONDS = 0.5  # that go into finding its least time, beyond five tries
FIT_COLUMNS = {
    "n": "d",
    "d": "d",
    "alpha": "g",
    "iterations": "d",
    "seconds": ".2f",
    "ms/iter": ".2f",
    "objective": ".5f",
    "gap": ".2%",
}


def fit_row(problem: Problem, alpha: float, result: Result, each: float | None = None) -> dict[str, Any]:
    """The columns above; `each` is the time of an iteration."""
    return {
        "n": problem.geometry.n_points,
        "d": problem.geometry.dimension,
        "alpha": alpha,
        "iterations": result.n_iter,
        "seconds": result.seconds,
        "ms/iter": None if each is None else 1e3 * each,
        "objective": result.objective,
        "gap": result.gap,
    }


def iteration_seconds(problem: Problem, n_steps: int, start: Any = None) -> float:
    """Median time of an iteration alone, without certificates, from rest or from a state, which is used up."""
    iteration = LAYOUTS[problem.layout](problem, Options(), start)
    with iteration.session():
        return median_seconds(lambda: iteration.run(AT_ONCE), max(1, n_steps // AT_ONCE), n_before=1) / AT_ONCE


def pass_seconds(n: int, d: int) -> float:
    """The least time of a product of n pieces and n points, (n, d + 1) each, with each row's maximum and its place."""
    lifted = torch.randn((n, d + 1), generator=torch.Generator().manual_seed(0))
    rows = lifted.split(max(1, TILE_ELEMENTS // n))
    tile = torch.empty((len(rows[0]), n))

    def product() -> None:
        for part in rows:
            torch.mm(part, lifted.T, out=tile[: len(part)]).max(1)

    times, began = call_seconds(product, 5), time.perf_counter()
    while time.perf_counter() - began < PASS_SECONDS:  # threads that have to wait must not make the unit long
        times += call_seconds(product, 5)
    return min(times)


def call_seconds(call: Callable[[], Any], n_calls: int) -> list[float]:
    """Times of several calls."""
    times = []
    for _ in range(n_calls):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


def median_seconds(step: Callable[[], Any], n_steps: int, *, n_before: int = 5) -> float:
    """Median time of a call, after a few that do not count."""
    return float(np.median(call_seconds(step, n_before + n_steps)[n_before:]))


def fastest_seconds(step: Callable[[], Any], n_steps: int) -> float:
    """Median time of a call on one thread or on all, whichever is less: peers should not suffer from a busy machine."""
    n_threads = torch.get_num_threads()
    try:
        times = []
        for count in {1, n_threads}:
            torch.set_num_threads(count)
            times.append(median_seconds(step, n_steps))
    finally:
        torch.set_num_threads(n_threads)
    return min(times)


def peak_megabytes() -> float:
    """Peak memory of this process; unlike getrusage's, it does not start at the parent's peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def forget_peak() -> None:
    """Let the peak be that of what follows: compiling may have taken more memory than is in use now."""
    Path("/proc/self/clear_refs").write_text("5")


def _report(function: Callable[..., Any], arguments: tuple, queue: Any) -> None:
    queue.put(function(*arguments))


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function` in a process of its own, so that its peak memory is its own."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_report, args=(function, arguments, queue))
    process.start()
    while True:
        try:
            found = queue.get(timeout=1)
            break
        except Empty:
            if not process.is_alive() and queue.empty():
                raise RuntimeError(f"{function.__name__} died with exit code {process.exitcode}") from None
    process.join()
    return found
