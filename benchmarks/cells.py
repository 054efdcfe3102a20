"""What cells cost in accuracy, and whether re-assigning points to their active pieces helps.

    [BREGNET_DATA=folder] python -m benchmarks.cells [--quick] [--json FILE]

Convex regression of a made-up bowl by rounds, and DC regression on the first fold of the paper's sets by number
of pieces (the sets only where BREGNET_DATA is set): R^2 on the test part.
"""

from __future__ import annotations

import argparse
import warnings

from sklearn.exceptions import ConvergenceWarning

from benchmarks.data import Split, data_home, first_fold
from benchmarks.report import Table, machine, write_json
from benchmarks.solver import synthetic
from bregnet import ConvexRegressor, DCRegressor

COLUMNS = {
    "set": "",
    "n": "d",
    "d": "d",
    "pieces": "d",
    "rounds": "d",
    "R2 train": ".2f",
    "R2 test": ".2f",
    "objective": ".5f",
    "gap": ".2%",
    "iterations": "d",
    "seconds": ".1f",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one set, few pieces")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is in the table
    print(machine())
    tables = [Table("convex regression of a bowl, alpha = 0.001, by rounds of re-assignment", COLUMNS)]
    for n, d in [(1000, 4)] if options.quick else [(1000, 4), (2000, 8)]:
        X, y = synthetic(n + 1000, d, dc=False)
        data = Split(X[:n], y[:n], X[n:], y[n:])
        for n_pieces in (25, 100):
            for rounds in (0, 1, 2, 4):
                model = ConvexRegressor(alpha=1e-3, n_pieces=n_pieces, reassign=rounds, random_state=0)
                add_row(tables[0], "bowl", data, model, n_pieces, rounds)
    home = data_home()
    if home is None:
        print("BREGNET_DATA is not set: the paper's sets are left out")
    else:
        tables.append(Table("DC regression, alpha = 0.001, at most 1000 iterations, by number of pieces", COLUMNS))
        for name in ["airfoil"] if options.quick else ["airfoil", "wine_quality_white", "ccpp"]:
            data = first_fold(name, home)
            for n_pieces in (100, 400):
                model = DCRegressor(alpha=1e-3, n_pieces=n_pieces, max_iter=1000, random_state=0)
                add_row(tables[1], name[:9], data, model, n_pieces)
    write_json(options.json, tables)


def add_row(
    table: Table, name: str, data: Split, model: ConvexRegressor | DCRegressor, n_pieces: int, rounds: int | None = None
) -> None:
    """Fit, score and print."""
    model.fit(data.X, data.y)
    table.add(
        **{
            "set": name,
            "n": len(data.X),
            "d": data.X.shape[1],
            "pieces": n_pieces,
            "rounds": rounds,
            "R2 train": 100 * model.score(data.X, data.y),
            "R2 test": 100 * model.score(data.X_test, data.y_test),
            "objective": model.result_.objective,
            "gap": model.gap_,
            "iterations": model.n_iter_,
            "seconds": model.result_.seconds,
        }
    )


if __name__ == "__main__":
    main()
