"""Cross-validation of solver estimators along alpha: folds side by side, a path or early stopping within each."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import clone
from tqdm.auto import tqdm

from bregnet.learners.base import SolverEstimator
from bregnet.selection.members import Member, averaged
from bregnet.solver.admm import single_threaded_torch
from bregnet.solver.result import Check


class Split(NamedTuple):
    """Row numbers of a fold."""

    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Plan:
    """What is the same in every fit of a search.

    Attributes
    ----------
    estimator : SolverEstimator
        Unfitted; clones of it are.
    X, y : ndarray
    score : callable
        From a fitted estimator and the training and test rows of a fold to a number, higher is better.
    temperatures : tuple of float
    early_stopping : bool
        Whether fits end when their score does not rise any more, rather than when their gap is closed.
    relative : bool
        Whether an improvement is measured by the size of the score, which is in the units of y, say.
    members : tuple of Member
        The fits whose mean is scored, and used; one with the estimator's own seed and all features is a plain fit.
    """

    estimator: SolverEstimator
    X: np.ndarray
    y: np.ndarray
    score: Callable[[Any, Split], float]
    temperatures: tuple[float, ...]
    early_stopping: bool
    relative: bool = False
    members: tuple[Member, ...] = (Member(),)

    def enough(self, score: float) -> float:
        """What a score must exceed to be an improvement on this one (paper, section 5.2)."""
        return score + 1e-3 * (abs(score) if self.relative and math.isfinite(score) else 1.0)

    def fresh(self, n_rows: int, member: Member) -> Any:
        """A clone for the features of a member and so many rows, which may be fewer than the pieces asked for."""
        estimator = clone(self.estimator)
        if isinstance(estimator.n_pieces, Integral):
            estimator.n_pieces = min(estimator.n_pieces, n_rows)
        if member.seed is not None:
            estimator.random_state = member.seed
        signs: Any = getattr(estimator, "monotone", None)
        if member.columns is not None and np.ndim(signs):
            estimator.set_params(monotone=np.asarray(signs)[member.columns])
        return estimator

    def widened(self, fitted: Any, member: Member) -> Any:
        """An estimator of all features from that of a member."""
        whole = member.widened(fitted, self.X.shape[1])
        if member.columns is not None and hasattr(whole, "monotone"):
            whole.monotone = self.estimator.get_params(deep=False)["monotone"]
        return whole


@dataclass(frozen=True)
class Track:
    """One fit, or the mean of several, and its scores on held-out rows.

    Attributes
    ----------
    iterations : tuple of int
        When it was looked at, ascending: once at the end without early stopping.
    scores : ndarray of shape (n_looks, n_temperatures)
    n_iter, gap, seconds
        Of the fit; the largest of several, and the seconds of all.
    """

    iterations: tuple[int, ...]
    scores: np.ndarray
    n_iter: int
    gap: float
    seconds: float

    def latest(self, iteration: Any) -> Any:
        """The number of the last look after so many iterations, or that of the first where there was none yet."""
        return np.clip(np.searchsorted(self.iterations, iteration, side="right") - 1, 0, None)

    def at(self, iterations: Sequence[int]) -> np.ndarray:
        """Scores after so many iterations, (len(iterations), n_temperatures); beyond the last look they stay."""
        return self.scores[self.latest(iterations)]


class Watcher:
    """Looks at the scores of a fit; with early stopping at every check, ending it when they do not rise any more.

    Where several fits are averaged it keeps what it has seen: an estimator for each look and temperature.
    """

    def __init__(self, plan: Plan, split: Split, member: Member) -> None:
        self._plan, self._split, self._member = plan, split, member
        self.tight_from = math.inf if plan.early_stopping else 0.0
        self.iterations: list[int] = []
        self.scores: list[list[float]] = []
        self.seen: list[list[Any]] = []
        self._best, self._best_at = -math.inf, 0
        self._objective = math.inf
        self._latest: tuple[int, Callable[[float], Any]] | None = None

    def __call__(self, check: Check, view: Callable[[float], Any]) -> bool:
        """Take a look; True ends the fit."""
        if check.objective < self._objective or self._latest is None:  # there is another function to see
            self._objective, self._latest = check.objective, (check.iteration, view)
            if self._plan.early_stopping:
                self.look()
        # half as many iterations as the best score took, and some, may bring none that is better
        return self._plan.early_stopping and check.iteration > 1.5 * self._best_at + 50

    def look(self) -> None:
        """Score what was seen last."""
        if self._latest is None:  # solved before the first check
            return
        iteration, view = self._latest
        self._take_in(iteration, [view(temperature) for temperature in self._plan.temperatures])
        best = max((score for score in self.scores[-1] if not math.isnan(score)), default=-math.inf)
        if best > self._plan.enough(self._best):
            self._best, self._best_at = best, iteration

    def finish(self, fitted: Any) -> None:
        """See to it that there is a look at a fit that has ended, be it before the first check."""
        if not self._plan.early_stopping:
            self.look()
        if not self.scores:
            self._take_in(1, [fitted] * len(self._plan.temperatures))

    def _take_in(self, iteration: int, views: list[Any]) -> None:
        views = [self._plan.widened(view, self._member) for view in views]
        self.iterations.append(iteration)
        self.scores.append([self._plan.score(view, self._split) for view in views])
        if len(self._plan.members) > 1:
            self.seen.append(views)


class Silent:
    """Sees nothing, says nothing: the fit runs to its end, and its caller tells how that was."""

    tight_from = 0.0

    def __call__(self, check: Check, view: Callable[[float], Any]) -> bool:
        """Never ends a fit."""
        return False


class StopAfter:
    """Ends a fit after so many iterations; with `certify` the bound is repaired then, without it never."""

    def __init__(self, n_iter: int, *, certify: bool) -> None:
        self._n_iter = n_iter
        self.tight_from = n_iter if certify else math.inf

    def __call__(self, check: Check, view: Callable[[float], Any]) -> bool:
        """Whether that many are done."""
        return check.iteration >= self._n_iter


def follow(plan: Plan, split: Split, alphas: Sequence[float]) -> list[Track]:
    """Fit the training rows of a fold for each alpha, and score the fits, or their mean, on its test rows."""
    paths = [_follow(plan, split, alphas, member) for member in plan.members]
    if len(paths) == 1:
        return [track for track, _ in paths[0]]
    return [_joined(plan, split, fits) for fits in zip(*paths, strict=True)]


def _follow(plan: Plan, split: Split, alphas: Sequence[float], member: Member) -> list[tuple[Track, Watcher]]:
    """The fits of one member.

    Without early stopping, fits go on from one alpha to the next. With it they start anew: how far a fit has come from
    rest regularises it, and a start from another's end is a start from where that one began to overfit.
    """
    X, y = member.of(plan.X[split.train]), plan.y[split.train]
    estimator = plan.fresh(len(X), member).set_params(warm_start=not plan.early_stopping)
    found = []
    for alpha in alphas:
        estimator._watch = watcher = Watcher(plan, split, member)
        began = time.perf_counter()
        estimator.set_params(alpha=alpha).fit(X, y)
        seconds = time.perf_counter() - began
        watcher.finish(estimator)
        scores = np.array(watcher.scores)
        track = Track(tuple(watcher.iterations), scores, estimator.n_iter_, estimator.gap_, seconds)
        found.append((track, watcher))
    return found


def _joined(plan: Plan, split: Split, fits: Sequence[tuple[Track, Watcher]]) -> Track:
    """One track for the mean of several fits; those that have ended stay as they were."""
    tracks = [track for track, _ in fits]
    looks = sorted({iteration for track in tracks for iteration in track.iterations})
    scores = []
    for look in looks if plan.early_stopping else looks[-1:]:
        views = [watcher.seen[track.latest(look)] for track, watcher in fits]  # (members, temperatures)
        scores.append([plan.score(averaged(each), split) for each in zip(*views, strict=True)])
    n_iter, gap = max(track.n_iter for track in tracks), max(track.gap for track in tracks)
    return Track(tuple(looks[-len(scores) :]), np.array(scores), n_iter, gap, sum(track.seconds for track in tracks))


@contextmanager
def _fair_share(caller: int, n_threads: int) -> Iterator[None]:
    """So many threads for torch, where others compute beside; the caller's own process has its setting restored."""
    before = torch.get_num_threads()
    if n_threads >= before:
        yield
    elif os.getpid() == caller:  # a thread of it
        with single_threaded_torch:
            yield
    else:
        torch.set_num_threads(n_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _call(caller: int, n_threads: int, function: Callable[..., Any], arguments: tuple) -> Any:
    with _fair_share(caller, n_threads):
        return function(*arguments)


def side_by_side(function: Callable[..., Any], tasks: Sequence[tuple], n_jobs: int | None) -> Iterable[Any]:
    """`function` of each tuple of arguments, in order, on as many workers as joblib's settings give."""
    n_workers = min(effective_n_jobs(n_jobs), len(tasks))
    if n_workers <= 1:
        return (function(*arguments) for arguments in tasks)
    share = max(1, torch.get_num_threads() // n_workers)
    calls = (delayed(_call)(os.getpid(), share, function, arguments) for arguments in tasks)
    try:
        parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    except ValueError:  # a backend that returns everything at once
        parallel = Parallel(n_jobs=n_jobs)
    return parallel(calls)


class Row(NamedTuple):
    """A choice of alpha and temperature, and how it scored."""

    alpha: float
    temperature: float
    n_iter: int  # after which the mean score is best; without early stopping those of the longest fit
    scores: np.ndarray  # of the folds
    gap: float
    seconds: float

    @property
    def mean(self) -> float:
        """Over the folds."""
        return float(self.scores.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean."""
        return float(self.scores.std(ddof=1) / np.sqrt(len(self.scores))) if len(self.scores) > 1 else 0.0


def rows_of(alpha: float, tracks: Sequence[Track], plan: Plan) -> list[Row]:
    """A row for each temperature, after the number of iterations that is best for it on average over the folds."""
    looks = sorted({iteration for track in tracks for iteration in track.iterations})
    scores = np.stack([track.at(looks) for track in tracks])  # (folds, looks, temperatures)
    means = scores.mean(0)
    best = np.where(np.isnan(means), -np.inf, means).argmax(0)
    longest = max(track.n_iter for track in tracks)
    gap, seconds = (float(np.mean(values)) for values in zip(*[(t.gap, t.seconds) for t in tracks], strict=True))
    return [
        Row(alpha, temperature, looks[at] if plan.early_stopping else longest, scores[:, at, number], gap, seconds)
        for number, (temperature, at) in enumerate(zip(plan.temperatures, best, strict=True))
    ]


def best_row(rows: Iterable[Row], one_standard_error: bool) -> Row:
    """The row of the highest mean score; of equal ones that with the largest alpha, then the least temperature.

    With `one_standard_error`: the best row at the largest alpha that has one within a standard error of the highest.
    Rows whose score is not a number come last.
    """

    def merit(row: Row) -> tuple[float, float, float]:
        return -math.inf if math.isnan(row.mean) else row.mean, row.alpha, -row.temperature

    rows = list(rows)
    best = max(rows, key=merit)
    if one_standard_error and not math.isnan(best.mean):
        enough = best.mean - best.standard_error
        largest = max(row.alpha for row in rows if row.mean >= enough)
        best = max((row for row in rows if row.alpha == largest), key=merit)
    return best


def between(best: float, tried: Sequence[float]) -> list[float]:
    """Alphas half-way, in ratio, to the neighbours of the best one; beyond the last, as far as on the other side."""
    larger = min((alpha for alpha in tried if alpha > best), default=None)
    smaller = max((alpha for alpha in tried if alpha < best), default=None)
    if larger is None and smaller is None:
        return []
    up = larger / best if larger is not None else best / smaller  # type: ignore[operator]
    down = best / smaller if smaller is not None else up
    found = [best * ratio**power for ratio, power in ((up, 0.5), (down, -0.5)) if ratio > 1.01]
    return [alpha for alpha in found if 0 < alpha < math.inf]


class Search(NamedTuple):
    """How to search.

    Attributes
    ----------
    alphas : tuple of float
        The coarse grid.
    refinements : int
        Rounds after it, each half-way between what was tried around the best.
    one_standard_error : bool
    n_jobs : int or None
    verbose : int
    """

    alphas: tuple[float, ...]
    refinements: int
    one_standard_error: bool
    n_jobs: int | None
    verbose: int

    def run(self, plan: Plan, splits: Sequence[Split]) -> list[Row]:
        """Rows of all that was tried, alpha descending."""
        rows: list[Row] = []
        n_fits = len(splits) * len(plan.members)  # for each alpha
        with tqdm(total=len(self.alphas) * n_fits, unit="fit", disable=not self.verbose) as bar:
            new = sorted(set(self.alphas), reverse=True)
            for round_ in range(self.refinements + 1):
                bar.total = bar.n + len(new) * n_fits
                bar.set_description(f"round {round_ + 1} of at most {self.refinements + 1}")
                before = best_row(rows, False).mean if rows else -math.inf
                rows += self._round(plan, splits, new, bar)
                best = best_row(rows, False)
                bar.set_postfix_str(f"best alpha {best.alpha:.3g}, score {best.mean:.4g}")
                new = between(best.alpha, [row.alpha for row in rows])
                if not new or not best.mean > plan.enough(before):
                    break
        return sorted(rows, key=lambda row: (-row.alpha, row.temperature))

    def _round(self, plan: Plan, splits: Sequence[Split], alphas: Sequence[float], bar: tqdm) -> list[Row]:
        paths = [[alpha] for alpha in alphas] if plan.early_stopping else [list(alphas)]
        tasks = [(plan, split, path) for path in paths for split in splits]
        tracks: dict[float, list[Track]] = {alpha: [] for alpha in alphas}
        for (_, _, path), found in zip(tasks, side_by_side(follow, tasks, self.n_jobs), strict=True):
            for alpha, track in zip(path, found, strict=True):
                tracks[alpha].append(track)
            bar.update(len(path) * len(plan.members))
        return [row for alpha in alphas for row in rows_of(alpha, tracks[alpha], plan)]
