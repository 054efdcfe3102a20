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

from bregnet.solver.loop import State, _Iteration, default_rho
from bregnet.solver.problem import Problem
from bregnet.solver.result import Result

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


def iteration_seconds(problem: Problem, n_steps: int) -> float:
    """Median time of an iteration alone, without certificates."""
    kernel = problem.kernel(torch.float32)
    work = _Iteration(problem, kernel, State.zeros(problem, kernel, default_rho(problem)), 1.7)
    with kernel.session():
        return median_seconds(work.step, n_steps)


def median_seconds(step: Callable[[], Any], n_steps: int) -> float:
    """Median time of a call, after a few that do not count."""
    times = []
    for _ in range(n_steps + 5):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return float(np.median(times[5:]))


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
