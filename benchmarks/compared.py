"""Convex regression beside cvxreg, which gives the program to a general solver.

    python -m benchmarks.compared [--quick] [--json FILE]

Both fit a convex function with a piece per point. cvxreg's `CR` minimizes the squares alone, with ECOS, a general
interior-point solver; `ConvexRegressor` has a penalty on slopes, which is small in one row and the default in another.
"residual" is the mean square of what the returned function leaves at the training points (targets have unit variance),
"test R^2" that on 1000 other points, in percent. Seconds are the least of three fits in this process, setting up
included, and those of one fit where it takes more than 5.
cvxreg comes with the extra `benchmarks`: `pip install 'bregnet[benchmarks]'`; its rows are left out without it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.report import Table, machine, write_json
from benchmarks.solver import compile_first, synthetic
from bregnet import ConvexRegressor

COLUMNS = {
    "method": "40",
    "n": "d",
    "d": "d",
    "x default": ".1f",
    "seconds": ".3f",
    "residual": ".2e",
    "test R^2": ".1f",
    "gap": ".2%",
}
N_TEST, N_FITS = 1000, 3
LONG = 5.0  # seconds: a fit that takes longer is not repeated
DEFAULT = "ConvexRegressor()"


def of_cvxreg() -> Any:
    """Convex least squares as cvxreg has them, with the solver that it chooses by default."""
    from cvxreg.models import CR

    return CR(solver="ecos")


METHODS: dict[str, Callable[[], Any]] = {
    DEFAULT: ConvexRegressor,
    "ConvexRegressor(alpha=1e-5)": lambda: ConvexRegressor(alpha=1e-5),
}
if find_spec("cvxreg") is not None and find_spec("ecos") is not None:
    METHODS["cvxreg CR, ECOS"] = of_cvxreg


def compare(table: Table, n: int, d: int) -> None:
    """A row for each method."""
    X, y = synthetic(n + N_TEST, d, False)
    default = np.inf
    for name, make in METHODS.items():
        seconds = np.inf
        for _ in range(N_FITS):
            began = time.perf_counter()
            model = make().fit(X[:n], y[:n])
            seconds = min(seconds, time.perf_counter() - began)
            if seconds > LONG:
                break
        default = seconds if name == DEFAULT else default
        left = np.square(np.asarray(model.predict(X)) - y)
        table.add(
            method=name,
            n=n,
            d=d,
            seconds=seconds,
            residual=float(left[:n].mean()),
            gap=getattr(model, "gap_", None),
            **{"x default": seconds / default, "test R^2": 100 * (1 - float(left[n:].mean() / y[n:].var()))},
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 points only")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    print(machine())
    if len(METHODS) == 2:
        print("cvxreg or ECOS is not installed: pip install 'bregnet[benchmarks]'")
    warnings.simplefilter("ignore", FutureWarning)  # of cvxpy
    compile_first()
    table = Table("convex regression, a piece per point", COLUMNS)
    for n, d in [(100, 4)] if options.quick else [(100, 4), (200, 4), (400, 4), (200, 8)]:
        compare(table, n, d)
    write_json(options.json, [table])


if __name__ == "__main__":
    main()
