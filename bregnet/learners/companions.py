"""Linear metrics that a learned divergence can carry along."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.covariance import ledoit_wolf
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from bregnet.divergences import Quadratic
from bregnet.solver.margins import MARGIN


def companion_generator(
    kind: str,
    points: np.ndarray,
    unit: np.ndarray,
    pairs: np.ndarray,
    similar: np.ndarray,
    classes: np.ndarray | None,
    random_state: int | np.random.RandomState | None,
) -> Quadratic:
    """A Mahalanobis generator, scaled so that dissimilar pairs are the margin apart on average.

    Parameters
    ----------
    kind : {"within", "nca"}
        The inverse covariance of differences between similar points, or neighbourhood components analysis.
    points : ndarray of shape (n, d)
        Centred and of unit variance; features that are 0 throughout get no weight.
    unit : ndarray of shape (d,)
        The scale of each feature, which the generator is for.
    pairs : ndarray of shape (m, 2)
    similar : ndarray of shape (m,), bool
    classes : ndarray of shape (n,) or None
    random_state : int, RandomState or None

    Returns
    -------
    generator : Quadratic
        In the original units.

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet.learners.companions import companion_generator
    >>> X, pairs = np.array([[0.0], [1.0], [3.0]]), np.array([[0, 1], [0, 2]])
    >>> g = companion_generator("within", X, np.ones(1), pairs, np.array([True, False]), None, 0)
    >>> g([[3.0]])  # the dissimilar pair is 2 apart
    array([2.])
    """
    if not isinstance(kind, str) or kind not in ("within", "nca"):
        raise ValueError(f"companion must be None, 'within', 'nca' or a Generator, got {kind!r}")
    if kind == "nca" and classes is None:
        raise ValueError("companion='nca' needs class labels: use fit, or another companion")
    matrix = np.zeros((points.shape[1], points.shape[1]))
    varies = np.flatnonzero(points.any(0))
    if len(varies) == 0:
        return Quadratic(matrix)
    points = points[:, varies]
    if kind == "within":
        metric = _within(points, pairs[similar], classes)
    else:
        metric = _neighbourhood_components(points, classes, random_state)
    apart = points[pairs[~similar, 0]] - points[pairs[~similar, 1]]
    mean = np.mean(((apart @ metric) * apart).sum(1))
    metric = (MARGIN / mean if mean > 0 else 1.0) * (metric + metric.T) / 2
    matrix[np.ix_(varies, varies)] = metric / unit[varies] / unit[varies, None]
    return Quadratic(matrix)


def _within(points: np.ndarray, similar: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    """Inverse of the shrunk covariance around class means, or of differences of similar pairs."""
    if classes is None:
        residuals = points[similar[:, 0]] - points[similar[:, 1]]
    else:
        counts = np.bincount(classes)
        means = np.stack([np.bincount(classes, column) / counts for column in points.T], axis=1)
        residuals = points - means[classes]
    covariance = ledoit_wolf(residuals, assume_centered=True)[0]
    level = np.trace(covariance) / len(covariance)
    if level == 0:  # similar points are equal
        return np.eye(len(covariance))
    return np.linalg.inv(covariance / level + 1e-6 * np.eye(len(covariance)))


def _neighbourhood_components(
    points: np.ndarray, classes: np.ndarray | None, random_state: int | np.random.RandomState | None
) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its default 50 iterations are a sensible early stop
        components = NeighborhoodComponentsAnalysis(random_state=random_state).fit(points, classes).components_
    return components.T @ components
