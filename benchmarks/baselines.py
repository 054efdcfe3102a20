"""The methods that the paper compares with, tuned over its grids by 5-fold cross-validation, on one thread.

Their seconds are CPU seconds, so that a busy machine does not count against them; `passed_...` are by the clock.
XGBoost comes with the extra `benchmarks`: `pip install 'bregnet[benchmarks]'`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import Lasso, LassoCV
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

from benchmarks.data import Inner
from benchmarks.rows import Outcome
from bregnet.datasets import Fold

N_FOLDS = 5
HAS_XGBOOST = find_spec("xgboost") is not None
INSTALL_XGBOOST = "XGBoost is not installed: pip install 'bregnet[benchmarks]'"


class Grids(NamedTuple):
    """What is searched."""

    n_features: int  # values of the forest's max_features
    n_trees: int
    depths: tuple[int, ...]
    rates: tuple[float, ...]


FULL = Grids(5, 100, tuple(range(1, 11)), (0.05, 0.1, 0.5))
QUICK = Grids(2, 100, (2, 6), (0.1,))


def feature_counts(d: int, at_most: int) -> list[int]:
    """At most so many integers from d^0.25 to d^0.75, evenly spread."""
    low = math.ceil(d**0.25)
    high = max(low, math.floor(d**0.75))
    return sorted({round(value) for value in np.linspace(low, high, at_most)})


class PresentClasses(ClassifierMixin, BaseEstimator):
    """XGBoost's classifier for any labels: it wants 0..C-1, all present, and rare classes miss from some folds.

    A class that is not among the training rows cannot be predicted, and its rows count as errors.
    """

    def __init__(self, max_depth: int = 6, learning_rate: float = 0.3) -> None:
        self.max_depth = max_depth
        self.learning_rate = learning_rate

    def fit(self, X: np.ndarray, y: np.ndarray) -> PresentClasses:
        """Fit to the classes present in y, coded by their place."""
        from xgboost import XGBClassifier

        self.classes_, codes = np.unique(y, return_inverse=True)
        self.model_ = XGBClassifier(max_depth=self.max_depth, learning_rate=self.learning_rate, n_jobs=1)
        self.model_.fit(X, codes)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Labels as they were given."""
        return self.classes_[self.model_.predict(X)]


def _timed(fit: Callable[[], Any]) -> tuple[Any, float, float]:
    """What `fit` returns, its CPU seconds on one thread, and the seconds that passed."""
    with threadpool_limits(1):
        began = time.process_time(), time.perf_counter()
        found = fit()
        return found, time.process_time() - began[0], time.perf_counter() - began[1]


def _search(fold: Fold, inner: Inner, model: Any, grid: dict[str, list]) -> Outcome:
    search = GridSearchCV(model, grid, cv=inner, n_jobs=1, refit=False, error_score="raise")
    _, choosing, passed = _timed(lambda: search.fit(fold.X, fold.y))
    best = clone(model).set_params(**search.best_params_)
    _, each, more = _timed(lambda: best.fit(fold.X, fold.y))
    extra = {**search.best_params_, "passed_per_fit": more, "passed_all": passed + more}
    return Outcome(float(best.score(fold.X_test, fold.y_test)), each, choosing + each, extra=extra)


def lasso(fold: Fold, inner: Inner, quick: bool) -> Outcome:
    """LassoCV as it comes, in the same folds, which give the paper's figures. One fit is that at its penalty."""
    model, seconds, passed = _timed(lambda: LassoCV(cv=inner).fit(fold.X, fold.y))
    _, each, more = _timed(lambda: Lasso(alpha=model.alpha_).fit(fold.X, fold.y))
    extra = {"penalty": float(model.alpha_), "passed_per_fit": more, "passed_all": passed}
    return Outcome(float(model.score(fold.X_test, fold.y_test)), each, seconds, extra=extra)


def forest(fold: Fold, inner: Inner, quick: bool, *, classify: bool = False) -> Outcome:
    """Random forest; how many features each split looks at is chosen."""
    grids = QUICK if quick else FULL
    kind = RandomForestClassifier if classify else RandomForestRegressor
    counts = feature_counts(fold.X.shape[1], grids.n_features)
    model = kind(n_estimators=grids.n_trees, random_state=0, n_jobs=1)
    return _search(fold, inner, model, {"max_features": counts})


def xgboost(fold: Fold, inner: Inner, quick: bool, *, classify: bool = False) -> Outcome:
    """XGBoost; depth and learning rate are chosen, the rest is as it comes."""
    from xgboost import XGBRegressor

    grids = QUICK if quick else FULL
    model = PresentClasses() if classify else XGBRegressor(n_jobs=1)
    grid: dict[str, list] = {"max_depth": list(grids.depths), "learning_rate": list(grids.rates)}
    return _search(fold, inner, model, grid)
