"""Our own columns of tables 3 and 4."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from benchmarks import averages, votes
from benchmarks.data import Inner
from benchmarks.rows import Outcome
from bregnet import PBDL, PBDLCV, BregmanKNeighborsClassifier, DCRegressor
from bregnet.datasets import Fold

N_NEIGHBORS = 5
ONE_DIVERGENCE: dict[str, Any] = {
    "refinements": 1,
    "temperatures": (0.0, 0.1, 0.3, 1.0),
    "scoring": "accuracy",
    "max_iter": 300,
    "tol": 0.05,
}
SETTINGS: dict[str, Any] = {
    "regression": averages.SETTINGS,
    "classification": votes.SETTINGS,
    "one divergence": {**ONE_DIVERGENCE, "neighbours": N_NEIGHBORS},
}


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


def classification(fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """Nearest neighbours under several learned divergences, everything chosen inside the training part."""
    _compile(fold)
    began = time.process_time()
    found = votes.classify(fold, inner, votes.ALPHAS[1:2] if quick else votes.ALPHAS)
    seconds = time.process_time() - began
    fits = found.last_fits
    extra = {"settings": found.settings, "fits": len(fits.gaps) * (inner.get_n_splits() + 1)}
    return Outcome(found.accuracy, float(np.mean(fits.seconds)), seconds, float(np.mean(fits.gaps)), extra)


def one_divergence(fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """Five nearest neighbours under one divergence, alpha and temperature chosen inside the training part."""
    _compile(fold)
    learner = PBDLCV((0.1, 0.01) if quick else None, cv=inner, random_state=0, **ONE_DIVERGENCE)
    began = time.process_time()
    learner.fit(fold.X, fold.y)
    model = BregmanKNeighborsClassifier(learner.divergence_, N_NEIGHBORS).fit(fold.X, fold.y)
    seconds = time.process_time() - began
    extra = {
        "alpha": learner.alpha_,
        "temperature": learner.temperature_,
        "iterations": learner.n_iter_,
        "fits": learner.n_fits_ + 1,
    }
    score = float(model.score(fold.X_test, fold.y_test))
    return Outcome(score, learner.result_.seconds, seconds, learner.gap_, extra)


def _compile(fold: Fold) -> None:
    """Before seconds are counted."""
    PBDL(max_iter=25, tol=1.0, n_pieces=2).fit(fold.X[:20], np.arange(20) % 2)
