"""A divergence with its parameters chosen by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import ParameterGrid, StratifiedKFold, StratifiedShuffleSplit
from sklearn.utils import Tags

from bregnet._core import validation as check
from bregnet._core.tied_ranks import TiedRanks
from bregnet.divergences import Generator
from bregnet.learners import PBDL, FeatureMap
from bregnet.learners.feature_maps import MANY_FEATURES
from bregnet.learners.similarity import LearnedPairs
from bregnet.retrieval.evaluation import MEASURES
from bregnet.retrieval.neighbors import class_votes
from bregnet.selection.base import SearchCV
from bregnet.selection.folds import Plan, Split, Variant
from bregnet.selection.search import Row, Search

# Of the rows of a split, by default. Held-out mAP of what five folds choose, and of what these choose, three splits:
# wdbc 96.1 and 96.5, vehicle 73.6 and 73.7, wine 97.3 and 97.3, iris 97.2 and 97.1.
HELD_OUT = 0.4
WIDTHS = (1.0, 2.0)  # of kernels that feature_map="auto" chooses from
MOST_QUERIES = 500  # of a fold: several hundred average precisions have a mean that is known to about 0.01
MOST_ITEMS = {"map": 2000, "auc": 2000, "accuracy": 20_000}  # that they are searched among
TIE = 1e-9  # divergences that differ by no more tie, as far as a score goes; classes are about 2 apart
FARTHEST = 1e290  # divergences beyond tie, too: they cannot be divided by the former


class _HeldOut(StratifiedShuffleSplit):
    """Random shares of every class; a class of a single row, which cannot be in both parts, goes with the largest."""

    def split(self, X: Any, y: Any, groups: Any = None) -> Any:
        """Numbers of the rows of both parts."""
        _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        return super().split(X, np.where(counts[codes] > 1, codes, counts.argmax()), groups)


@dataclass(frozen=True)
class RetrievalScores:
    """Scores of a learned divergence, with every variant: held-out rows are queries.

    Parameters
    ----------
    kind : {"map", "auc", "accuracy"}
    gallery : {"unseen", "train"}
        Whether each query is searched among the other held-out rows of its fold or among the training rows.
    variants : tuple of Variant
        The numbers of neighbors vary fastest.
    X, y : ndarray
        All rows, and numbers of their classes.
    weights : ndarray or None
        Of the queries.
    seed : int
        Of the rows that are drawn where there are very many.
    """

    kind: str
    gallery: str
    variants: tuple[Variant, ...]
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    seed: int

    def __call__(self, learned: Callable[..., Any], split: Split) -> list[float]:
        """Scores of all variants of what was learned, given its temperature, or a companion alone."""
        random = np.random.RandomState(self.seed)
        items = _some(split.test if self.gallery == "unseen" else split.train, MOST_ITEMS[self.kind], random)
        queries = _some(items if self.gallery == "unseen" else split.test, MOST_QUERIES, random)
        own = queries[:, None] == items if self.gallery == "unseen" else None  # a row does not find itself
        points = self.X[queries], self.X[items]
        _, exponent = np.frexp(max(np.abs(part).max() for part in points))
        near = euclidean_distances(*(np.ldexp(part, -exponent) for part in points), squared=True)  # up to 1 in size
        near *= TIE / 2 / max(near.max(), np.finfo(float).tiny)  # which is how search orders ties
        parts: dict[Any, np.ndarray] = {}
        found: dict[Any, list[float]] = {}
        for variant in self.variants:
            kind = variant._replace(n_neighbors=None, companion=id(variant.companion))
            if kind not in found:
                plain = ("temperature", variant.temperature)
                if plain not in parts:
                    parts[plain] = learned(variant.temperature).pairwise(*points)
                values = parts[plain]
                if variant.companion is not None:
                    if kind.companion not in parts:
                        parts[kind.companion] = learned(0.0, only=variant.companion).pairwise(*points)
                    with np.errstate(over="ignore"):
                        values = values + variant.companion_weight * parts[kind.companion]
                values = TIE * np.round(np.minimum(values, FARTHEST) / TIE)
                if own is not None:
                    values[own] = np.inf
                found[kind] = self._scores(values, near, queries, items, own)
        return [score for scores in found.values() for score in scores]

    def _scores(
        self, values: np.ndarray, near: np.ndarray, queries: np.ndarray, items: np.ndarray, own: np.ndarray | None
    ) -> list[float]:
        """One score, or one for each number of neighbors."""
        wanted, classes = self.y[queries], self.y[items]
        if self.kind == "accuracy":
            counts = list(dict.fromkeys(variant.n_neighbors or 1 for variant in self.variants))
            found = is_right(values + near, wanted, classes, counts).astype(float)
        else:
            hits = wanted[:, None] == classes
            if own is not None:
                hits &= ~own
            found = MEASURES[self.kind](TiedRanks.from_divergences(values, hits))[None]
        known = ~np.isnan(found[0])
        weights = None if self.weights is None else self.weights[queries][known]
        return np.average(found[:, known], axis=1, weights=weights).tolist()


def _some(rows: np.ndarray, most: int, random: np.random.RandomState) -> np.ndarray:
    """The rows, or as many of them as `most`, drawn at random."""
    return rows if len(rows) <= most else np.sort(random.choice(rows, most, replace=False))


def is_right(values: np.ndarray, wanted: np.ndarray, classes: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Whether most of the k nearest items have the class of a query, (n_counts, n_queries), for some numbers k."""
    most = min(max(counts), values.shape[1])
    nearest = np.argpartition(values, most - 1, axis=1)[:, :most]
    order = np.take_along_axis(values, nearest, 1).argsort(1, kind="stable")
    voters = classes[np.take_along_axis(nearest, order, 1)]
    n_classes = classes.max() + 1
    return np.stack([class_votes(voters[:, :count], n_classes).argmax(1) == wanted for count in counts])


