"""What all searches for alpha share: folds, the search, the fit to all rows, and what is told of them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state

from bregnet._core import validation as check
from bregnet._core.arrays import Array
from bregnet._core.notebook import shown_in_notebooks
from bregnet.learners.base import SolverEstimator
from bregnet.selection.members import Member, averaged
from bregnet.selection.path import Plan, Row, Search, Silent, Split, StopAfter, best_row, side_by_side

ALPHAS = (1.0, 0.1, 0.01, 0.001, 0.0001)  # the coarse grid


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
    verbose: int
    random_state: int | np.random.RandomState | None

    _searched: ClassVar[type[SolverEstimator]]
    _classes = False
    _relative = False  # whether scores are in units of their own

    @abstractmethod
    def _score_of(self, X: np.ndarray, y: np.ndarray) -> Callable[[Any, Split], float]:
        """From a fitted estimator and a fold to its score."""

    def _estimator(self) -> SolverEstimator:
        """What is searched, unfitted."""
        own = self.get_params(deep=False)
        chosen_here = {"alpha", "callback", "checkpoint", "random_state", "temperature", "verbose", "warm_start"}
        names = set(self._searched().get_params(deep=False)) - chosen_here
        seed = self.random_state
        if not isinstance(seed, Integral):  # one seed for all fits, whoever makes them
            seed = int(check_random_state(seed).randint(2**31 - 1))
        return self._searched(random_state=seed, **{name: own[name] for name in names})

    def _members(self, estimator: SolverEstimator, X: np.ndarray) -> tuple[Member, ...]:
        """The fits whose mean is searched."""
        return (Member(),)

    def _plan(self, X: np.ndarray, y: np.ndarray) -> Plan:
        estimator = self._estimator()
        return Plan(
            estimator,
            X,
            y,
            self._score_of(X, y),
            check.numbers("temperatures", self.temperatures, check.at_least_zero),
            check.boolean("early_stopping", self.early_stopping),
            self._relative,
            self._members(estimator, X),
        )

    def _search(self) -> Search:
        return Search(
            alphas=check.numbers("alphas", ALPHAS if self.alphas is None else self.alphas, check.positive),
            refinements=check.integer_at_least("refinements", self.refinements, 0),
            one_standard_error=check.boolean("one_standard_error", self.one_standard_error),
            n_jobs=None if self.n_jobs is None else check.jobs(self.n_jobs),
            verbose=check.verbosity(self.verbose),
        )

    def _splits(self, X: np.ndarray, y: np.ndarray, groups: Array | None) -> list[Split]:
        """The folds as row numbers, checked."""
        splits = []
        for number, parts in enumerate(self._folds(X, y, groups)):
            split = Split(*(_row_numbers(part, len(X), number) for part in parts))
            self._check_split(split, y, number)
            splits.append(split)
        if not splits:
            raise ValueError(f"cv must give at least one split, got none from {self.cv!r}")
        return splits

    def _folds(self, X: np.ndarray, y: np.ndarray, groups: Array | None) -> list[Any]:
        """What cv gives: pairs."""
        try:
            parts = [
                (train, test) for train, test in check_cv(self.cv, y, classifier=self._classes).split(X, y, groups)
            ]
        except TypeError as error:
            raise TypeError(
                f"cv must be a number, a splitter or pairs of row numbers, got {self.cv!r}: {error}"
            ) from error
        return parts

    def _check_split(self, split: Split, y: np.ndarray, number: int) -> None:
        """Raise an error where a fold cannot be scored."""

    def _choose(self, X: np.ndarray, y: np.ndarray, groups: Array | None) -> tuple[Plan, list[Split], Row, Any]:
        """Search, fit all rows with the best, and record what was found; the last is the mean of the members' fits."""
        plan, search = self._plan(X, y), self._search()
        check.pieces(plan.estimator.n_pieces, len(X))
        splits = self._splits(X, y, groups)
        rows = search.run(plan, splits)
        best = best_row(rows, search.one_standard_error)
        if np.isnan(best.mean):
            raise ValueError("scoring must give a number for some alpha in all folds of cv, got nan for every one")
        fits = fitted_members(plan, best, np.arange(len(X)), n_jobs=search.n_jobs, certify=True)
        estimator, whole = fits[0], averaged(fits)
        self._tell(rows, best, estimator)
        if hasattr(self, "feature_names_in_"):
            estimator.feature_names_in_ = self.feature_names_in_
        self.cv_results_ = results_of(rows)
        self.best_index_ = rows.index(best)
        self.best_score_, self.alpha_, self.temperature_ = best.mean, best.alpha, best.temperature
        self.n_splits_ = len(splits)
        self.n_fits_ = len(splits) * len({row.alpha for row in rows}) * len(plan.members)
        self.best_estimator_ = estimator
        self.result_, self.gap_, self.n_iter_ = estimator.result_, estimator.gap_, estimator.n_iter_
        self.feature_bounds_ = whole.feature_bounds_
        return plan, splits, best, whole

    def _tell(self, rows: Sequence[Row], best: Row, estimator: SolverEstimator) -> None:
        """Warn the caller of `fit` where something did not go well."""
        name = type(self).__name__
        if any(np.isnan(row.mean) for row in rows):
            message = f"{name}: scores that are not numbers, for some alphas or temperatures: they come last"
            warnings.warn(message, UserWarning, stacklevel=check.calls_inside() + 1)
        if self.early_stopping and best.n_iter >= estimator.max_iter:
            message = f"{name}: the score was still rising after {best.n_iter} iterations; raise max_iter"
            warnings.warn(message, ConvergenceWarning, stacklevel=check.calls_inside() + 1)
        elif not (estimator.result_.converged or estimator.result_.stopped):
            message = f"{name}: the fit with the best alpha {estimator.result_.status}; raise max_iter or tol"
            warnings.warn(message, ConvergenceWarning, stacklevel=check.calls_inside() + 1)


