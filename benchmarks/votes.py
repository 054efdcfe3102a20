"""Nearest neighbours under several learned divergences, with all that matters for accuracy chosen inside the data.

Three families of PBDL fits, each a mean over three alphas, which varies less from sample to sample than one fit: few
pieces, few pieces in coordinates where the classes have unit covariance, and a piece per point. Settings (families,
temperature, weight of the within-class Mahalanobis distance, number of neighbours) are compared by cross-validation;
the shares of votes of the best few are averaged.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from sklearn.covariance import ledoit_wolf
from sklearn.exceptions import ConvergenceWarning

from benchmarks.data import Inner
from bregnet import PBDL, BregmanDivergence, MaxAffine, divergence
from bregnet.datasets import Fold

ALPHAS = (0.03, 0.01, 0.003)
TEMPERATURES = (0.1, 0.3, 1.0)
WEIGHTS = (0.0, 1.0, 3.0)  # of the within-class distance
NEIGHBOURS = (1, 3, 5, 9, 15, 31, 51)
FAMILIES = ("few",), ("white",), ("own",), ("few", "white"), ("few", "own", "white")
FEW_PIECES, MANY_CLASSES, MORE_PIECES = 10, 10, 50  # few pieces, and more of them where classes are many
OWN_PIECE_POINTS = 1500  # beyond, no fits with a piece per point
N_BEST = 5  # settings whose votes are averaged
LEAST_SHARE = 0.05  # of the votes spread over all classes, so that a vote without the true class is not infinitely bad
MARGIN = 2.0
SETTINGS = {
    "alphas": ALPHAS,
    "temperatures": TEMPERATURES,
    "weights": WEIGHTS,
    "neighbours": NEIGHBOURS,
    "families": FAMILIES,
    "pieces": (FEW_PIECES, MANY_CLASSES, MORE_PIECES, OWN_PIECE_POINTS),
    "best": N_BEST,
    "least_share": LEAST_SHARE,
}
LEAST_VARIANCE = 1e-3  # of the largest: directions with less are dropped


class Setting(NamedTuple):
    """What cross-validation chooses."""

    families: tuple[str, ...]
    temperature: float
    weight: float
    n_neighbors: int


def whitening(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A linear map (d, d') that gives the classes unit covariance, but for a constant: variances are 1 on average.

    The covariance within classes is shrunk (Ledoit and Wolf); axes are those of the total covariance after the map.
    """
    unit = np.where(X.std(0) > 0, X.std(0), 1.0)
    scaled = (X - X.mean(0)) / unit
    classes = np.unique(y, return_inverse=True)[1]
    means = np.stack([np.bincount(classes, column) / np.bincount(classes) for column in scaled.T], axis=1)
    within = ledoit_wolf(scaled - means[classes], assume_centered=True)[0]
    variances, directions = np.linalg.eigh(within + 1e-6 * np.eye(X.shape[1]))
    half = directions / np.sqrt(variances)
    total, axes = np.linalg.eigh(np.atleast_2d(np.cov((scaled @ half).T, bias=True)))
    kept = total > LEAST_VARIANCE * total.max()
    return half @ axes[:, kept] / unit[:, None] / np.sqrt(total[kept].mean())