class PBDLCV(LearnedPairs, SearchCV):
    """A divergence learned from labels, with its parameters chosen by cross-validation.

    Fits are made in every fold, for every feature map first, and for every alpha with the best map. Temperature,
    companion and, for accuracy, the number of neighbors are chosen without other fits. By default held-out rows are
    ranked among held-out rows: among the rows of the fit a divergence remembers labels, and the parameters that
    remember them best would be chosen. A cell of the grid is judged by the mean over itself and its neighbors in alpha
    and in the number of neighbors.

    Parameters
    ----------
    alphas : sequence of float, default=None
        The coarse grid; None is 0.1, 0.03, 0.01, 0.003.
    cv : int, splitter or iterable of (train, test), default=None
        Folds. None is, with ``gallery="unseen"``, five random splits that hold out 40% of the rows, so that there are
        enough to rank among; otherwise five folds of shuffled rows. Both have the classes in the same shares.
    refinements : int, default=0
        Rounds around the best after the coarse grid, at most.
    temperatures : sequence of float, default=(0.1, 0.2, 0.3, 1.0)
        Smoothings to choose from; they cost no fits.
    scoring : {"map", "accuracy", "auc"}, default="map"
        Mean average precision, accuracy of nearest neighbors, or the area under the ROC curve.
    n_neighbors : int or sequence of int, default=(1, 3, 5, 9, 15, 25)
        For "accuracy": the number of neighbors, or numbers to choose from.
    early_stopping : bool, default=False
        End fits when the score on held-out rows does not rise by 0.001 any more.
    one_standard_error : bool, default=False
        Take the largest alpha whose score is within a standard error of the best.
    n_jobs : int, default=None
        Fits at the same time.
    n_pieces : int, "auto" or None, default="auto"
    balanced : bool, default=True
    strictness : float, default=0.0
        As in :class:`PBDL`.
    companion : "auto", None, "euclid", "within", "nca" or Generator, default="auto"
        "auto" chooses between none, "euclid" and "within"; otherwise as in :class:`PBDL`.
    companion_weight : float or sequence of float, default=(0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
        The weight of the companion, or weights to choose from. With a large weight the companion alone determines the
        order, so accuracy need not be below that of Euclid.
    feature_map : "auto", None, "lda", "rbf", "rbf+lda", transformer or list of these, default="auto"
        As in :class:`PBDL`; it is fitted to the training rows of each fold. Of several the best is taken, by fits with
        the middle alpha: they are not tried with all alphas. "auto" chooses between None (below 100 features), "lda",
        and "rbf+lda" with kernels of two widths.
    standardize : bool, default=True
    tol : float, default=0.1
    max_iter : int, default=5000
    device : str or torch.device, default="auto"
        As in :class:`PBDL`.
    verbose : int, default=0
        1 shows a progress bar over the fits.
    random_state : int, RandomState or None, default=None
        As in :class:`PBDL`.
    gallery : {"unseen", "train"}, default="unseen"
        What held-out rows are searched among: other held-out rows of the fold, or its training rows. "train" is for a
        search whose items will be the rows of the fit.
    grid : dict of str to sequence, default=None
        Other parameters of :class:`PBDL` and what to try for each, such as ``{"n_pieces": [100, 400]}``: every
        combination takes fits of its own.

    Attributes
    ----------
    alpha_, temperature_, best_score_ : float
    companion_ : None, str or Generator
    companion_weight_ : float
    n_neighbors_ : int or None
        None unless the score is the accuracy. :class:`BregmanKNeighborsClassifier` takes it up.
    best_params_ : dict
        All that was chosen.
    best_estimator_ : PBDL
    function_ : MaxAffine
    divergence_ : BregmanDivergence
    threshold_ : float
    classes_ : ndarray
    cv_results_ : dict of arrays
        A row for each cell of the grid; "judged_test_score" is the mean with its neighbors.
    best_index_, n_splits_, n_fits_ : int
    feature_bounds_, result_, gap_, n_iter_
        Those of `best_estimator_`.
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bregnet import PBDLCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PBDLCV([0.1, 0.01], cv=3, scoring="accuracy").fit(X, y)
    >>> model.best_score_ > 0.9, model.n_neighbors_ in (1, 3, 5, 9, 15, 25)
    (True, True)
    >>> model.divergence_.pairwise(X[:2], X[-3:]).shape
    (2, 3)
    """

    _searched = PBDL
    _alphas = (0.1, 0.03, 0.01, 0.003)
    _varied = ("companion", "companion_weight", "n_neighbors")
    _classes = True

    def __init__(
        self,
        alphas: Sequence[float] | None = None,
        *,
        cv: Any = None,
        refinements: int = 0,
        temperatures: Sequence[float] = (0.1, 0.2, 0.3, 1.0),
        scoring: str = "map",
        n_neighbors: int | Sequence[int] = (1, 3, 5, 9, 15, 25),
        early_stopping: bool = False,
        one_standard_error: bool = False,
        n_jobs: int | None = None,
        n_pieces: int | str | None = "auto",
        balanced: bool = True,
        strictness: float = 0.0,
        companion: str | Generator | None = "auto",
        companion_weight: float | Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0),
        feature_map: Any = "auto",
        standardize: bool = True,
        tol: float = 0.1,
        max_iter: int = 5000,
        device: str | torch.device = "auto",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
        gallery: str = "unseen",
        grid: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.alphas = alphas
        self.cv = cv
        self.refinements = refinements
        self.temperatures = temperatures
        self.scoring = scoring
        self.n_neighbors = n_neighbors
        self.early_stopping = early_stopping
        self.one_standard_error = one_standard_error
        self.n_jobs = n_jobs
        self.n_pieces = n_pieces
        self.balanced = balanced
        self.strictness = strictness
        self.companion = companion
        self.companion_weight = companion_weight
        self.feature_map = feature_map
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.device = device
        self.verbose = verbose
        self.random_state = random_state
        self.gallery = gallery
        self.grid = grid

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @property
    def companion_(self) -> str | Generator | None:
        """The companion that was chosen."""
        return self.best_estimator_.companion

    @property
    def companion_weight_(self) -> float:
        """Its weight."""
        return self.best_estimator_.companion_weight

    @property
    def n_neighbors_(self) -> int | None:
        """The number of neighbors that was chosen."""
        return self.best_params_.get("n_neighbors")

    @property
    def _known_seed(self) -> int:
        """Of what is drawn beside the fits: the seed that was given, or else always the same."""
        return int(self.random_state) if isinstance(self.random_state, Integral) else 0

    def _variants(self) -> tuple[Variant, ...]:
        temperatures = [variant.temperature for variant in super()._variants()]
        given = self.companion_weight
        weights = given if np.ndim(given) else [given]
        weights = check.numbers("companion_weight", weights, check.at_least_zero)
        named = (
            ("euclid", "within") if isinstance(self.companion, str) and self.companion == "auto" else [self.companion]
        )
        companions: list[tuple[Any, float]] = [] if len(named) == 1 and named[0] is not None else [(None, 1.0)]
        companions += [(name, weight) for name in named if name is not None for weight in weights]
        counts = self.n_neighbors if np.ndim(self.n_neighbors) else [self.n_neighbors]
        numbers = [check.integer_at_least("n_neighbors", count, 1) for count in counts]  # type: ignore[union-attr]
        counted = numbers if self.scoring == "accuracy" else [None]
        choices = product(temperatures, companions, counted)
        return tuple(Variant(tau, companion, weight, k) for tau, (companion, weight), k in choices)

    def _score_of(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Any:
        kind = check.one_of("scoring", self.scoring, ("map", "accuracy", "auc"))
        gallery = check.one_of("gallery", self.gallery, ("unseen", "train"))
        codes = np.unique(y, return_inverse=True)[1]
        return RetrievalScores(kind, gallery, self._variants(), X, codes, weights, self._known_seed)

    def _plan(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Plan:
        plan = super()._plan(X, y, weights)
        return replace(plan, scores=plan.score, smooth=True)  # type: ignore[arg-type]

    def _folds(self, targets: np.ndarray) -> Any:
        if self.cv is not None:
            return self.cv
        counts = np.unique(targets, return_counts=True)[1]
        if self.gallery != "unseen" or math.ceil(HELD_OUT * len(targets)) < (counts > 1).sum():
            return StratifiedKFold(min(5, max(2, counts.max())), shuffle=True, random_state=self._known_seed)
        return _HeldOut(5, test_size=HELD_OUT, random_state=self._known_seed)

    def _search(self) -> Search:
        search, grid = super()._search(), self.grid
        if grid is not None:
            taken = {"alpha", "temperature", *self._varied}
            known = set(PBDL().get_params(deep=False)) - taken
            if not isinstance(grid, Mapping) or not set(grid) <= known:
                raise ValueError(f"grid must be a dict of parameters out of {sorted(known)}, got {grid!r}")
            search = search._replace(grid=list(ParameterGrid(dict(grid))))
        if "feature_map" in (grid or {}):
            return search
        return search._replace(rivals=[{**(search.grid[0] or {}), "feature_map": each} for each in self._rival_maps()])

    def _rival_maps(self) -> Sequence[Any]:
        """Feature maps to choose from, none where there is no choice."""
        given = self.feature_map
        if isinstance(given, list | tuple):
            if not given:
                raise ValueError("feature_map must be a feature map or a list with some, got an empty one")
            return given
        if not isinstance(given, str) or given != "auto":
            return ()
        curved = [FeatureMap("rbf+lda", width=width) for width in WIDTHS]
        few = self.n_features_in_ < MANY_FEATURES  # with many, fits without a map are slow
        return [*([None] if few else []), "lda", *curved]

    def _check_splits(self, splits: Sequence[Split], targets: np.ndarray) -> None:
        for number, (train, test) in enumerate(splits):
            known, (held_out, counts) = np.unique(targets[train]), np.unique(targets[test], return_counts=True)
            where = f"in fold {number}"
            if len(known) < 2:
                raise ValueError(f"cv must leave at least 2 classes in the training part, got {known} {where}")
            if self.gallery == "train" and not np.isin(held_out, known).any():
                raise ValueError(f"cv must leave a class of the test part in the training part, got none {where}")
            if self.gallery == "unseen" and (counts.max() < 2 or len(counts) < 2):
                found = f"got {len(counts)} of up to {counts.max()} {where}: take stratified folds, or fewer"
                raise ValueError(f"cv must leave 2 classes, and 2 rows of one, in the test part, {found}")

    def _store_learned(self, plan: Plan, splits: Sequence[Split], best: Row, fits: Sequence[Any]) -> None:
        (learner,) = fits
        self.function_, self.divergence_ = learner.function_, learner.divergence_
        self.threshold_, self.classes_ = learner.threshold_, learner.classes_
        if hasattr(learner, "feature_map_"):
            self.feature_map_ = learner.feature_map_

    def _warn(self, rows: Sequence[Row], best: Row) -> None:
        super()._warn(rows, best)
        if self.companion_ is None:  # else it has chosen to rank by that alone
            self.best_estimator_._warn_of_nothing(type(self).__name__)
