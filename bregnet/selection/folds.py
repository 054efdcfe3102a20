"""Fits to the training rows of a fold, scored on its test rows while they run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv

from bregnet._core.arrays import refuse_masked
from bregnet.learners.base import Monitor, SolverEstimator
from bregnet.selection.members import Member, mean_function
from bregnet.solver.result import Check

IMPROVEMENT = 1e-3  # of the score: less does not count (paper, section 5.2)
PATIENCE = 50  # iterations in which it may fail to come, beside half as many as it took the last time


class Split(NamedTuple):
    """Row numbers of a fold."""

    train: np.ndarray
    test: np.ndarray


def checked_splits(cv: Any, X: np.ndarray, y: np.ndarray, groups: Any, *, classifier: bool) -> list[Split]:
    """The folds that the parameter `cv` of a search gives, as row numbers."""
    refuse_masked("groups", groups)
    try:
        with np.errstate(invalid="ignore"):  # infinite groups are an error, not a warning
            folds = list(check_cv(cv, y, classifier=classifier).split(X, y, groups))
        splits = [Split(*(_row_numbers(part, len(X), number) for part in fold)) for number, fold in enumerate(folds)]
    except TypeError as error:
        raise TypeError(f"cv must be a number, a splitter or pairs of row numbers, got {cv!r}: {error}") from error
    if not splits:
        raise ValueError(f"cv must give at least one split, got none from {cv!r}")
    return splits


def counted_splits(splits: Sequence[Split], weights: np.ndarray) -> list[Split]:
    """The folds without rows of weight 0, which are neither learned from, nor queries, nor items."""
    found = [Split(*(part[weights[part] > 0] for part in split)) for split in splits]
    for number, split in enumerate(found):
        if not all(map(len, split)):
            counts = f"{len(split.train)} and {len(split.test)}"
            raise ValueError(f"cv must leave rows of positive weight in both parts, got {counts} in fold {number}")
    return found


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


class Variant(NamedTuple):
    """What can be chosen without another fit."""

    temperature: float
    companion: Any = None
    companion_weight: float = 0.0
    n_neighbors: int | None = None


@dataclass(frozen=True)
class Plan:
    """What is the same in every fit of a search.

    Attributes
    ----------
    estimator : SolverEstimator
        Unfitted; clones of it are.
    X, y : ndarray
    score : callable
        From a fitted function, or divergence, and the training and test rows of a fold to a number, higher is better.
    variants : tuple of Variant
        What every fit is scored with.
    early_stopping : bool
        Whether fits end when their score does not rise any more, rather than when their gap is closed.
    relative : bool
        Whether an improvement is measured by the size of the score, which is in the units of y, say.
    members : tuple of Member
        The fits whose mean is scored, and used; one with the estimator's own seed and all features is a plain fit.
    scores : callable or None
        From what was learned, by its temperature, and a fold to the scores of all variants at once; by default `score`
        gives one after the other, of which only the temperatures matter.
    smooth : bool
        Whether a choice is judged with its neighbors in the grid.
    weights : ndarray or None
        Of the rows.
    """

    estimator: SolverEstimator
    X: np.ndarray
    y: np.ndarray
    score: Callable[[Any, Split], float]
    variants: tuple[Variant, ...]
    early_stopping: bool
    relative: bool = False
    members: tuple[Member, ...] = (Member(),)
    scores: Callable[[Callable[..., Any], Split], Sequence[float]] | None = None
    smooth: bool = False
    weights: np.ndarray | None = None

    def weights_of(self, rows: np.ndarray) -> np.ndarray | None:
        """The weights of some rows, if there are any."""
        return None if self.weights is None else self.weights[rows]

    def members_with(self, settings: Mapping[str, Any] | None) -> tuple[Member, ...]:
        """The members of fits with other parameters: one where several would be the same.

        They are where every point has a piece of its own and no member sees a part of the features only.
        """
        if len(self.members) == 1:
            return self.members
        estimator, n_rows = clone(self.estimator).set_params(**(settings or {})), len(self.X)
        cells = isinstance(estimator.n_pieces, Integral) or estimator._piece_count(n_rows) < n_rows
        return self.members if cells or self.members[0].columns is not None else self.members[:1]

    def enough(self, score: float) -> float:
        """What a score must exceed to be an improvement on this one."""
        return score + IMPROVEMENT * (abs(score) if self.relative and math.isfinite(score) else 1.0)

    def fresh(self, rows: np.ndarray, member: Member, settings: Mapping[str, Any] | None) -> Any:
        """A clone for the features of a member and some rows, which may be fewer than the pieces asked for."""
        estimator = clone(self.estimator).set_params(**(settings or {}))
        if isinstance(estimator.n_pieces, Integral):
            weights = self.weights_of(rows)
            n_counted = len(rows) if weights is None else np.count_nonzero(weights)
            estimator.n_pieces = min(estimator.n_pieces, n_counted)
        if member.seed is not None:
            estimator.random_state = member.seed
        signs: Any = getattr(estimator, "monotone", None)
        if member.columns is not None and np.ndim(signs):
            estimator.set_params(monotone=np.asarray(signs)[member.columns])
        return estimator


@dataclass(frozen=True)
class Track:
    """One fit, or the mean of several, and its scores on held-out rows.

    Attributes
    ----------
    iterations : tuple of int
        When it was scored, ascending: once at the end without early stopping.
    scores : ndarray of shape (n_scorings, n_variants)
    n_iter, gap, seconds
        Of the fit; the largest of several, and the seconds of all.
    """

    iterations: tuple[int, ...]
    scores: np.ndarray
    n_iter: int
    gap: float
    seconds: float

    def latest(self, iteration: Any) -> Any:
        """The number of the last scoring after so many iterations, or of the first where there was none yet."""
        return np.clip(np.searchsorted(self.iterations, iteration, side="right") - 1, 0, None)

    def at(self, iterations: Sequence[int]) -> np.ndarray:
        """Scores after so many iterations, (len(iterations), n_variants); beyond the last scoring they stay."""
        return self.scores[self.latest(iterations)]


class ScoreMonitor(Monitor):
    """Scores a fit; with early stopping at every check, ending it when the scores do not rise any more.

    Where several fits are averaged it remembers what it has scored: a function for each scoring and temperature.
    """

    def __init__(self, plan: Plan, split: Split, member: Member) -> None:
        self._plan, self._split, self._member = plan, split, member
        self.tight_from = math.inf if plan.early_stopping else 0.0
        self.iterations: list[int] = []
        self.scores: list[list[float]] = []
        self.functions: list[list[Any]] = []
        self._best, self._best_at = -math.inf, 0
        self._objective = math.inf
        self._latest: tuple[int, Callable[[float], Any]] | None = None

    def __call__(self, check: Check, learned: Callable[[float], Any]) -> bool:
        """Whether the fit should end."""
        if check.objective < self._objective or self._latest is None:  # there is another function to score
            self._objective, self._latest = check.objective, (check.iteration, learned)
            if self._plan.early_stopping:
                self.score()
        return self._plan.early_stopping and check.iteration > 1.5 * self._best_at + PATIENCE

    def finish(self, learned: Callable[[float], Any]) -> None:
        """Take what was learned, unless there was a check before."""
        self._latest = self._latest or (1, learned)

    def score(self) -> None:
        """Score the latest function with every variant."""
        if self._latest is None:
            return
        (iteration, learned), plan = self._latest, self._plan
        self.iterations.append(iteration)
        if plan.scores is not None:
            self.scores.append(list(plan.scores(learned, self._split)))
        else:
            functions = [self._member.widened(learned(each.temperature), plan.X.shape[1]) for each in plan.variants]
            self.scores.append([plan.score(function, self._split) for function in functions])
            if len(plan.members) > 1:
                self.functions.append(functions)
        best = max((score for score in self.scores[-1] if not math.isnan(score)), default=-math.inf)
        if best > plan.enough(self._best):
            self._best, self._best_at = best, iteration


class StopAfter(Monitor):
    """Ends a fit after so many iterations; with `certify` the bound is repaired then, without it never."""

    def __init__(self, n_iter: int, *, certify: bool) -> None:
        self._n_iter = n_iter
        self.tight_from = n_iter if certify else math.inf

    def __call__(self, check: Check, learned: Callable[[float], Any]) -> bool:
        """Whether that many are done."""
        return check.iteration >= self._n_iter


def scored_fits(
    plan: Plan, split: Split, alphas: Sequence[float], settings: Mapping[str, Any] | None = None
) -> list[Track]:
    """Fit the training rows of a fold for each alpha, and score the fits, or their mean, on its test rows.

    `settings` are other parameters of the estimator.
    """
    paths = [_member_fits(plan, split, alphas, member, settings) for member in plan.members_with(settings)]
    if len(paths) == 1:
        return [track for track, _ in paths[0]]
    return [_joined(plan, split, fits) for fits in zip(*paths, strict=True)]


def _member_fits(
    plan: Plan, split: Split, alphas: Sequence[float], member: Member, settings: Mapping[str, Any] | None
) -> list[tuple[Track, ScoreMonitor]]:
    """The fits of one member.

    Without early stopping, fits go on from one alpha to the next. With it they start anew: how far a fit has come from
    rest regularizes it, and a start from another's end is a start from where that one began to overfit.
    """
    X, y = member.features(plan.X[split.train]), plan.y[split.train]
    estimator = plan.fresh(split.train, member, settings).set_params(warm_start=not plan.early_stopping)
    found = []
    for alpha in alphas:
        monitor = ScoreMonitor(plan, split, member)
        began = time.perf_counter()
        estimator.set_params(alpha=alpha)._fit_monitored(X, y, monitor, plan.weights_of(split.train))
        seconds = time.perf_counter() - began
        if not monitor.scores:
            monitor.score()
        scores = np.array(monitor.scores)
        track = Track(tuple(monitor.iterations), scores, estimator.n_iter_, estimator.gap_, seconds)
        found.append((track, monitor))
    return found


def _joined(plan: Plan, split: Split, fits: Sequence[tuple[Track, ScoreMonitor]]) -> Track:
    """One track for the mean of several fits; those that have ended stay as they were."""
    tracks = [track for track, _ in fits]
    moments = sorted({iteration for track in tracks for iteration in track.iterations})
    scores = []
    for moment in moments if plan.early_stopping else moments[-1:]:
        functions = [monitor.functions[track.latest(moment)] for track, monitor in fits]  # (members, variants)
        scores.append([plan.score(mean_function(each), split) for each in zip(*functions, strict=True)])
    n_iter, gap = max(track.n_iter for track in tracks), max(track.gap for track in tracks)
    seconds = sum(track.seconds for track in tracks)
    return Track(tuple(moments[-len(scores) :]), np.array(scores), n_iter, gap, seconds)


def fitted_members(plan: Plan, rows: np.ndarray, choice: Any, members: Sequence[Member], *, certify: bool) -> list[Any]:
    """Members with the chosen parameters, fitted to some rows for as long as was best, as estimators of all features.

    `choice` is a row of the search: n_iter, and `settings`, which are parameters of the estimator.
    """
    fits = []
    for member in members:
        estimator = plan.fresh(rows, member, choice.settings)
        monitor = StopAfter(choice.n_iter, certify=certify) if plan.early_stopping else Monitor()
        estimator._fit_monitored(member.features(plan.X[rows]), plan.y[rows], monitor, plan.weights_of(rows))
        if member.columns is not None:
            n_features, bounds = plan.X.shape[1], estimator.feature_bounds_
            estimator.function_ = member.widened(estimator.function_, n_features)
            estimator.feature_bounds_ = np.zeros(n_features)
            estimator.feature_bounds_[member.columns] = bounds
            estimator.n_features_in_ = n_features
            if getattr(plan.estimator, "monotone", None) is not None:
                estimator.set_params(monotone=plan.estimator.get_params(deep=False)["monotone"])
        fits.append(estimator)
    return fits


def fold_function(plan: Plan, rows: np.ndarray, choice: Any) -> Any:
    """The mean of the members with the chosen parameters, fitted to some rows."""
    fits = fitted_members(plan, rows, choice, plan.members_with(choice.grid), certify=False)
    return mean_function([fit.function_ for fit in sorted(fits, key=lambda fit: -fit.gap_)])