def _row_numbers(part: Any, n_rows: int, number: int) -> np.ndarray:
    """Rows of a part of a fold; a mask will do."""
    rows = np.asarray(part)
    if rows.dtype == bool and rows.shape == (n_rows,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or len(rows) == 0 or rows.dtype.kind not in "iu":
        raise ValueError(f"cv must give row numbers for both parts, got {part!r} in fold {number}")
    if rows.min() < -n_rows or rows.max() >= n_rows:
        raise ValueError(f"cv must give row numbers below {n_rows}, got {rows.min()} to {rows.max()} in fold {number}")
    return rows


def fitted_members(
    plan: Plan, row: Row, rows: np.ndarray, *, n_jobs: int | None = None, certify: bool = False
) -> list[SolverEstimator]:
    """The members with the chosen parameters, fitted to some rows for as long as was best, largest gap first."""
    tasks = [(plan, row, rows, member, certify) for member in plan.members]
    return sorted(side_by_side(_fitted_member, tasks, n_jobs), key=lambda fitted: -fitted.gap_)


def fitted_as(plan: Plan, row: Row, rows: np.ndarray) -> SolverEstimator:
    """The mean of the members with the chosen parameters, fitted to some rows."""
    return averaged(fitted_members(plan, row, rows))


def _fitted_member(plan: Plan, row: Row, rows: np.ndarray, member: Member, certify: bool) -> SolverEstimator:
    estimator = plan.fresh(len(rows), member).set_params(alpha=row.alpha, temperature=row.temperature)
    estimator._watch = StopAfter(row.n_iter, certify=certify) if plan.early_stopping else Silent()
    estimator.fit(member.of(plan.X[rows]), plan.y[rows])
    estimator._watch = None
    return plan.widened(estimator, member)


def results_of(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows as scikit-learn's searches have them."""
    means = np.array([row.mean for row in rows])
    known = np.where(np.isnan(means), -np.inf, means)
    scores = np.array([row.scores for row in rows])
    return {
        "params": [{"alpha": row.alpha, "temperature": row.temperature} for row in rows],
        "param_alpha": np.array([row.alpha for row in rows]),
        "param_temperature": np.array([row.temperature for row in rows]),
        **{f"split{fold}_test_score": scores[:, fold] for fold in range(scores.shape[1])},
        "mean_test_score": means,
        "std_test_score": scores.std(1),
        "rank_test_score": 1 + (known > known[:, None]).sum(1),
        "n_iter": np.array([row.n_iter for row in rows]),
        "mean_gap": np.array([row.gap for row in rows]),
        "mean_fit_time": np.array([row.seconds for row in rows]),
    }
