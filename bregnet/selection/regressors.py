"""Regression with alpha, temperature and the number of pieces chosen by cross-validation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import get_scorer

from bregnet._core import validation as check
from bregnet.learners import ConvexRegressor, DCRegressor
from bregnet.learners.base import SolverEstimator
from bregnet.learners.regressors import FunctionRegressor
from bregnet.selection.base import SearchCV
from bregnet.selection.folds import Plan, Split, fold_function
from bregnet.selection.members import Member, drawn, mean_function, weighted
from bregnet.selection.search import Row, Search, side_by_side

FINITE = (-sys.float_info.max, sys.float_info.max)


class _Predictor(RegressorMixin, BaseEstimator):
    """A function as a regressor, for the scorers of scikit-learn."""

    def __init__(self, function: Any, bounds: tuple[float, float] = FINITE) -> None:
        self.function = function
        self.bounds = bounds

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Its values, within the bounds; scorers refuse infinite ones."""
        return self.function(X).clip(*self.bounds)


@dataclass(frozen=True)
class _PredictionScore:
    """Scores of a function by a scorer of scikit-learn."""

    scorer: Callable[[Any, np.ndarray, np.ndarray], float]
    clip: bool
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None

    def __call__(self, function: Any, split: Split) -> float:
        seen = self.y[split.train]
        model = _Predictor(function, (float(seen.min()), float(seen.max())) if self.clip else FINITE)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # huge targets: no score, and no noise
            score = self.scorer(model, self.X[split.test], self.y[split.test], **self._weights(split.test))
        if not isinstance(score, Real):
            raise TypeError(f"scoring must give a number, got {score!r}")
        return float(score) if np.isfinite(score) else np.nan

    def _weights(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {} if self.weights is None else {"sample_weight": self.weights[rows]}


def _errors_overflow(predicted: np.ndarray, targets: np.ndarray) -> bool:
    """Whether the sum of squared errors, or its ratio to that of the mean, is beyond double precision."""
    with np.errstate(over="ignore", invalid="ignore"):
        errors, spread = np.square(predicted - targets).sum(), np.square(targets - targets.mean()).sum()
        return not np.isfinite(errors / (spread or 1.0))


class _RegressorCV(FunctionRegressor, SearchCV):
    """Search for a regressor; what it predicts may be the mean of several fits."""

    _alphas = (1.0, 0.1, 0.01, 0.001, 0.0001)

    scoring: Any
    ensemble: bool
    n_estimators: int
    max_features: float | int

    @property
    def n_pieces_(self) -> int | str | None:
        """The choice out of `n_pieces`, as the fit to all rows has it."""
        return self.best_estimator_.n_pieces

    # The default was settled by scores in folds of the training rows, in percent: of 10, 25, 50, 100 and 200 cells and
    # a piece per point, 50 cells are best on garment (25.3; a piece per point has 17.4) and air quality (89.9; 89.6),
    # 10 on solar flare (8.2; 6.1), a piece per point on concrete (89.9; 50 cells have 83.9) and airfoil (95.3; 79.9),
    # and 100 on music (30.2; 50 cells have 28.1, a piece per point 27.8). `benchmarks.defaults` compares those of the
    # default, on other splits.
    @property
    def _piece_counts(self) -> Sequence[Any]:
        """What `n_pieces` has to choose from."""
        return self.n_pieces if isinstance(self.n_pieces, list | tuple) else [self.n_pieces]

    def _check_pieces(self, n_rows: int) -> None:
        if not self._piece_counts:
            raise ValueError("n_pieces must be one choice or a list with some, got an empty one")
        several = len(self._piece_counts) > 1  # of which some may be meant for more rows
        for each in self._piece_counts:
            check.pieces(each, sys.maxsize if several else n_rows)

    def _estimator(self) -> SolverEstimator:
        return super()._estimator().set_params(n_pieces=self._piece_counts[0])

    def _search(self) -> Search:
        return super()._search()._replace(grid=[{"n_pieces": each} for each in self._piece_counts])

    def _members(self, estimator: SolverEstimator, X: np.ndarray) -> tuple[Member, ...]:
        n_features = X.shape[1]
        check.boolean("ensemble", self.ensemble)
        n_members = check.integer_at_least("n_estimators", self.n_estimators, 1)
        n_columns = check.max_features(self.max_features, n_features)
        if n_columns < n_features:
            check.monotone_signs(getattr(self, "monotone", None), n_features)
        assert isinstance(estimator.random_state, Integral)
        return drawn(n_members, n_columns, n_features, int(estimator.random_state))

    @property
    def _relative(self) -> bool:  # type: ignore[override]
        return self.scoring not in (None, "r2")

    def _score_of(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Callable[[Any, Split], float]:
        scorer = get_scorer("r2" if self.scoring is None else self.scoring)
        own = callable(self.scoring)  # whether it takes weights is not known
        return _PredictionScore(scorer, check.boolean("clip", self.clip), X, y, None if own else weights)

    def _unscored(self, plan: Plan, splits: Sequence[Split], best: Row) -> str:
        fold = int(np.isnan(best.scores).argmax())
        train, test = splits[fold]
        mean = np.full(len(test), plan.y[train].mean())
        fitted = fold_function(plan, train, best)(plan.X[test])
        for name, values, predicted in (("y", plan.y, mean), ("X", plan.X, fitted)):
            if _errors_overflow(predicted, plan.y[test]):
                found = f"got values from {values.min():.3g} to {values.max():.3g} and no score in fold {fold}"
                return f"{name} must not have values so far apart that errors overflow, {found}"
        return super()._unscored(plan, splits, best)

    def _store_learned(self, plan: Plan, splits: Sequence[Split], best: Row, fits: Sequence[Any]) -> None:
        function = mean_function([fit.function_ for fit in fits])
        if self.ensemble:
            tasks = [(plan, split.train, best) for split in splits]
            others = list(side_by_side(fold_function, tasks, self.n_jobs))
            function = weighted([function, *others], [0.5] + [0.5 / len(others)] * len(others))
        self.function_, self.target_range_ = function, fits[0].target_range_


class ConvexRegressorCV(_RegressorCV):
    """Convex regression with alpha, temperature and the number of pieces chosen by cross-validation.

    A coarse grid of alphas, then rounds around the best (paper, section 5.2). With `early_stopping` also the number of
    iterations is chosen: fits that start from zero and end early predict better on noisy data, and cost less.

    Parameters
    ----------
    alphas : sequence of float, default=None
        The coarse grid; None is 1, 0.1, 0.01, 0.001, 0.0001.
    cv : int, splitter or iterable of (train, test), default=None
        Folds; None is five of consecutive rows. ``KFold(5, shuffle=True)`` where the order of rows means nothing.
    refinements : int, default=2
        Rounds after the coarse grid, at most: each tries the alphas half-way, in ratio, to the neighbors of the best.
        A round that does not raise the score by 0.001 is the last.
    temperatures : sequence of float, default=(0.0, 0.1)
        Smoothings to choose from; they cost no fits.
    scoring : str or callable, default=None
        A scorer of scikit-learn, or its name; None is R^2. It is called with a regressor whose `predict` is that of the
        fit.
    early_stopping : bool, default=True
        End fits when the score on held-out rows does not rise by 0.001 (of its size, with a `scoring` of your own) any
        more, and choose the number of iterations that is best on average. Otherwise fits run to `tol`, each from where
        that of the next larger alpha ended.
    one_standard_error : bool, default=False
        Take the largest alpha whose score is within a standard error of the best.
    ensemble : bool, default=False
        Predict the mean of the fit to all rows and of the mean of those that leave a fold out. It varies less: better
        on noisy data, a little worse on clean data.
    n_estimators : int, default=1
        Fits whose mean is scored and predicted, each with cells of its own. With a piece per point there are no cells,
        and unless `max_features` sets them apart one fit is made. With early stopping, fits end by their own score
        while parameters are chosen, and together afterwards.
    max_features : float or int, default=1.0
        Share (rounded to a whole number of features), or number, of the features that each fit sees, drawn at random.
        Fits to fewer features are worse alone, but their mean may be better where each of many features says a little.
    n_jobs : int, default=None
        Fits at the same time, by joblib and so on any of its backends; their threads share the cores.
    monotone : array-like of shape (n_features,) or int, default=None
    n_pieces : int, "auto", None or a list of these, default=("auto", 50, 10)
        Of a list, each is tried with every alpha of the coarse grid, and the rounds after it go on with the best. With
        dozens of features a piece per point ("auto") may have more freedom than the rows settle, and few cells predict
        better and are faster; where rows are plenty it is the other way round. A number beyond the rows of a fold
        stands for a piece per row.
    clip : bool, default=False
    standardize : bool, default=True
    tol : float, default=0.01
    max_iter : int, default=5000
    device : str or torch.device, default="auto"
        As in :class:`ConvexRegressor`.
    verbose : int, default=0
        1 shows a progress bar over the fits.
    random_state : int, RandomState or None, default=None
        Seed of the cells, and of the features that are drawn.

    Attributes
    ----------
    alpha_, temperature_ : float
        What was chosen.
    n_pieces_ : int, "auto" or None
        What was chosen of `n_pieces`; the number of rows where that is less.
    best_params_ : dict
        All that was chosen.
    best_score_ : float
        Its mean score.
    best_estimator_ : ConvexRegressor
        Fitted to all rows with it; of several fits the one with the largest gap.
    function_ : MaxAffine or GeneratorSum
        What is predicted.
    cv_results_ : dict of arrays
        A row for each alpha, temperature and choice of pieces, as in ``GridSearchCV``; also the iterations (`n_iter`),
        certified gaps (with early stopping from quick bounds, so large) and times.
    best_index_, n_splits_, n_fits_ : int
    target_range_, feature_bounds_, result_, gap_, n_iter_
        Those of `best_estimator_`; of several fits `feature_bounds_` is the mean. A fit that ends early has a larger
        gap: it says how far the program was solved.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import KFold
    >>> from bregnet import ConvexRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (60, 2))
    >>> y = np.square(X).sum(1) + 0.05 * rng.standard_normal(60)
    >>> model = ConvexRegressorCV([0.1, 0.01], cv=KFold(3, shuffle=True, random_state=0), refinements=0).fit(X, y)
    >>> model.alpha_, model.score(X, y) > 0.9
    (0.01, True)
    """

    _searched = ConvexRegressor

    def __init__(
        self,
        alphas: Sequence[float] | None = None,
        *,
        cv: Any = None,
        refinements: int = 2,
        temperatures: Sequence[float] = (0.0, 0.1),
        scoring: Any = None,
        early_stopping: bool = True,
        one_standard_error: bool = False,
        ensemble: bool = False,
        n_estimators: int = 1,
        max_features: float | int = 1.0,
        n_jobs: int | None = None,
        monotone: Any = None,
        n_pieces: int | str | Sequence[int | str | None] | None = ("auto", 50, 10),
        clip: bool = False,
        standardize: bool = True,
        tol: float = 1e-2,
        max_iter: int = 5000,
        device: str | torch.device = "auto",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alphas = alphas
        self.cv = cv
        self.refinements = refinements
        self.temperatures = temperatures
        self.scoring = scoring
        self.early_stopping = early_stopping
        self.one_standard_error = one_standard_error
        self.ensemble = ensemble
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.n_jobs = n_jobs
        self.monotone = monotone
        self.n_pieces = n_pieces
        self.clip = clip
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.device = device
        self.verbose = verbose
        self.random_state = random_state


class DCRegressorCV(_RegressorCV):
    """Difference-of-convex regression, its parameters chosen by cross-validation.

    As :class:`ConvexRegressorCV`, without `monotone`.

    Parameters
    ----------
    alphas : sequence of float, default=None
        The coarse grid; None is 1, 0.1, 0.01, 0.001, 0.0001.
    cv : int, splitter or iterable of (train, test), default=None
        Folds; None is five of consecutive rows.
    refinements : int, default=2
        Rounds around the best after the coarse grid, at most.
    temperatures : sequence of float, default=(0.0, 0.1)
        Smoothings to choose from.
    scoring : str or callable, default=None
        A scorer of scikit-learn, or its name; None is R^2.
    early_stopping : bool, default=True
        Choose the number of iterations, too.
    one_standard_error : bool, default=False
        Take the largest alpha whose score is within a standard error of the best.
    ensemble : bool, default=False
        Predict the mean of the fit to all rows and those that leave a fold out.
    n_estimators : int, default=1
        Fits whose mean is scored and predicted, each with cells of its own; one where every point has its own piece,
        unless `max_features` sets them apart.
    max_features : float or int, default=1.0
        Share, or number, of the features that each fit sees, drawn at random.
    n_jobs : int, default=None
        Fits at the same time.
    n_pieces : int, "auto", None or a list of these, default=("auto", 50, 10)
        A piece per point or cells; of a list, the best is chosen.
    clip : bool, default=False
    standardize : bool, default=True
    tol : float, default=0.01
    max_iter : int, default=5000
    device : str or torch.device, default="auto"
        As in :class:`DCRegressor`.
    verbose : int, default=0
        1 shows a progress bar over the fits.
    random_state : int, RandomState or None, default=None
        Seed of the cells, and of the features that are drawn.

    Attributes
    ----------
    alpha_, temperature_, best_score_ : float
    n_pieces_ : int, "auto" or None
    best_params_ : dict
    best_estimator_ : DCRegressor
        Of several fits the one with the largest gap.
    function_ : DifferenceOfConvex
    cv_results_ : dict of arrays
    best_index_, n_splits_, n_fits_ : int
    target_range_, feature_bounds_, result_, gap_, n_iter_
        Those of `best_estimator_`; of several fits `feature_bounds_` is the mean.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import KFold
    >>> from bregnet import DCRegressorCV
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> folds = KFold(3, shuffle=True, random_state=0)
    >>> model = DCRegressorCV([0.1, 0.001], cv=folds, refinements=0).fit(X, np.sin(X[:, 0]))
    >>> model.alpha_, model.best_score_ > 0.95
    (0.001, True)
    """

    _searched = DCRegressor

    def __init__(
        self,
        alphas: Sequence[float] | None = None,
        *,
        cv: Any = None,
        refinements: int = 2,
        temperatures: Sequence[float] = (0.0, 0.1),
        scoring: Any = None,
        early_stopping: bool = True,
        one_standard_error: bool = False,
        ensemble: bool = False,
        n_estimators: int = 1,
        max_features: float | int = 1.0,
        n_jobs: int | None = None,
        n_pieces: int | str | Sequence[int | str | None] | None = ("auto", 50, 10),
        clip: bool = False,
        standardize: bool = True,
        tol: float = 1e-2,
        max_iter: int = 5000,
        device: str | torch.device = "auto",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alphas = alphas
        self.cv = cv
        self.refinements = refinements
        self.temperatures = temperatures
        self.scoring = scoring
        self.early_stopping = early_stopping
        self.one_standard_error = one_standard_error
        self.ensemble = ensemble
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.n_jobs = n_jobs
        self.n_pieces = n_pieces
        self.clip = clip
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.device = device
        self.verbose = verbose
        self.random_state = random_state
