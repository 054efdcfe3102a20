"""Speed of the solver, with objective and certified gap beside every time.

    python -m benchmarks.solver [--quick] [--only regression|divergences] [--json FILE]

Ratios are to peers run in the same process: the paper's algorithm as printed (float64 torch) and Clarabel.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from benchmarks import solver_bregman
from benchmarks.data import data_home
from benchmarks.peers import clarabel_program
from benchmarks.peers.paper import PaperAlgorithm
from benchmarks.report import Table, machine, write_json
from benchmarks.timing import FIT_COLUMNS, fit_row, in_own_process, iteration_seconds, peak_megabytes
from bregnet.solver.convex import ConvexRegression
from bregnet.solver.dc import DCRegression
from bregnet.solver.geometry import Geometry
from bregnet.solver.loop import Options, solve
from bregnet.solver.penalty import Penalty
from bregnet.solver.problem import Problem

COLUMNS = {"problem": "", **FIT_COLUMNS, "x paper/iter": ".0f", "x paper": ".0f", "x Clarabel": ".0f"}
GROWTH_COLUMNS = {"problem": "", **FIT_COLUMNS, "ns/(n K)": ".2f", "peak MB": ".0f", "states": ".2f"}
PAPER_SECONDS = 25.0  # for the paper's algorithm to come as low as ours


def synthetic(n: int, d: int, dc: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit-variance data: a noisy bowl, or for DC a noisy surface that is neither convex nor concave."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    signal = np.sin(2 * X[:, 0]) + X[:, 1 % d] * X[:, 0] if dc else np.square(X).sum(1)
    y = signal + 0.1 * signal.std() * rng.standard_normal(n)
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


def make_problem(X: np.ndarray, y: np.ndarray, alpha: float, dc: bool) -> Problem:
    geometry = Geometry.build(torch.as_tensor(X), torch.ones(len(X), dtype=torch.float64))
    penalty = Penalty(torch.full((X.shape[1],), alpha, dtype=torch.float64))
    return (DCRegression if dc else ConvexRegression)(geometry, torch.as_tensor(y), penalty)


def paper_seconds(
    problem: Problem, X: np.ndarray, y: np.ndarray, alpha: float, dc: bool, goal: float, most: float
) -> tuple[float, float | None]:
    """Seconds an iteration, and in all until the objective is as low as `goal` (None: not within `most`)."""
    algorithm = PaperAlgorithm(torch.as_tensor(X), torch.as_tensor(y), rho=0.01 / len(X), lam=alpha, dc=dc)
    spent = 0.0
    times: list[float] = []
    while not times or spent < most:
        for _ in range(10):
            began = time.perf_counter()
            pieces = algorithm.step()
            times.append(time.perf_counter() - began)
        spent = sum(times)
        if problem.primal(pieces)[0] <= goal:
            return float(np.median(times)), spent
    return float(np.median(times)), None


def compare(table: Table, n: int, d: int, alpha: float, dc: bool, *, paper: float | None, clarabel: bool) -> None:
    X, y = synthetic(n, d, dc)
    problem = make_problem(X, y, alpha, dc)
    result = solve(problem, Options(max_iter=20_000)).result
    each = iteration_seconds(problem, 100 if n <= 1000 else 30)
    row = {"problem": "DC" if dc else "convex", **fit_row(problem, alpha, result, each)}
    if paper is not None:
        per_iteration, total = paper_seconds(problem, X, y, alpha, dc, result.objective, paper)
        row["x paper/iter"] = per_iteration / each
        if total is not None:
            row["x paper"] = total / result.seconds
        elif paper > 0:
            row["x paper"] = f"> {paper / result.seconds:.0f}"
    if clarabel:
        program = clarabel_program.Program(X, y, np.full(d, alpha), signs=(1, -1) if dc else (1,))
        row["x Clarabel"] = clarabel_program.solve(program, tolerance=1e-2).seconds / result.seconds
    table.add(**row)


def _measure_growth(n: int, d: int, alpha: float, max_iter: int) -> dict[str, Any]:
    X, y = synthetic(n, d, False)
    problem = make_problem(X, y, alpha, False)
    solve(make_problem(X[:300], y[:300], alpha, False), Options(max_iter=30))  # compile before measuring
    before = peak_megabytes()
    result = solve(problem, Options(max_iter=max_iter)).result
    peak = peak_megabytes() - before
    each = iteration_seconds(problem, 20)
    memory = {"peak MB": peak, "states": peak / (4 * n**2 / 2**20)}
    return {**fit_row(problem, alpha, result, each), "ns/(n K)": 1e9 * each / n**2, **memory}


def growth(table: Table, sizes: list[int], d: int, alpha: float, max_iter: int) -> None:
    """Each size in a process of its own, so that its peak memory is its own."""
    for n in sizes:
        table.add(problem="convex", **in_own_process(_measure_growth, n, d, alpha, max_iter))


def regression_tables(quick: bool) -> list[Table]:
    solve(make_problem(*synthetic(300, 3, True), 0.1, True), Options(max_iter=30))  # compile before measuring
    features = [2, 4, 32] if quick else [2, 4, 8, 16, 32]
    tables = []
    for name, dc in (("table 1: convex regression", False), ("table 2: DC regression", True)):
        table = Table(f"{name}, to a certified gap of 1%", COLUMNS)
        for d in features:
            compare(table, 1000, d, 0.01, dc, paper=0.0 if quick else PAPER_SECONDS, clarabel=False)
        tables.append(table)
    table = Table("alpha, to a certified gap of 1%", COLUMNS)
    for dc in (False, True):
        for d in [4] if quick else [2, 4, 16]:
            for alpha in (0.1, 0.001):
                compare(table, 1000, d, alpha, dc, paper=None, clarabel=False)
    tables.append(table)
    table = Table("against Clarabel, to a gap of 1%", COLUMNS)
    for n in [200] if quick else [100, 200, 400]:
        for dc in (False,) if quick else (False, True):
            compare(table, n, 4, 0.01, dc, paper=None, clarabel=True)
    tables.append(table)
    table = Table("growth at d = 8, at most 200 iterations", GROWTH_COLUMNS)
    growth(table, [500, 1000, 2000] if quick else [500, 1000, 2000, 3000, 5000], 8, 0.01, 200)
    return [*tables, table]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer cases, and no race to equal objective")
    parser.add_argument("--only", choices=("regression", "divergences"), help="one half of the tables")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    print(machine())
    tables = []
    if options.only != "divergences":
        tables += regression_tables(options.quick)
    if options.only != "regression":
        tables += solver_bregman.tables(data_home(), options.quick)
    write_json(options.json, tables)


if __name__ == "__main__":
    main()
