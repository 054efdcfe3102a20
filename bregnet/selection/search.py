"""The search for alpha and what goes with it: a coarse grid, then rounds around the best, folds side by side."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from tqdm.auto import tqdm

from bregnet.selection.folds import Plan, Split, Track, Variant, scored_fits
from bregnet.solver.admm import single_threaded_torch


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
    """A choice of parameters, and how it scored."""

    alpha: float
    variant: Variant
    n_iter: int  # after which the mean score is best; without early stopping those of the longest fit
    scores: np.ndarray  # of the folds
    gap: float
    seconds: float
    grid: Mapping[str, Any] | None = None  # other parameters, which take fits of their own
    judged: float | None = None  # the mean of this choice and its neighbors in the grid

    @property
    def temperature(self) -> float:
        """Of the variant."""
        return self.variant.temperature

    @property
    def settings(self) -> dict[str, Any]:
        """Parameters of the estimator."""
        chosen = {"alpha": self.alpha, "temperature": self.temperature, **(self.grid or {})}
        if self.variant.companion is not None:
            chosen |= {"companion": self.variant.companion, "companion_weight": self.variant.companion_weight}
        return chosen

    @property
    def merit(self) -> float:
        """What it is judged by; of scores that are not numbers the least."""
        merit = self.mean if self.judged is None else self.judged
        return -math.inf if math.isnan(merit) else merit

    @property
    def mean(self) -> float:
        """Over the folds."""
        return float(self.scores.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean."""
        if len(self.scores) == 1:
            return 0.0
        with np.errstate(over="ignore"):
            return float(self.scores.std(ddof=1) / np.sqrt(len(self.scores)))


def rows_of(alpha: float, tracks: Sequence[Track], plan: Plan, grid: Mapping[str, Any] | None = None) -> list[Row]:
    """A row for each variant, after the number of iterations that is best for it on average over the folds."""
    moments = sorted({iteration for track in tracks for iteration in track.iterations})
    scores = np.stack([track.at(moments) for track in tracks])  # (folds, moments, variants)
    means = scores.mean(0)
    best = np.where(np.isnan(means), -np.inf, means).argmax(0)
    longest = max(track.n_iter for track in tracks)
    gap, seconds = (float(np.mean(values)) for values in zip(*[(t.gap, t.seconds) for t in tracks], strict=True))
    ends = [moments[at] if plan.early_stopping else longest for at in best]
    return [
        Row(alpha, variant, ends[number], scores[:, at, number], gap, seconds, grid)
        for number, (variant, at) in enumerate(zip(plan.variants, best, strict=True))
    ]


def judged(rows: Sequence[Row]) -> list[Row]:
    """Rows that are judged by the mean over themselves and what is next to them in alpha and number of neighbors.

    The best of very many cells of a grid is best by chance in part; a cell among good ones is less so.
    """
    alphas = sorted({row.alpha for row in rows})
    counts = sorted({row.variant.n_neighbors or 0 for row in rows})
    places = [(alphas.index(row.alpha), counts.index(row.variant.n_neighbors or 0)) for row in rows]
    groups: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        kind = row.variant._replace(n_neighbors=None, companion=id(row.variant.companion))
        groups.setdefault((id(row.grid), kind), []).append(number)
    found = list(rows)
    for group in groups.values():
        table = np.full((len(alphas) + 2, len(counts) + 2), np.nan)
        for number in group:
            table[places[number][0] + 1, places[number][1] + 1] = rows[number].mean
        windows = np.lib.stride_tricks.sliding_window_view(table, (3, 3))
        for number in group:
            if not math.isnan(rows[number].mean):
                found[number] = rows[number]._replace(judged=float(np.nanmean(windows[places[number]])))
    return found


def best_row(rows: Iterable[Row], one_standard_error: bool) -> Row:
    """The row of the highest merit; of equal ones that with the largest alpha, then the least temperature.

    With `one_standard_error`: the best row at the largest alpha that has one within a standard error of the highest.
    Rows whose score is not a number come last.
    """

    def merit(row: Row) -> tuple[float, float, float]:
        return row.merit, row.alpha, -row.temperature

    rows = list(rows)
    best = max(rows, key=merit)
    if one_standard_error and not math.isnan(best.mean):
        enough = best.merit - best.standard_error
        largest = max(row.alpha for row in rows if row.merit >= enough)
        best = max((row for row in rows if row.alpha == largest), key=merit)
    return best


