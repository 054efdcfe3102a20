"""What choosing alpha costs, and what it brings.

    python -m benchmarks.selection [--quick] [--json FILE]

A path of fits to a certified gap of 1%, alpha from large to small: warm-started, each from the end of the last, and
cold. "x last" is the time of all fits in times of the cold fit with the least alpha. Then whole searches in five folds:
with early stopping, where fits start from rest, and along such paths.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from benchmarks.report import Table, machine, write_json
from benchmarks.solver import synthetic
from bregnet import ConvexRegressor, ConvexRegressorCV, DCRegressor, DCRegressorCV
from bregnet.solver.result import Result

ALPHAS = (1.0, 0.3, 0.1, 0.03, 0.01)
PATH_COLUMNS = {
    "problem": "",
    "n": "d",
    "d": "d",
    "path": "",
    "iterations": "d",
    "seconds": ".2f",
    "x last": ".2f",
    "worst gap": ".2%",
    "objective": ".5f",
}
SEARCH_COLUMNS = {
    "problem": "",
    "n": "d",
    "d": "d",
    "search": "15",
    "fits": "d",
    "seconds": ".1f",
    "alpha": ".3g",
    "iterations": "d",
    "gap": ".1%",
    "test R^2": ".2f",
}


def fits(dc: bool, X: np.ndarray, y: np.ndarray, warm: bool) -> list[Result]:
    """Along alpha, cold or each from the end of the last."""
    model = (DCRegressor if dc else ConvexRegressor)(n_pieces=None, warm_start=warm)
    return [model.set_params(alpha=alpha).fit(X, y).result_ for alpha in ALPHAS]


def compare_paths(table: Table, n: int, d: int, dc: bool) -> None:
    X, y = synthetic(n, d, dc)
    fits(dc, X[:30], y[:30], warm=True)  # compiled before the clock starts
    cold = fits(dc, X, y, warm=False)
    for name, results in (("cold", cold), ("warm", fits(dc, X, y, warm=True))):
        seconds = sum(result.seconds for result in results)
        table.add(
            problem="DC" if dc else "convex",
            n=n,
            d=d,
            path=name,
            iterations=sum(result.n_iter for result in results),
            seconds=seconds,
            **{"x last": seconds / cold[-1].seconds, "worst gap": max(result.gap for result in results)},
            objective=results[-1].objective,
        )


def compare_searches(table: Table, n: int, d: int, dc: bool) -> None:
    X, y = synthetic(n + 1000, d, dc)
    y = y + 0.5 * np.random.default_rng(1).standard_normal(len(y))  # noise that is there to be fitted
    for name, early in (("early stopping", True), ("paths", False)):
        folds = KFold(5, shuffle=True, random_state=0)
        search = (DCRegressorCV if dc else ConvexRegressorCV)(cv=folds, early_stopping=early, max_iter=2000)
        began = time.perf_counter()
        search.fit(X[:n], y[:n])
        seconds = time.perf_counter() - began
        table.add(
            problem="DC" if dc else "convex",
            n=n,
            d=d,
            search=name,
            fits=search.n_fits_ + 1,
            seconds=seconds,
            alpha=search.alpha_,
            iterations=search.n_iter_,
            gap=search.gap_,
            **{"test R^2": 100 * search.score(X[n:], y[n:])},
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small problems")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is in the table
    print(machine())
    paths = Table("a path along alpha", PATH_COLUMNS)
    for dc in (False, True):
        compare_paths(paths, 100 if options.quick else 500, 4, dc)
    searches = Table("searches", SEARCH_COLUMNS)
    for dc in (False, True):
        compare_searches(searches, 60 if options.quick else 300, 4, dc)
    write_json(options.json, [paths, searches])


if __name__ == "__main__":
    main()
