"""Feature maps in front of a learner: the parameter `feature_map` of PBDL."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet.divergences.maps import AffineStep, GaussianStep, PointMap, Step, affine_step, fitted_map
from bregnet.solver.points import Standardization

KINDS = ("lda", "rbf", "rbf+lda")
MANY_FEATURES = 100  # feature_map="auto" is LDA from here on: `python -m benchmarks.embeddings` has what it gains


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""A map of features to others in which a divergence is learned: Gaussian kernel features, LDA, or both.

    Features are brought to unit variance first. Kernel features are those of Nystroem's method:
    :math:`K^{-1/2} k(x)` with :math:`k(x)_i = \exp(-|x - z_i|^2 / (d w^2))` for landmarks z_i among the rows, their
    kernel matrix K, d features and the width w. Linear discriminant analysis (LDA) takes the directions in which
    class means are farthest apart, one fewer than classes, for features whose covariance inside classes is the
    identity. A ridge is added to that covariance, the one for which class indicators are best predicted when one row
    is left out.

    Parameters
    ----------
    kind : {"rbf", "lda", "rbf+lda"}, default="rbf"
        Kernel features, LDA, or LDA of kernel features.
    width : float, default=1.0
        Width of the kernel in units of typical distances: 0.5 and 2 are worth a try. Not used by "lda".
    n_components : int, default=300
        Landmarks, at most one for each distinct row. Not used by "lda".
    random_state : int, RandomState or None, default=None
        Seed of the landmarks. A learner that is given a map without one lends its own seed to it.

    Attributes
    ----------
    point_map_ : PointMap
        The fitted map, made of arrays.
    n_features_in_ : int

    References
    ----------
    Williams and Seeger, "Using the Nystroem method to speed up kernel machines", NeurIPS 2000. Hastie, Buja and
    Tibshirani, "Penalized discriminant analysis", Annals of Statistics, 1995.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bregnet import PBDL, FeatureMap
    >>> X, y = load_iris(return_X_y=True)
    >>> FeatureMap("lda").fit_transform(X, y).shape
    (150, 2)
    >>> model = PBDL(feature_map=FeatureMap("rbf+lda", width=2.0), n_pieces=20, tol=0.1).fit(X, y)
    >>> model.divergence_.n_features
    4
    """

    def __init__(
        self,
        kind: str = "rbf",
        *,
        width: float = 1.0,
        n_components: int = 300,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kind = kind
        self.width = width
        self.n_components = n_components
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = isinstance(self.kind, str) and self.kind.endswith("lda")
        return tags

    def fit(self, X: Array, y: Array | None = None, sample_weight: Array | None = None) -> FeatureMap:
        """Choose landmarks and directions.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,), default=None
            Class labels, which LDA needs.
        sample_weight : array of shape (n_samples,), default=None
            Weights of the rows in means and covariances; those of weight 0 are left out.

        Returns
        -------
        self : FeatureMap

        Examples
        --------
        >>> from bregnet import FeatureMap
        >>> FeatureMap("rbf").fit([[0.0], [1.0], [3.0]]).point_map_
        PointMap(1 features to 3: affine, Gaussian kernel)
        """
        kind = check.one_of("kind", self.kind, KINDS)
        width = check.positive("width", self.width)
        if not 1e-150 < width < 1e150:
            raise ValueError(f"width must be between 1e-150 and 1e150, where its square is a number, got {width:g}")
        n_components = check.integer_at_least("n_components", self.n_components, 1)
        seed = check_random_state(self.random_state)
        needs_classes, numbers = kind.endswith("lda"), {"dtype": np.float64, "ensure_min_samples": 2}
        if needs_classes:
            features, labels = check.validate_data(self, to_numpy(X, "X"), to_numpy(y, "y"), **numbers)
            check.class_labels(labels)
        else:
            features = check.validate_data(self, to_numpy(X, "X"), **numbers)
        row_weights = check.sample_weights(sample_weight, len(features))
        if row_weights is not None:
            present = row_weights > 0
            features, row_weights = features[present], row_weights[present]
            labels = labels[present] if needs_classes else None
        units = Standardization.from_rows(features, weights=row_weights)
        units.refuse_below(1e-300)
        weights = np.divide(1.0, units.unit, out=np.zeros_like(units.unit), where=units.scale > 0)
        steps: list[Step] = [affine_step(np.diag(weights), -weights * units.center)]
        if kind.startswith("rbf"):
            landmarks = np.unique(units.points(features), axis=0)
            landmarks = landmarks[seed.permutation(len(landmarks))[:n_components]]
            steps.append(_kernel_step(landmarks, 1 / (width**2 * features.shape[1])))
        if needs_classes:
            classes = np.unique(labels, return_inverse=True)[1]
            steps.append(_discriminant_step(PointMap(steps)(features), classes, row_weights))
        self.point_map_ = PointMap(steps)
        return self

    def transform(self, X: Array) -> Array:
        """The rows of X mapped.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        mapped : array of shape (n_samples, n_mapped)

        Examples
        --------
        >>> from bregnet import FeatureMap
        >>> FeatureMap("lda").fit([[0.0], [1.0], [5.0], [6.0]], [0, 0, 1, 1]).transform([[3.0]]).round(6) + 0.0
        array([[0.]])
        """
        check_is_fitted(self, "point_map_")
        return self.point_map_(check.validate_data(self, to_numpy(X, "X"), dtype=np.float64, reset=False))

    @property
    def _n_features_out(self) -> int | None:
        return self.point_map_.n_outputs


def _kernel_step(landmarks: np.ndarray, gamma: float) -> GaussianStep:
    """K^-1/2 k(x), without directions that the landmarks do not span up to rounding."""
    given = torch.as_tensor(landmarks)
    plain = GaussianStep(given, torch.eye(len(given), dtype=torch.float64), gamma)
    eigenvalues, directions = torch.linalg.eigh(plain(given))
    root = torch.where(eigenvalues > 1e-12 * eigenvalues[-1], eigenvalues, torch.inf).rsqrt()
    return GaussianStep(given, directions * root @ directions.T, gamma)


def _discriminant_step(points: np.ndarray, classes: np.ndarray, weights: np.ndarray | None) -> AffineStep:
    """Directions in which class means are farthest apart, for unit covariance inside classes, a ridge added.

    A row of weight 2 counts as two. Weights with a mean below 1, such as shares, are relative.
    """
    weights = np.ones(len(points)) if weights is None else weights / min(1.0, weights.mean())
    counts = np.bincount(classes, weights)
    if len(counts) < 2:
        raise ValueError("y must have at least 2 classes for LDA, got 1")
    center = np.average(points, axis=0, weights=weights)
    means = np.stack([np.bincount(classes, column) for column in (weights * points.T)], axis=1) / counts[:, None]
    inside = np.sqrt(weights)[:, None] * (points - means[classes])
    ridge = _ridge(points - center, classes, counts, weights)
    eigenvalues, directions = np.linalg.eigh((inside.T @ inside + ridge * np.eye(points.shape[1])) / counts.sum())
    whitened = directions / np.sqrt(eigenvalues.clip(min=ridge / counts.sum() if ridge > 0 else 1.0))  # (d, d)
    between = np.sqrt(counts / counts.sum())[:, None] * ((means - center) @ whitened)
    _, sizes, axes = np.linalg.svd(between, full_matrices=False)
    axes = axes[: max(1, int((sizes > 1e-9 * sizes[0]).sum()))][: len(counts) - 1]
    matrix = axes @ whitened.T
    return affine_step(matrix, -matrix @ center)


def _ridge(centered: np.ndarray, classes: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> float:
    """The ridge of least leave-one-out error of the regression of class indicators on centered points.

    That regression spans the discriminant coordinates, and its errors are known without fitting again: residuals over
    one minus leverage. All classes count alike.
    """
    root = np.sqrt(weights)[:, None]
    weighted = root * centered
    squares, directions = np.linalg.eigh(weighted.T @ weighted)
    used = squares > 1e-10 * squares[-1]
    if not used.any():
        return 0.0
    left = weighted @ (directions[:, used] / np.sqrt(squares[used]))  # (n, r)
    targets = (classes[:, None] == np.arange(len(counts))) / np.sqrt(counts)
    targets = root * (targets - np.average(targets, axis=0, weights=weights))
    along = left.T @ targets

    def error(ridge: float) -> float:
        kept = squares[used] / (squares[used] + ridge)
        leverage = 1 / counts.sum() + np.square(left) @ kept / weights
        residuals = (targets - left @ (kept[:, None] * along)) / (1 - leverage).clip(min=1e-9)[:, None]
        return float(np.square(residuals).sum())

    return min(squares[-1] * np.logspace(-6, 0, 13), key=error)


def map_for(
    given: Any,
    features: np.ndarray,
    classes: np.ndarray | None,
    seed: Any = None,
    weights: np.ndarray | None = None,
) -> PointMap | None:
    """What the parameter `feature_map` of PBDL is after a fit to these features, and their classes if there are any.

    "auto" leaves rows that lie in a file alone. `seed` is for maps of ours that have none.
    """
    if isinstance(given, str) and given == "auto":
        wide = classes is not None and features.shape[1] >= MANY_FEATURES and not isinstance(features, np.memmap)
        given = "lda" if wide else None
    if given is None:
        return None
    if isinstance(given, str):
        given = FeatureMap(check.one_of("feature_map", given, KINDS))
    elif isinstance(given, type) or not hasattr(given, "transform"):
        accepted = f"'auto', None, {', '.join(map(repr, KINDS))} or a transformer"
        raise ValueError(f"feature_map must be {accepted}, got {given!r}")
    parts = {"": given, **(given.get_params() if hasattr(given, "get_params") else {})}
    fixed = tuple(f"{name}__".removeprefix("__") for name, part in parts.items() if isinstance(part, FrozenEstimator))
    parts = {name: part for name, part in parts.items() if not name.startswith(fixed)}
    unseeded = [name for name, part in parts.items() if isinstance(part, FeatureMap) and part.random_state is None]
    if unseeded:
        given = clone(given).set_params(**{f"{name}__random_state".removeprefix("__"): seed for name in unseeded})
    return fitted_map(given, features, classes, weights)


def steepest(function: Any, feature_map: PointMap, features: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The largest absolute derivative of a function after a map by each feature, times its scale, at some rows."""
    rows = np.asarray(features[:: max(1, len(features) // 200)], dtype=np.float64)
    found = np.empty(rows.shape[1])
    for feature, unit in enumerate(scale):
        step = np.zeros(rows.shape[1])
        step[feature] = 1e-4 * unit
        found[feature] = np.abs(function(feature_map(rows + step)) - function(feature_map(rows - step))).max() / 2e-4
    return found
