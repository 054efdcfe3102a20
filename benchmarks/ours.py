"""Our own columns of tables 3 and 4."""

from __future__ import annotations

import time
import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from benchmarks.data import Inner
from benchmarks.rows import Outcome
from bregnet import PBDL, BregmanKNeighborsClassifier, DCRegressor
from bregnet.datasets import Fold

ALPHA, MOST_PIECES, MOST_ITERATIONS, N_NEIGHBORS = 0.01, 400, 1000, 5
SETTINGS: dict[str, Any] = {
    "regression": {"alpha": ALPHA, "pieces": MOST_PIECES, "max_iter": MOST_ITERATIONS},
    "classification": {"alpha": ALPHA, "neighbors": N_NEIGHBORS, "max_iter": MOST_ITERATIONS},
}


def regression(fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """DC regression at a fixed penalty."""
    n_pieces = min(MOST_PIECES, len(fold.X))
    model = DCRegressor(ALPHA, n_pieces=n_pieces, max_iter=100 if quick else MOST_ITERATIONS, random_state=0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is told
        model.fit(fold.X, fold.y)
    seconds = time.perf_counter() - began
    score = float(model.score(fold.X_test, fold.y_test))
    return Outcome(score, seconds, seconds, float(model.gap_), {"alpha": ALPHA})


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
