"""A quadratic generator added to the learned one: the parameter `companion` of PBDL."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.covariance import ledoit_wolf
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from bregnet.divergences import Generator, Quadratic
from bregnet.learners.supervision import Supervision
from bregnet.solver.margins import MARGIN
from bregnet.solver.points import Standardization


def companion_for(
    given: str | Generator,
    features: np.ndarray,
    units: Standardization,
    supervision: Supervision,
    random_state: int | np.random.RandomState | None,
) -> Generator:
    """What the parameter `companion` of PBDL adds to the learned function of these features, with weight 1."""
    features = np.asarray(features, dtype=np.float64)  # a companion is learned in memory
    if isinstance(given, Generator):
        known, n_features = given.n_features, features.shape[1]
        if known not in (None, n_features):
            raise ValueError(f"companion must be for the {n_features} features of X, got one for {known}")
        given._points("X", features, tangent=True)  # in its domain?
        return given
    if not isinstance(given, str) or given not in ("euclid", "within", "nca"):
        raise ValueError(f"companion must be None, 'euclid', 'within', 'nca' or a Generator, got {given!r}")
    if given == "nca" and supervision.classes is None:
        raise ValueError("companion='nca' needs class labels: use fit, or another companion")
    units.refuse_below(1e-130)  # the quadratic is divided by its square
    return _mahalanobis(given, units.points(features), units.unit, supervision, random_state)


def _mahalanobis(
    kind: str, points: np.ndarray, unit: np.ndarray, supervision: Supervision, random_state: Any
) -> Quadratic:
    """A Mahalanobis generator in the original units, scaled so that dissimilar pairs are the margin apart on average.

    The points are centered and of unit variance; features that are 0 throughout get no weight.
    """
    matrix = np.zeros((points.shape[1], points.shape[1]))
    varies = np.flatnonzero(points.any(0))
    if len(varies) == 0:
        return Quadratic(matrix)
    points, known, classes = points[:, varies], supervision.known, supervision.classes
    tangents, others, similar, counts = known
    if kind == "euclid":
        metric = np.eye(len(varies))
    elif kind == "nca":
        metric = _neighborhood_components(points, classes, random_state)
    else:
        metric = _within(points, points[tangents[similar]] - points[others[similar]], classes, supervision.weights)
    apart = points[tangents[~similar]] - points[others[~similar]]
    mean = np.average(((apart @ metric) * apart).sum(1), weights=None if counts is None else counts[~similar])
    metric = (MARGIN / mean if mean > 0 else 1.0) * (metric + metric.T) / 2
    matrix[np.ix_(varies, varies)] = metric / unit[varies] / unit[varies, None]
    return Quadratic(matrix)


def _within(
    points: np.ndarray, differences: np.ndarray, classes: np.ndarray | None, weights: np.ndarray | None
) -> np.ndarray:
    """Inverse of the shrunk covariance around class means, or of differences between similar points."""
    residuals = differences
    if classes is not None:
        weights = np.ones(len(points)) if weights is None else weights / weights.mean()
        counts = np.bincount(classes, weights)
        means = np.stack([np.bincount(classes, weights * column) / counts for column in points.T], axis=1)
        residuals = np.sqrt(weights)[:, None] * (points - means[classes])
    covariance = ledoit_wolf(residuals, assume_centered=True)[0]
    level = np.trace(covariance) / len(covariance)
    if level == 0:  # similar points are equal
        return np.eye(len(covariance))
    return np.linalg.inv(covariance / level + 1e-6 * np.eye(len(covariance)))


def _neighborhood_components(points: np.ndarray, classes: np.ndarray | None, random_state: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its default 50 iterations are a sensible early stop
        components = NeighborhoodComponentsAnalysis(random_state=random_state).fit(points, classes).components_
    return components.T @ components
