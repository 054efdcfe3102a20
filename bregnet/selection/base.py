"""What all searches share: folds, the search, the fit to all rows, and what is reported of them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet._core.notebook import shown_in_notebooks
from bregnet.learners.base import SolverEstimator
from bregnet.selection.folds import Plan, Split, Variant, checked_splits, counted_splits, fitted_members
from bregnet.selection.members import Member
from bregnet.selection.search import Row, Search, n_fits, side_by_side


@shown_in_notebooks
class SearchCV(BaseEstimator, ABC):
    """What the searches share; subclasses have the constructor parameters named here and those of what they search."""

    alphas: Sequence[float] | None
    cv: Any
    refinements: int
    temperatures: Sequence[float]
    early_stopping: bool
    one_standard_error: bool
    n_jobs: int | None
    n_pieces: Any
    verbose: int
    random_state: int | np.random.RandomState | None

    _searched: ClassVar[type[SolverEstimator]]
    _alphas: ClassVar[tuple[float, ...]]  # the coarse grid
    _varied: ClassVar[tuple[str, ...]] = ()  # parameters of what is searched that are chosen without another fit
    _classes = False  # whether targets are class labels
    _relative = False  # whether scores are in units of their own

    @property
    def best_params_(self) -> dict[str, Any]:
        """All that was chosen."""
        return dict(self.cv_results_["params"][self.best_index_])

    @abstractmethod
    def _score_of(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Callable[[Any, Split], float]:
        """From a fitted function, or divergence, and a fold to its score."""

    def _estimator(self) -> SolverEstimator:
        """What is searched, unfitted."""
        own = self.get_params(deep=False)
        names = set(self._searched().get_params(deep=False)) & set(own) - {"random_state", "verbose", *self._varied}
        seed = self.random_state
        if not isinstance(seed, Integral):  # one seed for all fits, whoever makes them
            seed = int(check_random_state(seed).randint(2**31 - 1))
        return self._searched(random_state=seed, **{name: own[name] for name in names})

    def _variants(self) -> tuple[Variant, ...]:
        """What is chosen without another fit."""
        return tuple(map(Variant, check.numbers("temperatures", self.temperatures, check.at_least_zero)))

    def _members(self, estimator: SolverEstimator, X: np.ndarray) -> tuple[Member, ...]:
        """The fits whose mean is searched."""
        return (Member(),)

    def _plan(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Plan:
        estimator = self._estimator()
        return Plan(
            estimator,
            X,
            y,
            self._score_of(X, y, weights),
            self._variants(),
            check.boolean("early_stopping", self.early_stopping),
            self._relative,
            self._members(estimator, X),
            weights=weights,
        )

    def _folds(self, targets: np.ndarray) -> Any:
        """What `cv` stands for."""
        return self.cv

    def _search(self) -> Search:
        return Search(
            alphas=check.numbers("alphas", self._alphas if self.alphas is None else self.alphas, check.positive),
            refinements=check.integer_at_least("refinements", self.refinements, 0),
            one_standard_error=check.boolean("one_standard_error", self.one_standard_error),
            n_jobs=None if self.n_jobs is None else check.jobs(self.n_jobs),
            verbose=check.verbosity(self.verbose),
        )

    @check.all_or_nothing
    def fit(self, X: Array, y: Array, groups: Array | None = None, sample_weight: Array | None = None) -> Any:
        """Choose parameters by cross-validation, then fit all rows with them.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Targets, or class labels.
        groups : array of shape (n_samples,), default=None
            For a splitter that needs them, such as ``GroupKFold`` or ``StratifiedGroupKFold``.
        sample_weight : array of shape (n_samples,), default=None
            Weights of the rows, in fits and in scores. Those of weight 0 are left out.

        Returns
        -------
        self : estimator

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from bregnet import PBDLCV
        >>> X, y = load_wine(return_X_y=True)
        >>> PBDLCV([0.01], cv=3, temperatures=[0.0, 0.3]).fit(X, y).alpha_
        0.01
        """
        features, targets = self._validated(X, y)
        weights = check.sample_weights(sample_weight, len(features))
        plan, search = self._plan(features, targets, weights), self._search()
        splits = checked_splits(self._folds(targets), features, targets, groups, classifier=self._classes)
        splits = splits if weights is None else counted_splits(splits, weights)
        self._check_splits(splits, targets)
        rows, best = search.run(plan, splits)
        if np.isnan(best.mean):
            raise ValueError(self._unscored(plan, splits, best))
        tasks = [(plan, np.arange(len(features)), best, [member]) for member in plan.members_with(best.grid)]
        found = side_by_side(partial(fitted_members, certify=True), tasks, search.n_jobs)
        fits = sorted((fit for each in found for fit in each), key=lambda fit: -fit.gap_)

        self.best_estimator_ = estimator = fits[0]
        if hasattr(self, "feature_names_in_"):
            estimator.feature_names_in_ = self.feature_names_in_
        self.cv_results_ = results_table(rows, self._varied)
        self.best_index_ = next(number for number, row in enumerate(rows) if row is best)
        self.best_score_, self.alpha_, self.temperature_ = best.mean, best.alpha, best.temperature
        self.n_splits_ = len(splits)
        tried = {(row.alpha, id(row.grid)): row.grid for row in rows}
        self.n_fits_ = n_fits(plan, splits, tried.values())
        self.result_, self.gap_, self.n_iter_ = estimator.result_, estimator.gap_, estimator.n_iter_
        self.feature_bounds_ = np.mean([fit.feature_bounds_ for fit in fits], axis=0)
        self._store_learned(plan, splits, best, fits)
        self._warn(rows, best)
        return self

    @abstractmethod
    def _store_learned(self, plan: Plan, splits: Sequence[Split], best: Row, fits: Sequence[Any]) -> None:
        """Store the function, or the divergence, of the fits to all rows, which come by descending gap."""

    def _unscored(self, plan: Plan, splits: Sequence[Split], best: Row) -> str:
        """What is wrong where no choice has a number as its score in all folds."""
        return "scoring must give a number for some alpha in all folds of cv, got nan for every one"

    def _check_splits(self, splits: Sequence[Split], targets: np.ndarray) -> None:
        """Raise an error where a fold cannot be scored."""

    def _validated(self, X: Array, y: Array) -> tuple[np.ndarray, np.ndarray]:
        checks = {"dtype": np.float64, "y_numeric": not self._classes}
        features, targets = check.validate_data(self, to_numpy(X, "X"), to_numpy(y, "y"), **checks)
        self._check_pieces(len(features))
        if not self._classes:
            return features, targets.astype(np.float64)
        check.class_labels(targets)
        if len(np.unique(targets)) < 2:
            raise ValueError("y must have at least 2 classes, got 1 class")
        return features, targets

    def _check_pieces(self, n_rows: int) -> None:
        """Check `n_pieces` for so many rows."""
        check.pieces(self.n_pieces, n_rows)

    def _warn(self, rows: Sequence[Row], best: Row) -> None:
        """Warn the caller of `fit` where something did not go well."""
        name, estimator = type(self).__name__, self.best_estimator_
        if any(np.isnan(row.mean) for row in rows):
            message = f"{name}: scores that are not numbers, for some alphas or temperatures: they come last"
            warnings.warn(message, UserWarning, stacklevel=check.calls_inside() + 1)
        if self.early_stopping and best.n_iter >= estimator.max_iter:
            message = f"{name}: the score was still rising after {best.n_iter} iterations; raise max_iter"
            warnings.warn(message, ConvergenceWarning, stacklevel=check.calls_inside() + 1)
        elif not (estimator.result_.converged or estimator.result_.stopped):
            message = f"{name}: the fit with the best alpha {estimator.result_.status}; raise max_iter or tol"
            warnings.warn(message, ConvergenceWarning, stacklevel=check.calls_inside() + 1)


def results_table(rows: Sequence[Row], varied: Sequence[str] = ()) -> dict[str, Any]:
    """The rows as scikit-learn's searches have them; `varied` are parameters beside alpha and temperature."""
    merits = np.array([row.merit for row in rows])
    scores = np.array([row.scores for row in rows])
    with np.errstate(over="ignore"):  # scores without a lower limit, such as R^2, may be huge
        deviations = scores.std(1)
    params = [
        {"alpha": row.alpha, "temperature": row.temperature}
        | {name: getattr(row.variant, name) for name in varied}
        | dict(row.grid or {})
        for row in rows
    ]
    table = {
        "params": params,
        **{f"param_{name}": _column([each[name] for each in params]) for name in params[0]},
        **{f"split{fold}_test_score": scores[:, fold] for fold in range(scores.shape[1])},
        "mean_test_score": np.array([row.mean for row in rows]),
        "std_test_score": deviations,
        "rank_test_score": 1 + (merits > merits[:, None]).sum(1),
        "n_iter": np.array([row.n_iter for row in rows]),
        "mean_gap": np.array([row.gap for row in rows]),
        "mean_fit_time": np.array([row.seconds for row in rows]),
    }
    if rows[0].judged is not None:
        table["judged_test_score"] = merits
    return table


def _column(values: Sequence[Any]) -> np.ndarray:
    """Numbers, or objects one by one."""
    if all(isinstance(value, Real) and not isinstance(value, bool) for value in values):
        return np.array(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
