"""Speed of the solver, with objective and certified gap beside every time.

    python -m benchmarks.solver [--quick] [--large] [--only regression|divergences] [--json FILE]

Seconds of regressions are the best of three fits. "pairs" are working pairs a point, and "passes" the time in units of
one product of all pieces and all points in single precision, with the maximum of every row and its place. "x paper" and
"x Clarabel" are how many times longer peers take: the paper's algorithm as printed (float64 torch) to an objective as
low, and Clarabel to the same tolerance. All run in the same process.
"""

from __future__ import annotations

import argparse
import time
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks import solver_bregman
from benchmarks.data import data_home
from benchmarks.peers import clarabel_program
from benchmarks.peers.paper import PaperAlgorithm
from benchmarks.report import Table, machine, write_json
from benchmarks.timing import fit_row, pass_seconds
from bregnet.solver.admm import Options
from bregnet.solver.geometry import Geometry
from bregnet.solver.penalty import Penalty
from bregnet.solver.regression import LeastSquares
from bregnet.solver.solve import Solution, solve
from bregnet.solver.working_pairs import WorkingPairs

COLUMNS = {
    "problem": "",
    "n": "d",
    "d": "d",
    "alpha": "g",
    "iterations": "d",
    "seconds": ".3f",
    "pairs": ".1f",
    "passes": ".1f",
    "objective": ".5f",
    "gap": ".3%",
    "x paper": ".0f",
    "x Clarabel": ".0f",
}
N_FITS = 3
PAPER_SECONDS, QUICK_PAPER_SECONDS = 25.0, 2.0  # for the paper's algorithm to come as low as ours


