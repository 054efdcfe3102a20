"""Timed fits for tables 1, 2 and 5, stopped by the paper's rule or by a certified gap."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.rows import Outcome
from benchmarks.solver import compile_first, synthetic
from bregnet import ConvexRegressor, DCRegressor
from bregnet.datasets import Fold
from bregnet.solver.admm import Options
from bregnet.solver.points import Standardization
from bregnet.solver.result import Check
from bregnet.solver.solve import solve

ALPHA = 0.01
N_TRAIN, N_VALIDATION = 1000, 500
STOPS = ("rule", "gap")
SETTINGS = {"alpha": ALPHA, "gap": 1e-2, "improvement": 1e-3, "finest_gap": 1e-3}


class StoppingRule:
    """The paper's early stopping: stop when the last `patience` iterations improved the validation error too little.

    Parameters
    ----------
    patience : int
        The paper's n, the number of training points.
    least : float
        An improvement that is enough to go on, in units of the target's variance (of R^2).
    """

    def __init__(self, patience: int, least: float = 1e-3) -> None:
        self._patience, self._least = patience, least
        self._seen = [(0, 1.0)]  # iteration and least error so far; the mean has an error of 1

    def __call__(self, iteration: int, error: float) -> bool:
        """Whether to stop, given the error now; it may be asked at any iterations, in order."""
        least = min(error, self._seen[-1][1])
        before = [past for when, past in self._seen if when <= iteration - self._patience]
        self._seen.append((iteration, least))
        return bool(before) and before[-1] - least < self._least


class Validation:
    """The error of pieces on points that the fit does not see, relative to the variance of the target there."""

    def __init__(self, X: np.ndarray, y: np.ndarray, units: Standardization) -> None:
        points = torch.as_tensor(units.points(X))
        self._lifted = torch.cat([points, torch.ones_like(points[:, :1])], dim=1)
        self._targets = torch.as_tensor(units.targets(y))
        self._variance = float(self._targets.var(correction=0))

    def error(self, pieces: Sequence[Tensor]) -> float:
        """1 - R^2 of one piece set, or of the difference of two."""
        values = [(self._lifted @ part.T.to(self._lifted)).amax(1) for part in pieces]
        fitted = values[0] - values[1] if len(values) == 2 else values[0]
        return float((fitted - self._targets).square().mean()) / self._variance


def synthetic_fold(d: int, dc: bool) -> Fold:
    """The points of tables 1 and 2, and more from the same function for validation."""
    X, y = synthetic(N_TRAIN + N_VALIDATION, d, dc)
    return Fold(X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], y[N_TRAIN:])


def timed_fit(fold: Fold, *, dc: bool, stop: str, max_iter: int) -> Outcome:
    """One fit with a piece per point; the score is R^2 on the test part, the time includes setting up."""
    compile_first()
    began, cpu_began = time.perf_counter(), time.process_time()
    units = Standardization.from_rows(fold.X, fold.y)
    problem, _ = (DCRegressor if dc else ConvexRegressor)(ALPHA, n_pieces=None)._program(fold.X, fold.y, units)
    validation = Validation(fold.X_test, fold.y_test, units)
    options = Options(tol=SETTINGS["gap"], max_iter=max_iter)
    if stop == "rule":
        rule = StoppingRule(len(fold.X), SETTINGS["improvement"])

        def monitor(check: Check, pieces: Tensor) -> bool:
            return rule(check.iteration, validation.error(problem.used(pieces)))

        # a function within 0.1% of the optimum has nothing left to gain
        options = Options(tol=SETTINGS["finest_gap"], max_iter=max_iter, monitor=monitor)
    solution = solve(problem, options)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    result = solution.result
    extra: dict[str, Any] = {
        "alpha": ALPHA,
        "n": len(fold.X),
        "reached": result.converged or result.stopped,
        "objective": result.objective,
        "iterations": result.n_iter,
        "status": result.status,
        "cpu_seconds": cpu_seconds,
    }
    return Outcome(1 - validation.error(problem.used(solution.pieces)), seconds, seconds, result.gap, extra)
