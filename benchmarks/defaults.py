"""What the defaults of the learners give on rows that they have not seen.

    python -m benchmarks.defaults [--quick] [--json FILE]

Two random splits of each set, 60% of the rows to learn from. Divergences: mean average precision of other rows among
each other, of Euclid (features of unit variance), of the paper's program (a piece per point, no temperature, a gap of
1%) where there are at most 300 rows to learn from, and of `PBDL()`; accuracy of five neighbors among the rows of the
fit, of Euclid, of `PBDL()`, and of what `PBDLCV(scoring="accuracy")` has chosen with its own number. Regression: R^2 of
ridge regression, of both regressors with alpha 0.01, and with their default; of `DCRegressorCV` without rounds after
the coarse grid, with each of the numbers of pieces that it tries by default, and with the one that it chooses. Sets
marked with a star had no part in settling the defaults.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import sklearn.datasets as toys
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.data import data_home
from benchmarks.report import Table, write_json
from bregnet import (
    PBDL,
    PBDLCV,
    BregmanDivergence,
    BregmanKNeighborsClassifier,
    ConvexRegressor,
    DCRegressor,
    DCRegressorCV,
    Quadratic,
)
from bregnet.retrieval.evaluation import retrieval_scores

CLASSES = ("iris", "wine", "breast_cancer", "digits", "balance_scale", "transfusion", "vehicle", "vowel")
CLASSES_APART = ("seeds", "glass", "sonar", "pima", "banknote")
TARGETS = (
    "diabetes",
    "garment_productivity",
    "parkinson_speech",
    "parkinson_telemonitoring",
    "seoul_bike",
    "air_quality",
    "concrete",
    "airfoil",
)
TARGETS_APART = ("communities", "wine_quality_white", "ccpp")
COLUMNS = {
    "set": "22",
    "mAP Euclid": ".3f",
    "paper": ".3f",
    "PBDL": ".3f",
    "seconds": ".1f",
    "5-NN Euclid": ".3f",
    "5-NN PBDL": ".3f",
    "k-NN PBDLCV": ".3f",
    "seconds of PBDLCV": ".1f",
}
REGRESSION_COLUMNS = {
    "set": "26",
    "ridge": ".3f",
    "convex 0.01": ".3f",
    "convex": ".3f",
    "DC 0.01": ".3f",
    "DC": ".3f",
    **{f"DC search, {pieces}": ".3f" for pieces in ("auto", "50", "10", "chosen")},
}
MOST_ROWS = 1400


def rows_of(name: str, home: Path) -> tuple[np.ndarray, np.ndarray]:
    """At most MOST_ROWS rows of a set and their first target; of sets with a split only the part to learn from."""
    if hasattr(toys, f"load_{name}"):
        X, y = getattr(toys, f"load_{name}")(return_X_y=True)
    else:
        import pandas as pd

        places = (folder / f"{name}.csv.gz" for folder in (home, home.parent / "more"))
        table = pd.read_csv(next(place for place in places if place.exists()))
        if "split" in table:
            table = table[table["split"] == "train"].drop(columns="split")
        targets = [column for column in table if str(column).startswith("target")]
        X, y = table.drop(columns=targets).to_numpy(float), table[targets[0]].to_numpy()
    some = np.random.RandomState(0).permutation(len(X))[:MOST_ROWS]
    return X[some][:, X[some].std(0) > 0], y[some]


def average_precision(divergence: BregmanDivergence, X: np.ndarray, y: np.ndarray) -> float:
    """Of rows among each other."""
    return float(np.nanmean(retrieval_scores(divergence, X, y)["map"]))


def timed(work: Callable[[], PBDL | PBDLCV]) -> tuple[PBDL | PBDLCV, float]:
    """What it gives, and the seconds of the processor that it took."""
    began = time.process_time()
    return work(), time.process_time() - began


def of_classes(name: str, home: Path, seed: int) -> list[float]:
    """Scores of one split, in the order of the columns."""
    X, y = rows_of(name, home)
    X, X_new, y, y_new = train_test_split(X, y, test_size=0.4, stratify=y, random_state=seed)
    euclid = BregmanDivergence(Quadratic(np.diag(1 / np.square(np.maximum(X.std(0), 1e-9)))))
    model, seconds = timed(lambda: PBDL(random_state=0).fit(X, y))
    search, search_seconds = timed(lambda: PBDLCV(scoring="accuracy", random_state=0).fit(X, y))
    paper = np.nan
    if len(X) <= 300:
        plain = PBDL(n_pieces=None, balanced=False, temperature=0, tol=0.01).fit(X, y)
        paper = average_precision(plain.divergence_, X_new, y_new)
    accuracies = [
        BregmanKNeighborsClassifier(divergence, k).fit(X, y).score(X_new, y_new)
        for divergence, k in ((euclid, 5), (model.divergence_, 5), (search.divergence_, search.n_neighbors_))
    ]
    ranked = [average_precision(each, X_new, y_new) for each in (euclid, model.divergence_)]
    return [ranked[0], paper, ranked[1], seconds, *accuracies, search_seconds]


def of_targets(name: str, home: Path, seed: int) -> list[float]:
    """R^2 of one split, in the order of the columns."""
    X, X_new, y, y_new = train_test_split(*rows_of(name, home), test_size=0.4, random_state=seed)
    scaler = StandardScaler().fit(X)
    ridge = RidgeCV(np.logspace(-3, 4, 15)).fit(scaler.transform(X), y)
    default = DCRegressorCV().n_pieces
    models = [ConvexRegressor(0.01), ConvexRegressor(), DCRegressor(0.01), DCRegressor()]
    models += [DCRegressorCV(n_pieces=each, refinements=0, random_state=0) for each in (*default, default)]
    return [ridge.score(scaler.transform(X_new), y_new), *(model.fit(X, y).score(X_new, y_new) for model in models)]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two sets of each kind, one split")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    home = data_home()
    if home is None:
        parser.error("BREGNET_DATA is not set: it must name the folder of the data sets, NAME.csv.gz each")
    warnings.simplefilter("ignore", ConvergenceWarning)
    most, seeds = (1, (0,)) if options.quick else (99, (0, 1))
    tables = []
    for columns, scores, known, apart in (
        (COLUMNS, of_classes, CLASSES, CLASSES_APART),
        (REGRESSION_COLUMNS, of_targets, TARGETS, TARGETS_APART),
    ):
        table = Table("divergences" if scores is of_classes else "regression", columns)
        tables.append(table)
        for name in [*known[:most], *apart[:most]]:
            means = np.mean([scores(name, home, seed) for seed in seeds], axis=0)
            values = [None if np.isnan(mean) else float(mean) for mean in means]
            table.add(**dict(zip(columns, [f"{name} *" if name in apart else name, *values], strict=True)))
    write_json(options.json, tables)


if __name__ == "__main__":
    main()
