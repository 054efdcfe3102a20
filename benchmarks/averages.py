"""Averages of DC regressions, with all that matters for prediction chosen inside the data.

A first search is for alpha, temperature and the number of iterations with all features. A second one tries what may be
better, starting from the alpha found: fits that see a part of the features each, where there are many, or more pieces,
where there are many rows. Searches that are within a standard error of the better one are kept. Each predicts by the
mean of several fits, of cells drawn anew, and these means are averaged.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from benchmarks.data import Inner
from bregnet import DCRegressor, DCRegressorCV
from bregnet.datasets import Fold

ALPHAS = (0.3, 0.03, 0.003, 0.0003)
SEARCH: dict[str, Any] = {"temperatures": (0.0, 0.1, 0.2), "clip": True, "max_iter": 400}
QUICK_ALPHAS, QUICK_ITERATIONS = (0.1, 0.001), 200
SMALL = 2000  # rows, up to which a set in folds has a piece per point,
FEW_PIECES, MORE_PIECES = 300, 1000  # and others so many, or more of them
FEW_ROWS = 1200  # up to which the mean of fits that leave folds out gains,
FEWER_FOLDS = 3  # and beyond which so many folds are enough to choose by, where rows come shuffled
LEAST_FEATURES, MANY_FEATURES = 8, 20  # from which parts of the features are tried, and where smaller parts are
SHARE, SMALL_SHARE = 0.8, 0.5
MEMBERS, FEWER_MEMBERS = 6, 4  # fits whose mean is scored in the search with parts of the features; fewer if not small
# what the alpha of the first search is divided by in the second: many steps where fits are quick
STEPS_DOWN = {"small part": (1, 3, 10, 30), "part": (1, 3), "more": (1,)}
N_AVERAGED, N_OF_PARTS = 6, 12  # fits that predict: of all features, and of parts


class Candidate(NamedTuple):
    """One search."""

    pieces: int | None
    n_features: int  # that each fit sees
    members: int = 1
    steps: tuple[int, ...] = ()  # down from the alpha of the first search; none in the first itself

    def alphas(self, first: float) -> tuple[float, ...]:
        """Its grid, given the alpha of the first search."""
        return tuple(first / step for step in self.steps)


def candidates(n_rows: int, n_features: int, own_split: bool) -> list[Candidate]:
    """The first search, and the second where there is one."""
    small = n_rows <= SMALL
    first = Candidate(None if small and not own_split else min(FEW_PIECES, n_rows), n_features)
    if n_features >= LEAST_FEATURES and (small or not own_split):
        share = SMALL_SHARE if n_features > MANY_FEATURES else SHARE
        pieces, members = (FEW_PIECES, MEMBERS) if small else (MORE_PIECES, FEWER_MEMBERS)
        steps = STEPS_DOWN["small part" if small else "part"]
        return [first, Candidate(min(pieces, n_rows), round(share * n_features), members, steps)]
    return [first] if small else [first, Candidate(MORE_PIECES, n_features, 1, STEPS_DOWN["more"])]


def within_a_standard_error(scores: Sequence[np.ndarray]) -> list[bool]:
    """Which of some searches, by their scores in the same folds, are not clearly worse than the one with the best mean.

    The standard error is that of the mean difference to the best, fold by fold.
    """
    best = max(scores, key=np.mean)
    worse = [best - each for each in scores]
    return [bool(each.mean() <= each.std(ddof=1) / np.sqrt(len(each))) for each in worse]


class Averages(NamedTuple):
    """What the kept searches predict together."""

    predicted: np.ndarray
    one_fit: np.ndarray  # by one fit with what the first search has chosen
    searches: list[DCRegressorCV]
    kept: list[bool]


def _search(given: Candidate, fold: Fold, inner: Inner, alphas: Sequence[float], **options: Any) -> DCRegressorCV:
    model = DCRegressorCV(
        alphas,
        cv=inner,
        n_pieces=given.pieces,
        n_estimators=given.members,
        max_features=given.n_features,
        random_state=0,
        **SEARCH | options,
    )
    return model.fit(fold.X, fold.y)


def _averaging(search: DCRegressorCV, fold: Fold) -> DCRegressorCV | BaggingRegressor:
    """The mean of several fits to all rows with what a search has chosen; the search where pieces are the points."""
    if search.n_pieces is None:
        return search
    one = DCRegressor(
        search.alpha_,
        n_pieces=search.n_pieces,
        temperature=search.temperature_,
        clip=search.clip,
        max_iter=search.n_iter_,
    )
    n_fits = N_AVERAGED if search.max_features == fold.X.shape[1] else N_OF_PARTS
    parts = {"max_features": search.max_features, "bootstrap": False, "random_state": 0}
    return BaggingRegressor(one, n_fits, **parts).fit(fold.X, fold.y)


def fold_scores(search: DCRegressorCV) -> np.ndarray:
    """Of what it has chosen, in each inner fold."""
    results = search.cv_results_
    return np.array([results[f"split{number}_test_score"][search.best_index_] for number in range(search.n_splits_)])


def predict(fold: Fold, inner: Inner, quick: bool, *, own_split: bool) -> Averages:
    """Search, keep, refit and average."""
    few = len(fold.X) <= FEW_ROWS
    if not (few or own_split):
        inner = KFold(FEWER_FOLDS)
    first, *others = candidates(len(fold.X), fold.X.shape[1], own_split)
    if quick:
        others, options = [], {"max_iter": QUICK_ITERATIONS, "refinements": 0}
    else:
        options = {"refinements": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is told
        alphas = QUICK_ALPHAS if quick else ALPHAS
        searches = [_search(first, fold, inner, alphas, ensemble=few and first.pieces is None, **options)]
        for other in others:
            searches.append(_search(other, fold, inner, other.alphas(searches[0].alpha_), refinements=0))
        kept = within_a_standard_error([fold_scores(search) for search in searches])
        models = [_averaging(search, fold) for search, keep in zip(searches, kept, strict=True) if keep]
    predicted = [np.asarray(model.predict(fold.X_test)) for model in models]
    one_fit = searches[0].best_estimator_.predict(fold.X_test)
    return Averages(np.mean(predicted, axis=0), np.asarray(one_fit), searches, kept)