def between(best: float, tried: Sequence[float]) -> list[float]:
    """Alphas half-way, in ratio, to the neighbors of the best one; beyond the last, as far as on the other side."""
    larger = min((alpha for alpha in tried if alpha > best), default=None)
    smaller = max((alpha for alpha in tried if alpha < best), default=None)
    if larger is None and smaller is None:
        return []
    up = larger / best if larger is not None else best / smaller  # type: ignore[operator]
    down = best / smaller if smaller is not None else up
    found = [best * ratio**power for ratio, power in ((up, 0.5), (down, -0.5)) if ratio > 1.01]  # else it was tried
    return [alpha for alpha in found if 0 < alpha < math.inf]


def n_fits(plan: Plan, splits: Sequence[Split], grid: Iterable[Mapping[str, Any] | None]) -> int:
    """The number of fits for an alpha, with every setting of a grid."""
    return len(splits) * sum(len(plan.members_with(settings)) for settings in grid)


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
    grid : sequence of dict or None
        Other parameters, each with fits of its own.
    rivals : sequence of dict
        Parameters of which one is chosen first, by fits with the middle alpha; the others are not tried with it.
    """

    alphas: tuple[float, ...]
    refinements: int
    one_standard_error: bool
    n_jobs: int | None
    verbose: int
    grid: Sequence[Mapping[str, Any] | None] = (None,)
    rivals: Sequence[Mapping[str, Any]] = ()

    def run(self, plan: Plan, splits: Sequence[Split]) -> tuple[list[Row], Row]:
        """Rows of all that was tried, alpha descending, and the best."""
        rows: list[Row] = []
        lost: list[Row] = []
        with tqdm(unit="fit", disable=not self.verbose) as bar:
            new, grid = sorted(set(self.alphas), reverse=True), self.grid
            if self.rivals:
                bar.total = n_fits(plan, splits, self.rivals)
                bar.set_description("feature maps")
                rows, lost = self._contest(plan, splits, new[len(new) // 2], bar)
                won = rows[0].grid or {}
                if len(grid) == 1:
                    grid, new = [won], [alpha for alpha in new if alpha != rows[0].alpha]
                else:
                    rows, lost, grid = [], rows + lost, [{**won, **(each or {})} for each in grid]
            for round_ in range(self.refinements + 1):
                bar.total = bar.n + len(new) * n_fits(plan, splits, grid)
                bar.set_description(f"round {round_ + 1} of at most {self.refinements + 1}")
                before = best_row(rows, False).merit if round_ else -math.inf
                rows += self._round(plan, splits, new, grid, bar)
                if plan.smooth:
                    rows = judged(rows)
                best = best_row(rows, False)
                bar.set_postfix_str(f"best alpha {best.alpha:.3g}, score {best.mean:.4g}")
                new, grid = between(best.alpha, [row.alpha for row in rows if row.grid is best.grid]), [best.grid]
                if not new or not best.merit > plan.enough(before):
                    break
        best = best_row(rows, self.one_standard_error)
        return sorted(rows + lost, key=lambda row: (-row.alpha, row.temperature)), best

    def _contest(self, plan: Plan, splits: Sequence[Split], alpha: float, bar: tqdm) -> tuple[list[Row], list[Row]]:
        """Rows of the rival with the best one, and those of the others."""
        rows = self._round(plan, splits, [alpha], self.rivals, bar)
        rows = judged(rows) if plan.smooth else rows
        won = best_row(rows, False).grid
        return [row for row in rows if row.grid is won], [row for row in rows if row.grid is not won]

    def _round(
        self, plan: Plan, splits: Sequence[Split], alphas: Sequence[float], grid: Sequence[Any], bar: tqdm
    ) -> list[Row]:
        paths = [[alpha] for alpha in alphas] if plan.early_stopping else [list(alphas)]
        tasks = [(plan, split, path, settings) for settings in grid for path in paths for split in splits]
        tracks: dict[tuple[int, float], list[Track]] = {}
        for (_, _, path, settings), found in zip(tasks, side_by_side(scored_fits, tasks, self.n_jobs), strict=True):
            for alpha, track in zip(path, found, strict=True):
                tracks.setdefault((id(settings), alpha), []).append(track)
            bar.update(len(path) * len(plan.members_with(settings)))
        return [
            row
            for settings in grid
            for alpha in alphas
            for row in rows_of(alpha, tracks[id(settings), alpha], plan, settings)
        ]