def synthetic(n: int, d: int, dc: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit-variance data: a noisy paraboloid, or for DC a noisy surface that is neither convex nor concave."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    signal = np.sin(2 * X[:, 0]) + X[:, 1 % d] * X[:, 0] if dc else np.square(X).sum(1)
    y = signal + 0.1 * signal.std() * rng.standard_normal(n)
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


def make_problem(X: np.ndarray, y: np.ndarray, alpha: float, dc: bool) -> LeastSquares:
    """A piece per point; the rows of X must be distinct."""
    geometry = Geometry.build(torch.as_tensor(X), torch.ones(len(X), dtype=torch.float64))
    penalty = Penalty(torch.full((X.shape[1],), alpha, dtype=torch.float64))
    return LeastSquares(geometry, torch.as_tensor(y), penalty, signs_of(dc))


def signs_of(dc: bool) -> tuple[int, ...]:
    """Of the convex functions that make up the fitted one."""
    return (1, -1) if dc else (1,)


@cache
def compile_first() -> None:
    """So that no timed fit waits for the compiler."""
    for d, dc, tol in product((3, 16), (False, True), (1e-2, 1e-4)):  # many features have kernels of their own
        problem, options = make_problem(*synthetic(300, d, dc), 0.1, dc), Options(tol=tol, max_iter=300)
        solve(problem, options)
        WorkingPairs(problem, options).step()  # what a small fit runs without a return to Python


def best_fit(X: np.ndarray, y: np.ndarray, alpha: float, dc: bool, tol: float) -> Solution:
    """The fastest of several fits, each with all that it computes once."""
    fits = (solve(make_problem(X, y, alpha, dc), Options(tol=tol, max_iter=20_000)) for _ in range(N_FITS))
    return min(fits, key=lambda solution: solution.result.seconds)


def paper_seconds(problem: LeastSquares, X: np.ndarray, y: np.ndarray, goal: float, most: float) -> float | None:
    """Seconds until the paper's algorithm has an objective as low as `goal`; None: not within `most`."""
    points, alpha = torch.as_tensor(X), float(problem.penalty.level[0])
    dc = problem.n_sets == 2
    algorithm = PaperAlgorithm(points, torch.as_tensor(y), rho=0.01 / len(X), lam=alpha, dc=dc)
    spent = 0.0
    while spent < most:
        began = time.perf_counter()
        for _ in range(10):
            pieces = algorithm.step()
        spent += time.perf_counter() - began
        if problem.primal(pieces)[0] <= goal:
            return spent
    return None


def compare(
    table: Table,
    n: int,
    d: int,
    alpha: float,
    dc: bool,
    *,
    tol: float = 1e-2,
    paper: float | None = None,
    clarabel: bool = False,
) -> None:
    """Add a row; `paper` is how many seconds the paper's algorithm gets at most."""
    X, y = synthetic(n, d, dc)
    problem, solution = make_problem(X, y, alpha, dc), best_fit(X, y, alpha, dc, tol)
    result = solution.result
    row: dict[str, Any] = {"problem": "DC" if dc else "convex", **fit_row(problem, alpha, result), "tol": tol}
    row |= {"pairs": len(solution.state.keys) / n, "passes": result.seconds / pass_seconds(n, d)}
    if paper is not None:
        total = paper_seconds(problem, X, y, result.objective, paper)
        row["x paper"] = f"> {paper / result.seconds:.0f}" if total is None else total / result.seconds
    if clarabel:
        program = clarabel_program.Program(X, y, np.full(d, alpha), signs=signs_of(dc))
        row["x Clarabel"] = clarabel_program.solve(program, tolerance=tol).seconds / result.seconds
    table.add(**row)


def paper_tables(quick: bool) -> list[Table]:
    """The sizes of the paper's tables 1 and 2."""
    tables = []
    for name, dc in (("table 1: convex regression", False), ("table 2: DC regression", True)):
        table = Table(f"{name}, to a certified gap of 1%", COLUMNS)
        for d in [2, 8] if quick else [2, 4, 8, 16, 32]:
            compare(table, 1000, d, 0.01, dc, paper=QUICK_PAPER_SECONDS if quick else PAPER_SECONDS)
        tables.append(table)
    return tables


def alpha_table(quick: bool) -> Table:
    table = Table("alpha, to a certified gap of 1%", COLUMNS)
    for dc in (False, True):
        for d in [4] if quick else [2, 4, 16]:
            for alpha in (0.1, 0.001) if quick else (0.1, 0.001, 1e-4):
                compare(table, 1000, d, alpha, dc)
    return table


def size_table(quick: bool, large: bool) -> Table:
    table = Table("more points, to a certified gap of 1%", COLUMNS)
    cases = [(1500, 6, False)]
    if not quick:
        cases += [(1500, 6, True), (1500, 24, True), (6000, 8, False), (10_000, 10, False)]
    if large:
        cases += [(30_000, 10, False), (100_000, 10, False)]
    for n, d, dc in cases:
        compare(table, n, d, 0.01, dc)
    return table


def fine_table(quick: bool) -> Table:
    table = Table("fine, to a certified gap of 0.01%", COLUMNS)
    for dc in (False,) if quick else (False, True):
        compare(table, 1000, 4, 0.01, dc, tol=1e-4)
    return table


def clarabel_table(quick: bool) -> Table:
    table = Table("against Clarabel, to a gap of 1%", COLUMNS)
    for n in [200] if quick else [100, 200, 400]:
        for dc in (False,) if quick else (False, True):
            compare(table, n, 4, 0.01, dc, clarabel=True)
    return table


def regression_tables(quick: bool, large: bool) -> list[Table]:
    """All tables about regression."""
    compile_first()
    first = paper_tables(quick)
    return [*first, alpha_table(quick), size_table(quick, large), fine_table(quick), clarabel_table(quick)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer cases, and little time for the paper's algorithm")
    parser.add_argument("--large", action="store_true", help="30,000 and 100,000 points as well")
    parser.add_argument("--only", choices=("regression", "divergences"), help="one half of the tables")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    print(machine())
    tables = []
    if options.only != "divergences":
        tables += regression_tables(options.quick, options.large)
    if options.only != "regression":
        tables += solver_bregman.tables(data_home(), options.quick)
    write_json(options.json, tables)


if __name__ == "__main__":
    main()
