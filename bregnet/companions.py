"""Linear metrics that a learned divergence can carry along."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.covariance import ledoit_wolf
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from bregnet.admm.margins import MARGIN
from bregnet.classical import Quadratic

KINDS = ("within", "nca")


def companion_generator(
    kind: str,
    features: np.ndarray,
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
    features : ndarray of shape (n, d)
    unit : ndarray of shape (d,)
        The scale of each feature.
    pairs : ndarray of shape (m, 2)
    similar : ndarray of shape (m,), bool
    classes : ndarray of shape (n,) or None
    random_state : int, RandomState or None

    Returns
    -------
    generator : Quadratic

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet.companions import companion_generator
    >>> X, pairs = np.array([[0.0], [1.0], [3.0]]), np.array([[0, 1], [0, 2]])
    >>> g = companion_generator("within", X, np.ones(1), pairs, np.array([True, False]), None, 0)
    >>> g([[3.0]])  # the dissimilar pair is 2 apart
    array([2.])
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"companion must be None, 'within', 'nca' or a Generator, got {kind!r}")
    scaled = features / unit
    if kind == "within":
        inverse = _within(scaled, pairs[similar], classes)
    elif classes is None:
        raise ValueError("companion='nca' needs class labels: use fit, or another companion")
    else:
        inverse = _neighbourhood_components(scaled, classes, random_state)
    apart = scaled[pairs[~similar, 0]] - scaled[pairs[~similar, 1]]
    mean = np.mean(((apart @ inverse) * apart).sum(1))
    matrix = (MARGIN / mean if mean > 0 else 1.0) * inverse / np.outer(unit, unit)
    return Quadratic((matrix + matrix.T) / 2)


def _within(scaled: np.ndarray, similar: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    """Inverse of the shrunk covariance around class means, or of differences of similar pairs."""
    if classes is None:
        residuals = scaled[similar[:, 0]] - scaled[similar[:, 1]]
    else:
        counts = np.bincount(classes)
        means = np.stack([np.bincount(classes, column) / counts for column in scaled.T], axis=1)
        residuals = scaled - means[classes]
    covariance = ledoit_wolf(residuals, assume_centered=True)[0]
    floor = 1e-6 * max(np.trace(covariance) / len(covariance), 1e-300)
    return np.linalg.inv(covariance + floor * np.eye(len(covariance)))


def _neighbourhood_components(
    scaled: np.ndarray, classes: np.ndarray, random_state: int | np.random.RandomState | None
) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its default 50 iterations are a sensible early stop
        components = NeighborhoodComponentsAnalysis(random_state=random_state).fit(scaled, classes).components_
    return components.T @ components
