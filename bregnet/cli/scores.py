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
from bregnet.clustering import BregmanKMeans
from bregnet.divergences import BregmanDivergence
from bregnet.plotting._retrieval import ranked
from bregnet.plotting._shared import Measure
from bregnet.reporting.subject import unit_variance_euclid
from bregnet.retrieval import BregmanKNeighborsClassifier

SOME = 200  # rows that show whether a divergence is 0
CLUSTER_STARTS = 5
HEADINGS = {
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
EUCLID = "Euclid"


def headed(scores: Mapping[str, float], k: int = 5) -> dict[str, float]:
    """Scores with headings for people."""
    return {HEADINGS[name].format(k=k): value for name, value in scores.items()}


def warn_of_nothing(divergence: BregmanDivergence, data: Data) -> None:
    """Warn of a divergence that is 0 throughout: its neighbours are those of Euclid, which breaks ties."""
    some = np.asarray(data.X[:SOME], dtype=np.float64)
    if len(some) > 1 and not np.asarray(divergence.pairwise(some)).any():
        warnings.warn("the divergence is 0 between all rows; a smaller --alpha may learn more", stacklevel=2)


def divergence_scores(
    compared: Mapping[str, BregmanDivergence], data: Data, known: Data | None, *, k: int, seed: int
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
        Neighbours that classify.
    seed : int
        Of the clusters.
    """
    gallery = data if known is None else known
    for each in (data, gallery):
        check_classification_targets(np.asarray(each.y))
    X, items = (np.asarray(each.X, dtype=np.float64) for each in (data, gallery))
    names, codes = np.unique(np.concatenate([np.asarray(gallery.y), np.asarray(data.y)]), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"the target {data.target!r} must hold at least 2 classes, got only {names[0]!r}")
    labels, wanted = codes[: len(items)], codes[-len(X) :]
    others = None if known is None else (items, labels)
    rows = {EUCLID: unit_variance_euclid(items), **compared}
    return {row: _scores(divergence, X, wanted, others, k, seed) for row, divergence in rows.items()}


def _scores(
    divergence: BregmanDivergence,
    X: np.ndarray,
    y: np.ndarray,
    known: tuple[np.ndarray, np.ndarray] | None,
    k: int,
    seed: int,
) -> dict[str, float]:
    neighbours = BregmanKNeighborsClassifier(divergence, k).fit(*(known or (X, y)))
    # until nothing changes: the tolerance is in the units of X, and divergences in units of their own
    settled: dict[str, Any] = {"n_init": CLUSTER_STARTS, "tol": 0.0, "random_state": seed}
    found = BregmanKMeans(len(np.unique(y)), divergence=divergence, **settled).fit_predict(X)
    return {
        "accuracy": float(neighbours.score(None if known is None else X, y)),
        **_retrieval(divergence, X, y, known),
        **agreement(y, found),
    }


def agreement(y: Any, clusters: Any) -> dict[str, float]:
    """How clusters agree with known classes."""
    return {
        "nmi": float(normalized_mutual_info_score(y, clusters)),
        "rand": float(adjusted_rand_score(y, clusters)),
        "purity": metrics.purity(y, clusters),
    }


def _retrieval(
    divergence: BregmanDivergence, X: np.ndarray, y: np.ndarray, known: tuple[np.ndarray, np.ndarray] | None
) -> dict[str, float]:
    """Means over the queries that have something to find."""
    measures = {"map": metrics.mean_average_precision, "r_precision": metrics.r_precision, "auc": metrics.retrieval_auc}
    found: dict[str, list[np.ndarray]] = {name: [] for name in measures}
    for divergences, relevant in ranked(Measure(divergence), X, y, known):
        for name, measure in measures.items():
            found[name].append(measure(divergences, relevant, per_query=True))
    per_query = {name: np.concatenate(parts) for name, parts in found.items()}
    if np.isnan(per_query["auc"]).all():
        raise ValueError("the target must give some row another of its class and one of another class, got none")
    return {name: float(np.nanmean(values)) for name, values in per_query.items()}


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
