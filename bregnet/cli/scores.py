"""How good a divergence or a regression is, in numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.metrics import (
    adjusted_rand_score,
    mean_absolute_error,
    normalized_mutual_info_score,
    r2_score,
    root_mean_squared_error,
)
from sklearn.utils.multiclass import check_classification_targets

from bregnet import metrics
from bregnet.cli.data import Data
from bregnet.cli.tables import short
from bregnet.divergences import BregmanDivergence
from bregnet.reporting.numbers import clusters
from bregnet.reporting.subject import EUCLID, unit_variance_euclid
from bregnet.retrieval import BregmanKNeighborsClassifier
from bregnet.retrieval.evaluation import retrieval_scores

SOME = 200  # rows that show whether a divergence is 0


def headed(scores: Mapping[str, float], k: int = 5) -> dict[str, float]:
    """Scores with headings for people."""
    headings = {
        "accuracy": "{k}-NN accuracy",
        "map": "mAP",
        "r_precision": "R-precision",
        "auc": "AUC",
        "nmi": "NMI",
        "rand": "Rand",
        "purity": "purity",
        "r2": "R^2",
        "mae": "MAE",
        "rmse": "RMSE",
    }
    return {headings[name].format(k=k): value for name, value in scores.items()}


def warn_of_nothing(divergence: BregmanDivergence, data: Data) -> None:
    """Warn of a divergence that is 0 throughout: its neighbors are those of Euclid, which breaks ties."""
    some = np.asarray(data.X[:SOME], dtype=np.float64)
    if len(some) > 1 and not np.asarray(divergence.pairwise(some)).any():
        warnings.warn("the divergence is 0 between all rows; a smaller --alpha may learn more", stacklevel=2)


def divergence_scores(
    compared: Mapping[str, BregmanDivergence], data: Data, known: Data | None, *, k: int, seed: int, side: str = "right"
) -> dict[str, dict[str, float]]:
    """Scores of divergences, with Euclid first.

    Parameters
    ----------
    compared : mapping of str to BregmanDivergence
    data : Data
        Queries, and what is clustered.
    known : Data or None
        What is searched; None searches the other rows of `data`.
    k : int
        Neighbors that classify.
    seed : int
        Of the clusters.
    side : {"right", "left"}, default="right"
        Which argument of the divergence the searched rows are.
    """
    gallery = data if known is None else known
    for each in (data, gallery):
        check_classification_targets(np.asarray(each.y))
    X, items = (np.asarray(each.X, dtype=np.float64) for each in (data, gallery))
    names, codes = np.unique(np.concatenate([np.asarray(gallery.y), np.asarray(data.y)]), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"the target {data.target!r} must hold at least 2 classes, got only {short(names[0])}")
    labels, wanted = codes[: len(items)], codes[-len(X) :]
    others = None if known is None else (items, labels)
    rows = {EUCLID: unit_variance_euclid(items), **compared}
    return {row: _scores(divergence, X, wanted, others, k, seed, side) for row, divergence in rows.items()}


def _scores(
    divergence: BregmanDivergence,
    X: np.ndarray,
    y: np.ndarray,
    known: tuple[np.ndarray, np.ndarray] | None,
    k: int,
    seed: int,
    side: str,
) -> dict[str, float]:
    retrieval = retrieval_scores(divergence, X, y, known, side=side, measures=("map", "r_precision", "auc"))
    neighbors = BregmanKNeighborsClassifier(divergence, k, side=side).fit(*(known or (X, y)))
    return {
        "accuracy": float(neighbors.score(None if known is None else X, y)),
        **{name: float(np.nanmean(values)) for name, values in retrieval.items()},
        **agreement(y, clusters(divergence, X, y, seed)),
    }


def agreement(y: Any, clusters: Any) -> dict[str, float]:
    """How clusters agree with known classes."""
    return {
        "nmi": float(normalized_mutual_info_score(y, clusters)),
        "rand": float(adjusted_rand_score(y, clusters)),
        "purity": metrics.purity(y, clusters),
    }


def regression_scores(model: Any, data: Data) -> dict[str, float]:
    """Of a fitted regressor on rows with a target of numbers."""
    if np.asarray(data.y).dtype.kind not in "biuf":
        raise ValueError(f"a regression is scored by a target of numbers, but {data.target!r} holds labels")
    X = data.X if hasattr(model, "feature_names_in_") else np.asarray(data.X)
    y, predicted = np.asarray(data.y, dtype=np.float64), np.asarray(model.predict(X))
    return {
        "r2": float(r2_score(y, predicted)),
        "mae": float(mean_absolute_error(y, predicted)),
        "rmse": float(root_mean_squared_error(y, predicted)),
    }
