"""Our own columns of tables 3 and 4."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.data import Inner
from benchmarks.rows import Outcome
from bregnet import PBDL, PBDLCV, BregmanKNeighborsClassifier, BregmanNCA, DCRegressor, DCRegressorCV
from bregnet.datasets import Fold

# The items are the rows of the fit. Of abalone a fit takes 5000 iterations and 27 s to a gap of 12%.
CLASSIFICATION: dict[str, Any] = {"scoring": "accuracy", "gallery": "train", "max_iter": 500}
CLASSIFIERS: dict[str, Callable[[Inner, bool], BregmanKNeighborsClassifier]] = {
    "PBDLCV": lambda inner, quick: BregmanKNeighborsClassifier(
        PBDLCV((0.1, 0.01) if quick else None, cv=inner, **CLASSIFICATION, random_state=0)
    ),
    "BregmanNCA": lambda inner, quick: BregmanKNeighborsClassifier(BregmanNCA(random_state=0), 50, weights="softmax"),
}
CHOSEN = (  # if the learner has them
    *("alpha", "temperature", "companion", "companion_weight", "n_neighbors", "n_iter", "feature_map"),
)
ALPHAS, QUICK_ALPHAS = (0.3, 0.03, 0.003, 0.0003), (0.1, 0.001)
SEARCH: dict[str, Any] = {"temperatures": (0.0, 0.1, 0.2), "clip": True, "max_iter": 400, "ensemble": True}


def regression(fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """A search for a DC regression, everything chosen inside the training part."""
    DCRegressor(max_iter=25, tol=1.0).fit(fold.X[:20], fold.y[:20])  # compiled before seconds are counted
    options = {**SEARCH, "max_iter": 200, "refinements": 0} if quick else {**SEARCH, "refinements": 1}
    search = DCRegressorCV(QUICK_ALPHAS if quick else ALPHAS, cv=inner, random_state=0, **options)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is reported
        search.fit(fold.X, fold.y)
    seconds = time.process_time() - began
    extra = {
        "alpha": search.alpha_,
        "temperature": search.temperature_,
        "n_pieces": search.n_pieces_,
        "iterations": search.n_iter_,
        "fits": search.n_fits_,
        "one_fit": float(search.best_estimator_.score(fold.X_test, fold.y_test)),
    }
    score = float(search.score(fold.X_test, fold.y_test))
    return Outcome(score, search.result_.seconds, seconds, search.gap_, extra)


def classification(method: str, fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """Nearest neighbors under a divergence that one of `CLASSIFIERS` has learned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is nothing to learn here
        PBDL(max_iter=25, tol=1.0).fit(fold.X[:20], np.arange(20) % 2)  # compiled before seconds are counted
    model = CLASSIFIERS[method](inner, quick)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is told
        model.fit(fold.X, fold.y)
    seconds, learner = time.process_time() - began, model.learner_
    result = getattr(learner, "result_", None)
    extra = {name: _plain(getattr(learner, f"{name}_", None)) for name in CHOSEN if hasattr(learner, f"{name}_")}
    score = float(model.score(fold.X_test, fold.y_test))
    return Outcome(score, result.seconds if result else seconds, seconds, result.gap if result else None, extra)


def _plain(value: Any) -> Any:
    """Numbers and words as they are, what a file of rows cannot hold as its description."""
    return value if value is None or isinstance(value, int | float | str) else repr(value)
