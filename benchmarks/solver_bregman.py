"""Learning divergences: the tables of `benchmarks.solver` about PBDL."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import train_test_split

from benchmarks.data import class_data
from benchmarks.peers.paper import PaperBregman
from benchmarks.report import Table
from benchmarks.timing import FIT_COLUMNS, fastest_seconds, fit_row, in_own_process, iteration_seconds, peak_megabytes
from bregnet import BregmanDivergence, MaxAffine
from bregnet.metrics import mean_average_precision
from bregnet.solver.admm import Options
from bregnet.solver.bregman import BregmanLearning, LabelLoss
from bregnet.solver.geometry import Geometry
from bregnet.solver.penalty import Penalty
from bregnet.solver.solve import solve

SMALL = {"iris": load_iris, "wine": load_wine, "wdbc": load_breast_cancer}
SETTLING = (25, 50, 100, 200, 400, 800)
SETTLED = 0.005  # of mean average precision
TEMPERATURE = 0.1


def synthetic(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes that overlap, of unit variance."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.standard_normal((n, d)) + 2.0 * rng.standard_normal((3, d))[y]
    return (X - X.mean(0)) / X.std(0), y


def label_problem(X: np.ndarray, y: np.ndarray, alpha: float) -> BregmanLearning:
    """Balanced labels, a piece per point; the rows of X must be distinct."""
    order = np.argsort(y, kind="stable")
    points = torch.as_tensor(X[order])
    geometry = Geometry.build(points, torch.ones(len(X), dtype=torch.float64))
    sizes = np.unique(y, return_counts=True)[1]
    similar = float(np.square(sizes).sum())
    weights = 0.5 / similar, 0.5 / (len(X) ** 2 - similar)
    labels = LabelLoss(geometry, torch.eye(len(sizes), dtype=torch.float64), torch.as_tensor(sizes), *weights)
    return BregmanLearning(geometry, Penalty(torch.full((X.shape[1],), alpha, dtype=torch.float64)), labels)


def tables(home: Path | None, quick: bool) -> list[Table]:
    """All tables about learning divergences."""
    solve(label_problem(*synthetic(300, 3), 0.1), Options(max_iter=60))  # compile before measuring
    return [against_the_paper(quick), certificates(quick), settling(quick), large(home, quick)]


def against_the_paper(quick: bool) -> Table:
    """An iteration of algorithm 3 as printed, and one of ours, at n = 1000."""
    table = Table("PBDL, to a certified gap of 5%", {**FIT_COLUMNS, "x paper/iter": ".0f"})
    for d in [4] if quick else [4, 16, 32]:
        X, y = synthetic(1000, d)
        problem = label_problem(X, y, 0.01)
        result = solve(problem, Options(tol=0.05)).result
        each = iteration_seconds(problem, 100)
        paper = PaperBregman(torch.as_tensor(X), torch.as_tensor(y), rho=0.01 / len(X), lam=0.01)
        table.add(**fit_row(problem, 0.01, result, each), **{"x paper/iter": fastest_seconds(paper.step, 15) / each})
    return table


def certificates(quick: bool) -> Table:
    """Iterations until the gap is 10%, 5% and 1%, second stage included."""
    table = Table("PBDL, iterations to a certified gap", {"set": "", **FIT_COLUMNS, "goal": ".0%", "second": "d"})
    for name, load in SMALL.items():
        X, y = _standardized(*load(return_X_y=True))
        for alpha in (0.1, 0.01):
            problem = label_problem(X, y, alpha)
            for goal in (0.1, 0.05) if quick else (0.1, 0.05, 0.01):
                result = solve(problem, Options(tol=goal)).result
                table.add(set=name, goal=goal, second=result.n_interior, **fit_row(problem, alpha, result))
    return table


def settling(quick: bool) -> Table:
    """Mean average precision of held-out queries against the training points, as iterations go on."""
    columns = {"set": "", "alpha": "g", **{f"mAP@{t}": ".2%" for t in SETTLING}, "settled": "d", "gap@800": ".1%"}
    table = Table(f"PBDL, held-out mAP (temperature {TEMPERATURE}) while ADMM goes on", columns)
    for name, load in list(SMALL.items())[: 1 if quick else None]:
        X, y = load(return_X_y=True)
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
        center, scale = X.mean(0), X.std(0)
        X, y = _distinct((X - center) / scale, y)
        for alpha in (0.1, 0.01):
            problem = label_problem(X, y, alpha)
            scores, solution = [], None
            for done, goal in pairwise((0, *SETTLING)):
                options = Options(tol=1e-9, max_iter=goal - done, interior_size=0)
                solution = solve(problem, options, start=None if solution is None else solution.state)
                scores.append(_retrieval(solution.pieces[0], X, y, (X_test - center) / scale, y_test))
            assert solution is not None
            off = [t for t, score in zip(SETTLING, scores, strict=True) if abs(score - scores[-1]) > SETTLED]
            settled = SETTLING[SETTLING.index(off[-1]) + 1] if off else SETTLING[0]
            marks = {f"mAP@{t}": score for t, score in zip(SETTLING, scores, strict=True)}
            table.add(set=name, alpha=alpha, settled=settled, **marks, **{"gap@800": solution.result.gap})
    return table


def large(home: Path | None, quick: bool) -> Table:
    """Abalone, a piece per point: n = 4177."""
    table = Table("PBDL on abalone, a piece per point", {**FIT_COLUMNS, "peak MB": ".0f", "states": ".2f"})
    if home is None or quick:
        print("not run: it takes minutes, and needs the data folder in $BREGNET_DATA")
        return table
    for alpha in (0.1, 0.01):
        row, peak = in_own_process(_fit_abalone, home, alpha)
        table.add(**row, **{"peak MB": peak, "states": peak / (4 * row["n"] ** 2 / 2**20)})
    return table


def _fit_abalone(home: Path, alpha: float) -> tuple[dict[str, Any], float]:
    X, y = _standardized(*class_data("abalone", home))
    problem = label_problem(X, y, alpha)
    solve(label_problem(*synthetic(300, 3), alpha), Options(max_iter=60))  # compile before measuring
    before = peak_megabytes()
    result = solve(problem, Options(tol=0.05, max_iter=800)).result
    peak = peak_megabytes() - before
    return fit_row(problem, alpha, result, iteration_seconds(problem, 10)), peak


def _retrieval(pieces: torch.Tensor, X: np.ndarray, y: np.ndarray, queries: np.ndarray, of: np.ndarray) -> float:
    function = MaxAffine(pieces[:, :-1].numpy(), pieces[:, -1].numpy(), temperature=TEMPERATURE)
    return mean_average_precision(BregmanDivergence(function).pairwise(queries, X), of[:, None] == y)


def _distinct(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    keep = np.sort(np.unique(X, axis=0, return_index=True)[1])
    return X[keep], y[keep]


def _standardized(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    X, y = _distinct(X, y)
    return (X - X.mean(0)) / X.std(0), y