class Divergences:
    """All fits of a training part, and the divergences of queries to its rows under any setting."""

    def __init__(self, X: np.ndarray, y: np.ndarray, alphas: tuple[float, ...] = ALPHAS, *, own: bool = True) -> None:
        self._alphas = alphas
        few = MORE_PIECES if len(np.unique(y)) > MANY_CLASSES else FEW_PIECES
        self._map = whitening(X, y)
        self._X, self._white = X, X @ self._map
        self._learned: dict[str, list[MaxAffine]] = {}
        self.seconds: list[float] = []
        self.gaps: list[float] = []
        self._learn("few", X, y, few, 300, standardize=True)
        self._learn("white", self._white, y, few, 150, standardize=False)
        if own:
            self._learn("own", X, y, None, 100, standardize=True)
        apart = np.asarray(divergence("sqeuclidean").pairwise(self._white))[y[:, None] != y]
        self._within_scale = MARGIN / apart.mean()

    def _learn(
        self, family: str, X: np.ndarray, y: np.ndarray, pieces: int | None, iterations: int, standardize: bool
    ) -> None:
        for alpha in self._alphas:
            learner = PBDL(
                alpha, n_pieces=pieces, standardize=standardize, tol=0.05, max_iter=iterations, random_state=0
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is told
                learner.fit(X, y)
            self._learned.setdefault(family, []).append(learner.function_)
            self.seconds.append(learner.result_.seconds)
            self.gaps.append(learner.gap_)

    def _of_family(self, family: str, temperature: float, queries: np.ndarray) -> np.ndarray:
        """Mean over the fits of a family."""
        items = self._white if family == "white" else self._X
        at = queries @ self._map if family == "white" else queries
        soft = (MaxAffine(f.slopes, f.intercepts, temperature=temperature) for f in self._learned[family])
        return np.mean([np.asarray(BregmanDivergence(f).pairwise(at, items)) for f in soft], axis=0)

    def to_rows(self, queries: np.ndarray) -> Iterator[tuple[tuple[str, ...], float, float, np.ndarray]]:
        """Families, temperature, weight, and the divergences (n_queries, n_rows) under them."""
        white = np.asarray(divergence("sqeuclidean").pairwise(queries @ self._map, self._white))
        within = self._within_scale * white
        for temperature in TEMPERATURES:
            each = {family: self._of_family(family, temperature, queries) for family in self._learned}
            for families in FAMILIES:
                if not set(families) <= set(each):
                    continue
                mean = np.mean([each[family] for family in families], axis=0)
                for weight in WEIGHTS:
                    yield families, temperature, weight, mean + weight * within


def vote_shares(learned: Divergences, queries: np.ndarray, labels: np.ndarray, classes: np.ndarray) -> dict:
    """Under each setting, the share of each class among the nearest rows, (n_queries, n_classes)."""
    n_nearest = min(max(NEIGHBOURS), len(labels))
    coded = np.searchsorted(classes, labels)
    found = {}
    for families, temperature, weight, divergences in learned.to_rows(queries):
        nearest = np.argpartition(divergences, n_nearest - 1, axis=1)[:, :n_nearest]
        order = np.argsort(np.take_along_axis(divergences, nearest, 1), axis=1, kind="stable")
        ranked = coded[np.take_along_axis(nearest, order, 1)]
        counts = np.cumsum(ranked[:, :, None] == np.arange(len(classes)), axis=1)
        for k in NEIGHBOURS:
            found[Setting(families, temperature, weight, k)] = counts[:, min(k, n_nearest) - 1] / min(k, n_nearest)
    return found


def merit(shares: np.ndarray, wanted: np.ndarray) -> float:
    """Accuracy, and the mean logarithm of the share of the true class, which tells more from few queries."""
    accuracy = np.mean(shares.argmax(1) == wanted)
    true = shares[np.arange(len(wanted)), wanted]
    return float(accuracy + np.log((1 - LEAST_SHARE) * true + LEAST_SHARE / shares.shape[1]).mean())


class Votes(NamedTuple):
    """What the best settings say of the test rows."""

    accuracy: float
    settings: list[Setting]
    last_fits: Divergences


def classify(fold: Fold, inner: Inner, alphas: tuple[float, ...] = ALPHAS) -> Votes:
    """Compare all settings inside the training part, then let the best few vote on the test part."""
    classes, own = np.unique(fold.y), len(fold.X) <= OWN_PIECE_POINTS
    merits: dict[Setting, float] = {}
    for train, test in inner.split(fold.X, fold.y):
        learned = Divergences(fold.X[train], fold.y[train], alphas, own=own)
        wanted = np.searchsorted(classes, fold.y[test])
        for setting, shares in vote_shares(learned, fold.X[test], fold.y[train], classes).items():
            merits[setting] = merits.get(setting, 0.0) + merit(shares, wanted)
    best = sorted(merits, key=lambda setting: -merits[setting])[:N_BEST]
    learned = Divergences(fold.X, fold.y, alphas, own=own)
    shares = vote_shares(learned, fold.X_test, fold.y, classes)
    winners = classes[np.mean([shares[setting] for setting in best], axis=0).argmax(1)]
    return Votes(float(np.mean(winners == fold.y_test)), best, learned)
