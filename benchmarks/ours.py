"""Our own columns of tables 3 and 4."""

from __future__ import annotations

import time
import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from benchmarks.data import Inner
from benchmarks.rows import Outcome
from bregnet import PBDL, BregmanKNeighborsClassifier, DCRegressor, DCRegressorCV
from bregnet.datasets import Fold

ALPHA, MOST_ITERATIONS, N_NEIGHBORS = 0.01, 1000, 5
PIECES_IN_BLOCKS = 300  # where the rows to come differ from those seen, few pieces vary less
OWN_PIECE_POINTS, PIECES = (
    4000,
    1000,
)  # elsewhere every point has its own piece up to here, and so many are there beyond
REGRESSION: dict[str, Any] = {"refinements": 1, "temperatures": (0.0, 0.1, 0.2), "ensemble": True, "clip": True}
SETTINGS: dict[str, Any] = {
    "regression": {**REGRESSION, "pieces": (PIECES_IN_BLOCKS, OWN_PIECE_POINTS, PIECES)},
    "classification": {"alpha": ALPHA, "neighbors": N_NEIGHBORS, "max_iter": MOST_ITERATIONS},
}


def regression(fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """DC regression: alpha, temperature and the number of iterations chosen inside the training part."""
    alphas = (0.1, 0.001) if quick else None
    model = DCRegressorCV(alphas, cv=inner, n_pieces=_n_pieces(len(fold.X), inner), random_state=0, **REGRESSION)
    DCRegressor(max_iter=25, tol=1.0).fit(fold.X[:20], fold.y[:20])  # compiled before the clock starts
    began = time.perf_counter()
    model.fit(fold.X, fold.y)
    seconds = time.perf_counter() - began
    best = model.best_estimator_
    extra = {
        "alpha": model.alpha_,
        "temperature": model.temperature_,
        "iterations": model.n_iter_,
        "fits": model.n_fits_ + model.n_splits_ + 1,
        "one_fit": float(best.score(fold.X_test, fold.y_test)),
    }
    return Outcome(float(model.score(fold.X_test, fold.y_test)), best.result_.seconds, seconds, model.gap_, extra)


def _n_pieces(n_rows: int, inner: Inner) -> int | None:
    if not inner.shuffle:
        return min(PIECES_IN_BLOCKS, n_rows)
    return None if n_rows <= OWN_PIECE_POINTS else PIECES


def classification(fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """Nearest neighbours under a divergence learned at a fixed penalty."""
    learner = PBDL(ALPHA, max_iter=100 if quick else MOST_ITERATIONS, random_state=0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is told
        learner.fit(fold.X, fold.y)
    model = BregmanKNeighborsClassifier(learner.divergence_, N_NEIGHBORS).fit(fold.X, fold.y)
    seconds = time.perf_counter() - began
    score = float(model.score(fold.X_test, fold.y_test))
    return Outcome(score, seconds, seconds, float(learner.gap_), {"alpha": ALPHA})
