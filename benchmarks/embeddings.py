"""Learning from vectors of hundreds of features, such as sentence and image embeddings.

    python -m benchmarks.embeddings [--quick] [--json FILE]

Two kinds of vectors of length 1. "made": each class has three parts, and directions have variances that fall as 1 / k,
inside parts and between them; 5,000 rows to learn from and 1,000 new ones. "digits": scikit-learn's digits after two
random layers of a network; 1,078 rows and 719 new ones. Neither had a part in settling defaults but one: that
`feature_map="auto"` is LDA for many features, which the last two rows of each block compare.

mAP is that of new rows among new rows, in percent. Whitening is the Mahalanobis distance of the shrunk covariance
inside classes, LDA the squared distance of discriminant coordinates. Class probabilities of a logistic regression know
the classes. Each row is measured in a process of its own: seconds of the fit, and the peak of
memory, MB, less what was in use before it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.covariance import ledoit_wolf
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from benchmarks.report import Table, machine, write_json
from benchmarks.timing import forget_peak, in_own_process, peak_megabytes
from bregnet import PBDL, BregmanDivergence, FeatureMap, Quadratic, SquaredEuclidean
from bregnet.metrics import mean_average_precision
from bregnet.retrieval.evaluation import retrieval_scores

COLUMNS = {"rows": "8", "features": "d", "classes": "d", "method": "24", "mAP": ".1f", "seconds": ".1f", "MB": ".0f"}
CASES = (("digits", 384, 10), ("made", 384, 50), ("made", 768, 50))
N_NEW = 1000


def made(n_features: int, n_classes: int, n: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of classes of three parts."""
    rng = np.random.default_rng(0)
    scale = np.arange(1, n_features + 1) ** -0.5
    parts = (
        rng.standard_normal((n_classes, 1, n_features)) * 0.2 + rng.standard_normal((n_classes, 3, n_features)) * 0.5
    )
    y, part = rng.integers(n_classes, size=n), rng.integers(3, size=n)
    X = (parts[y, part] + rng.standard_normal((n, n_features))) * scale
    return _of_length_1(X @ np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]), y


def digits(n_features: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Digits after two random layers, in random order."""
    rng, (X, y) = np.random.default_rng(0), load_digits(return_X_y=True)
    order = rng.permutation(len(X))
    hidden = np.maximum((X[order] / 16 - 0.3) @ rng.standard_normal((X.shape[1], 2 * n_features)), 0)
    return _of_length_1(np.maximum(hidden @ rng.standard_normal((2 * n_features, n_features)), 0)), y[order]


def _of_length_1(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def whitening(X: np.ndarray, y: np.ndarray) -> BregmanDivergence:
    """The Mahalanobis distance of the covariance inside classes."""
    inside = X - np.stack([X[y == each].mean(0) for each in range(y.max() + 1)])[y]
    return BregmanDivergence(Quadratic(np.linalg.inv(ledoit_wolf(inside, assume_centered=True)[0])))


def discriminants(X: np.ndarray, y: np.ndarray) -> BregmanDivergence:
    """Squared distances of discriminant coordinates."""
    (step,) = FeatureMap("lda").fit(X, y).point_map_.steps
    return BregmanDivergence(SquaredEuclidean().compose(step.matrix, step.offset))  # type: ignore[union-attr]


def learned(**options: Any) -> Callable[[np.ndarray, np.ndarray], BregmanDivergence]:
    return lambda X, y: PBDL(random_state=0, **options).fit(X, y).divergence_


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "cosine": lambda X, y: BregmanDivergence(SquaredEuclidean()),
    "whitening": whitening,
    "LDA": discriminants,
    "logistic regression": lambda X, y: LogisticRegression(C=10 * len(X[0]), max_iter=200).fit(X, y),
    "PBDL()": learned(),
    "PBDL(feature_map=None)": learned(feature_map=None),
}


def measure(kind: str, n_features: int, n_classes: int, method: str) -> dict[str, float]:
    """mAP of new rows, seconds and megabytes of the fit."""
    warnings.simplefilter("ignore")
    X, y = {"made": made, "digits": digits}[kind](n_features, n_classes)
    n_new = N_NEW if kind == "made" else round(0.4 * len(X))
    PBDL(n_pieces=20, max_iter=25, tol=1.0).fit(X[:100, :20], np.arange(100) % 2)  # compiled before
    forget_peak()
    before, began = peak_megabytes(), time.perf_counter()
    model = METHODS[method](X[n_new:], y[n_new:])
    seconds, megabytes = time.perf_counter() - began, peak_megabytes() - before
    if isinstance(model, BregmanDivergence):
        found = float(np.nanmean(retrieval_scores(model, X[:n_new], y[:n_new])["map"]))
    else:
        shares, others = model.predict_proba(X[:n_new]), ~np.eye(n_new, dtype=bool)
        relevant = y[:n_new, None] == y[:n_new]
        distances, hits = (each[others].reshape(n_new, -1) for each in (1 - shares @ shares.T, relevant))
        found = mean_average_precision(distances, hits)
    return {"mAP": 100 * found, "seconds": seconds, "MB": megabytes}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the digits only")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    print(machine())
    table = Table("vectors of many features", COLUMNS)
    for kind, n_features, n_classes in CASES[:1] if options.quick else CASES:
        for method in METHODS:
            found = in_own_process(measure, kind, n_features, n_classes, method)
            table.add(rows=kind, features=n_features, classes=n_classes, method=method, **found)
    write_json(options.json, [table])


if __name__ == "__main__":
    main()
