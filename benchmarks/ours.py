"""Our own columns of tables 3 and 4."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from benchmarks import votes
from benchmarks.data import Inner
from benchmarks.rows import Outcome
from bregnet import PBDL, PBDLCV, BregmanKNeighborsClassifier, DCRegressor, DCRegressorCV
from bregnet.datasets import Fold

N_NEIGHBORS = 5
PIECES_OF_OWN_SPLIT = 300  # where the rows to come differ from those seen, few pieces vary less
PIECES = ((2000, None), (4000, 1000))  # elsewhere a piece per point up to so many points, fewer beyond,
LEAST_PIECES = 300  # and so many for the largest sets
FEW_ROWS = 1200  # beyond, the mean of fits that leave folds out gains nothing,
FEWER_FOLDS = 3  # and so many folds are enough to choose by, where rows come shuffled
REGRESSION: dict[str, Any] = {
    "alphas": (0.3, 0.03, 0.003, 0.0003),
    "refinements": 1,
    "temperatures": (0.0, 0.1, 0.2),
    "clip": True,
    "max_iter": 400,
}
ONE_DIVERGENCE: dict[str, Any] = {
    "refinements": 1,
    "temperatures": (0.0, 0.1, 0.3, 1.0),
    "scoring": "accuracy",
    "max_iter": 300,
    "tol": 0.05,
}
SETTINGS: dict[str, Any] = {
    "regression": {
        **REGRESSION,
        "pieces": (PIECES_OF_OWN_SPLIT, PIECES, LEAST_PIECES),
        "folds": (FEW_ROWS, FEWER_FOLDS),
    },
    "classification": votes.SETTINGS,
    "one divergence": {**ONE_DIVERGENCE, "neighbours": N_NEIGHBORS},
}


def regression(fold: Fold, inner: Inner, quick: bool, *, own_split: bool = False) -> Outcome:
    """DC regression: alpha, temperature and the number of iterations chosen inside the training part."""
    few = len(fold.X) <= FEW_ROWS
    if not (few or own_split):
        inner = KFold(FEWER_FOLDS)
    n_pieces = _n_pieces(len(fold.X), own_split)
    model = DCRegressorCV(cv=inner, n_pieces=n_pieces, ensemble=few, random_state=0, **REGRESSION)
    if quick:
        model.set_params(alphas=(0.1, 0.001), refinements=0)
    DCRegressor(max_iter=25, tol=1.0).fit(fold.X[:20], fold.y[:20])  # compiled before the clock starts
    began = time.perf_counter()
    model.fit(fold.X, fold.y)
    seconds = time.perf_counter() - began
    best = model.best_estimator_
    extra = {
        "alpha": model.alpha_,
        "temperature": model.temperature_,
        "iterations": model.n_iter_,
        "fits": model.n_fits_ + model.n_splits_ * few + 1,
        "one_fit": float(best.score(fold.X_test, fold.y_test)),
    }
    return Outcome(float(model.score(fold.X_test, fold.y_test)), best.result_.seconds, seconds, model.gap_, extra)


def _n_pieces(n_rows: int, own_split: bool) -> int | None:
    if own_split:
        return min(PIECES_OF_OWN_SPLIT, n_rows)
    return next((pieces for most, pieces in PIECES if n_rows <= most), LEAST_PIECES)


def classification(fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """Nearest neighbours under several learned divergences, everything chosen inside the training part."""
    _compile(fold)
    began = time.perf_counter()
    found = votes.classify(fold, inner, votes.ALPHAS[1:2] if quick else votes.ALPHAS)
    seconds = time.perf_counter() - began
    fits = found.last_fits
    extra = {"settings": found.settings, "fits": len(fits.gaps) * (inner.get_n_splits() + 1)}
    return Outcome(found.accuracy, float(np.mean(fits.seconds)), seconds, float(np.mean(fits.gaps)), extra)


def one_divergence(fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """Five nearest neighbours under one divergence, alpha and temperature chosen inside the training part."""
    _compile(fold)
    learner = PBDLCV((0.1, 0.01) if quick else None, cv=inner, random_state=0, **ONE_DIVERGENCE)
    began = time.perf_counter()
    learner.fit(fold.X, fold.y)
    model = BregmanKNeighborsClassifier(learner.divergence_, N_NEIGHBORS).fit(fold.X, fold.y)
    seconds = time.perf_counter() - began
    extra = {
        "alpha": learner.alpha_,
        "temperature": learner.temperature_,
        "iterations": learner.n_iter_,
        "fits": learner.n_fits_ + 1,
    }
    score = float(model.score(fold.X_test, fold.y_test))
    return Outcome(score, learner.result_.seconds, seconds, learner.gap_, extra)


def _compile(fold: Fold) -> None:
    """Before the clock starts."""
    PBDL(max_iter=25, tol=1.0, n_pieces=2).fit(fold.X[:20], np.arange(20) % 2)
