"""Our own columns of tables 3 and 4."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.metrics import r2_score

from benchmarks import averages
from benchmarks.data import Inner
from benchmarks.rows import Outcome
from bregnet import PBDL, PBDLCV, BregmanKNeighborsClassifier, BregmanNCA, DCRegressor
from bregnet.datasets import Fold

CLASSIFIERS: dict[str, Callable[[Inner, bool], BregmanKNeighborsClassifier]] = {
    "PBDLCV": lambda inner, quick: BregmanKNeighborsClassifier(
        PBDLCV((0.1, 0.01) if quick else None, scoring="accuracy", cv=inner, random_state=0)
    ),
    "BregmanNCA": lambda inner, quick: BregmanKNeighborsClassifier(BregmanNCA(random_state=0), 50, weights="softmax"),
}
CHOSEN = ("alpha", "temperature", "companion", "companion_weight", "n_neighbors", "n_iter")  # if the learner has them


def regression(fold: Fold, inner: Inner, quick: bool, *, own_split: bool = False) -> Outcome:
    """Averages of DC regressions, everything chosen inside the training part."""
    DCRegressor(max_iter=25, tol=1.0).fit(fold.X[:20], fold.y[:20])  # compiled before seconds are counted
    began = time.process_time()
    found = averages.predict(fold, inner, quick, own_split=own_split)
    seconds = time.process_time() - began
    kept = [search for search, keep in zip(found.searches, found.kept, strict=True) if keep]
    best = max(kept, key=lambda search: search.best_score_)
    extra = {
        "alpha": best.alpha_,
        "temperature": best.temperature_,
        "iterations": best.n_iter_,
        "fits": sum(search.n_fits_ for search in found.searches),
        "kept": found.kept,
        "inner": [search.best_score_ for search in found.searches],
        "one_fit": float(r2_score(fold.y_test, found.one_fit)),
    }
    score, gap = float(r2_score(fold.y_test, found.predicted)), max(search.gap_ for search in kept)
    return Outcome(score, best.result_.seconds, seconds, gap, extra)


def classification(method: str, fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """Nearest neighbors under a divergence that one of `CLASSIFIERS` has learned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is nothing to learn here
        PBDL(max_iter=25, tol=1.0).fit(fold.X[:20], np.arange(20) % 2)  # compiled before seconds are counted
    model = CLASSIFIERS[method](inner, quick)
    began = time.process_time()
    model.fit(fold.X, fold.y)
    seconds, learner = time.process_time() - began, model.learner_
    result = getattr(learner, "result_", None)
    extra = {name: getattr(learner, f"{name}_", None) for name in CHOSEN if hasattr(learner, f"{name}_")}
    score = float(model.score(fold.X_test, fold.y_test))
    return Outcome(score, result.seconds if result else seconds, seconds, result.gap if result else None, extra)
