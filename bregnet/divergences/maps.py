"""Maps of points in front of a divergence: fixed steps of arrays, made of fitted transformers of scikit-learn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import SelectorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array, ArrayT, to_numpy
from bregnet._core.chunks import batches, rows_at_once


@dataclass(frozen=True)
class AffineStep:
    """x -> Wx + c."""

    matrix: Tensor  # (m, d)
    offset: Tensor  # (m,)

    def __post_init__(self) -> None:
        _expect_shapes(self.matrix, (self.offset, self.matrix.shape[:1]))

    @property
    def shape(self) -> tuple[int | None, int | None]:
        """Features before and after."""
        return self.matrix.shape[1], self.matrix.shape[0]

    def __call__(self, x: Tensor) -> Tensor:
        """Points mapped."""
        return torch.addmm(self.offset, x, self.matrix.T)

    def after(self, first: AffineStep) -> AffineStep:
        """Both in one step."""
        return AffineStep(self.matrix @ first.matrix, self.matrix @ first.offset + self.offset)


@dataclass(frozen=True)
class GaussianStep:
    """x -> M k(x), k(x)_i = exp(-gamma |x - landmark_i|^2)."""

    landmarks: Tensor  # (k, d)
    matrix: Tensor  # (m, k)
    gamma: float

    def __post_init__(self) -> None:
        _expect_shapes(self.landmarks, (self.matrix, (len(self.matrix), len(self.landmarks))))
        check.positive("gamma", self.gamma)

    @property
    def shape(self) -> tuple[int | None, int | None]:
        """Features before and after."""
        return self.landmarks.shape[1], self.matrix.shape[0]

    def __call__(self, x: Tensor) -> Tensor:
        """Points mapped."""
        center = self.landmarks.mean(0)  # distances of points far from the origin lose digits
        x, landmarks = x - center, self.landmarks - center
        squares = x.square().sum(1, keepdim=True) + landmarks.square().sum(1) - 2 * x @ landmarks.T
        return (-self.gamma * squares.clamp_min(0)).exp() @ self.matrix.T


@dataclass(frozen=True)
class OtherStep:
    """The transform of a fitted transformer of which nothing else is known: no gradients, and it cannot be saved."""

    transformer: Any
    shape: tuple[int | None, int | None] = (None, None)  # features before and after, where they are known

    def __call__(self, x: Tensor) -> Tensor:
        """Points mapped."""
        if x.requires_grad:
            raise ValueError(f"X must not require gradients: {self.transformer!r} has none to give")
        found = self.transformer.transform(x.cpu().numpy())
        found = found.toarray() if hasattr(found, "toarray") else np.asarray(to_numpy(found))
        return torch.as_tensor(found, dtype=x.dtype, device=x.device)


def _expect_shapes(matrix: Tensor, *others: tuple[Tensor, Sequence[int]]) -> None:
    """Raise an error for arrays that are no step of a map."""
    shapes = [(matrix, matrix.shape), *others]
    if matrix.ndim != 2 or 0 in matrix.shape or any(part.shape != tuple(shape) for part, shape in shapes):
        raise ValueError(f"arrays of a map must fit each other, got shapes {[tuple(part.shape) for part, _ in shapes]}")
    for part, _ in shapes:
        if not (part.is_floating_point() and part.dtype == matrix.dtype and torch.isfinite(part).all()):
            raise ValueError(f"arrays of a map must be finite numbers of one precision, got dtype {part.dtype}")


Step = AffineStep | GaussianStep | OtherStep


class PointMap:
    """A fixed map of points to other points, such as the one that a learner has fitted as its `feature_map_`.

    Affine steps in a row become one. Steps of arrays, which affine and Gaussian kernel maps have, compute on any
    device, give gradients and can be saved.

    Parameters
    ----------
    steps : sequence of steps
        Applied from the first to the last.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from bregnet.divergences.maps import point_map
    >>> there = point_map(StandardScaler().fit([[1.0], [3.0]]))
    >>> there([[4.0]]), there.is_affine
    (array([[2.]]), True)
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        merged: list[Step] = []
        for step in steps:
            if merged and isinstance(step, AffineStep) and isinstance(last := merged[-1], AffineStep):
                merged[-1] = step.after(last)
            else:
                merged.append(step)
        self.steps = tuple(merged)
        for first, second in pairwise(self.steps):
            if None not in (first.shape[1], second.shape[0]) and first.shape[1] != second.shape[0]:
                raise ValueError(f"steps must take the features of the one before, got {first.shape}, {second.shape}")

    def __repr__(self) -> str:
        n_features, n_outputs = ("?" if count is None else count for count in (self.n_features, self.n_outputs))
        kinds = {AffineStep: "affine", GaussianStep: "Gaussian kernel"}
        names = [kinds.get(type(step)) or repr(step.transformer) for step in self.steps]  # type: ignore[union-attr]
        return f"PointMap({n_features} features to {n_outputs}: {', '.join(names) or 'identity'})"

    @property
    def n_features(self) -> int | None:
        """Number of features that it takes, None if any number is accepted."""
        return self.steps[0].shape[0] if self.steps else None

    @property
    def n_outputs(self) -> int | None:
        """Number of features that it gives, None where that is not known."""
        return self.steps[-1].shape[1] if self.steps else None

    @property
    def is_affine(self) -> bool:
        """Whether it is affine, so that a generator can take it up."""
        return all(isinstance(step, AffineStep) for step in self.steps)

    def __call__(self, X: ArrayT, name: str = "X") -> ArrayT:
        """The rows of X mapped, in double precision unless the map is in another: the kind of array that X is."""
        with arrays.gradients_for(X):
            return arrays.like(self._mapped(name, arrays.points(name, X, self.n_features, None, None)), X)

    transform = __call__

    def _mapped(self, name: str, x: Tensor) -> Tensor:
        """Checked points, mapped where they are."""
        tensors = [part for step in self.steps for part in vars(step).values() if isinstance(part, Tensor)]
        like = tensors[0] if tensors else x.new_empty(0, dtype=torch.float64)
        moved = self if like.device == x.device else self.to(x.device)
        width = max((count for step in self.steps for count in (*step.shape, *_inner(step)) if count), default=1)
        parts = [
            reduce(lambda rows, step: step(rows), moved.steps, x[part].to(like.dtype))
            for part in batches(len(x), rows_at_once(width))
        ]
        mapped = torch.cat(parts) if parts else x.new_empty(0, self.n_outputs or 0, dtype=like.dtype)
        if not torch.isfinite(mapped.detach()).all():
            raise ValueError(f"{name} must have finite values after the feature map, got NaN or infinity")
        return mapped

    def after(self, first: PointMap) -> PointMap:
        """Another map, then this one."""
        return PointMap([*first.steps, *self.steps])

    def to(self, target: str | torch.device | torch.dtype) -> PointMap:
        """The same map on another device or in another precision."""
        moved: list[Any] = [copy.copy(step) for step in self.steps]
        for step in moved:
            vars(step).update({name: part.to(target) for name, part in vars(step).items() if isinstance(part, Tensor)})
        return PointMap(moved)


def _inner(step: Step) -> tuple[int, ...]:
    return (len(step.landmarks),) if isinstance(step, GaussianStep) else ()


def affine_step(matrix: Array, offset: float | Array) -> AffineStep:
    """An affine step of arrays."""
    weights = torch.as_tensor(np.ascontiguousarray(matrix), dtype=torch.float64)
    return AffineStep(weights, torch.as_tensor(offset, dtype=torch.float64).expand(len(weights)).contiguous())


def _scaling(center: Any, scale: Any, n_features: int) -> AffineStep:
    """(x - center) / scale; None for either is without it."""
    center = np.zeros(n_features) if center is None else np.asarray(center)
    unit = np.ones(n_features) if scale is None else np.asarray(scale)
    return affine_step(np.diag(1 / unit), -center / unit)


def _components(found: Any) -> AffineStep:
    """(x - mean) times components, divided by deviations where it whitens."""
    components = np.asarray(found.components_, dtype=np.float64)
    if getattr(found, "whiten", False):
        components = components / np.sqrt(found.explained_variance_)[:, None]
    mean = getattr(found, "mean_", None)
    return affine_step(components, 0.0 if mean is None else -components @ mean)


def _discriminants(found: LinearDiscriminantAnalysis) -> AffineStep:
    if found.solver == "lsqr":
        raise ValueError("feature_map must be able to transform, got LinearDiscriminantAnalysis(solver='lsqr')")
    matrix = np.asarray(found.scalings_)[:, : found._max_components].T
    return affine_step(matrix, -matrix @ found.xbar_ if found.solver == "svd" else 0.0)


def _other(found: Any) -> OtherStep:
    return OtherStep(found, (getattr(found, "n_features_in_", None), None))


def _min_max(found: MinMaxScaler) -> Step:
    return _other(found) if found.clip else affine_step(np.diag(found.scale_), found.min_)


def _nystroem(found: Nystroem) -> Step:
    if found.kernel != "rbf":
        return _other(found)
    landmarks = torch.as_tensor(found.components_, dtype=torch.float64)
    gamma = 1.0 / landmarks.shape[1] if found.gamma is None else float(found.gamma)
    return GaussianStep(landmarks, torch.as_tensor(found.normalization_, dtype=torch.float64), gamma)


# transformers whose arrays say all that they do
KNOWN: dict[type, Callable[[Any], Step]] = {
    StandardScaler: lambda found: _scaling(
        found.mean_ if found.with_mean else None, found.scale_, found.n_features_in_
    ),
    RobustScaler: lambda found: _scaling(found.center_, found.scale_, found.n_features_in_),
    MaxAbsScaler: lambda found: _scaling(None, found.scale_, found.n_features_in_),
    MinMaxScaler: _min_max,
    PCA: _components,
    IncrementalPCA: _components,
    TruncatedSVD: _components,
    NeighborhoodComponentsAnalysis: _components,
    LinearDiscriminantAnalysis: _discriminants,
    Nystroem: _nystroem,
}


def point_map(transformer: Any) -> PointMap:
    """The map of a fitted transformer.

    Parameters
    ----------
    transformer : object
        A transformer of scikit-learn, a pipeline of several, or what has a `point_map_`. Scalers, PCA, truncated SVD,
        LDA, NCA, selections of features and Nystroem with its Gaussian kernel become arrays. Any other object with a
        method `transform` is called for every point.

    Returns
    -------
    found : PointMap

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from bregnet.divergences.maps import point_map
    >>> X = np.random.default_rng(0).standard_normal((20, 3))
    >>> point_map(make_pipeline(StandardScaler(), PCA(2)).fit(X))
    PointMap(3 features to 2: affine)
    """
    if isinstance(transformer, PointMap):
        return transformer
    if transformer is None or (isinstance(transformer, str) and transformer == "passthrough"):
        return PointMap([])
    if isinstance(transformer, FrozenEstimator):
        return point_map(transformer.estimator)
    if isinstance(transformer, Pipeline):
        return PointMap([step for _, each in transformer.steps for step in point_map(each).steps])
    if not hasattr(transformer, "transform"):
        raise TypeError(f"feature_map must have a method transform, got {transformer!r}")
    check_is_fitted(transformer)
    if hasattr(transformer, "point_map_"):
        return transformer.point_map_
    if type(transformer) in KNOWN:
        return PointMap([KNOWN[type(transformer)](transformer)])
    if isinstance(transformer, SelectorMixin):
        return PointMap([affine_step(np.eye(transformer.n_features_in_)[transformer.get_support()], 0.0)])
    return PointMap([_other(transformer)])


def fitted_map(
    given: Any, features: np.ndarray, classes: np.ndarray | None, weights: np.ndarray | None = None
) -> PointMap:
    """The map that a copy of a transformer makes after a fit to rows, and to their classes where there are any.

    Weights of the rows are passed on where its `fit` takes them. A :class:`PointMap`, and a transformer in
    scikit-learn's ``FrozenEstimator``, are taken as they are.
    """
    if isinstance(given, PointMap | FrozenEstimator):
        found = point_map(given)
    else:
        if classes is None and _needs_classes(given):
            raise ValueError(
                f"feature_map must not need class labels where there are none, got {given!r}: use fit, another map such"
                " as 'rbf', or one that was fitted before, in a FrozenEstimator"
            )
        rows = np.asarray(features, dtype=np.float64)
        known = {} if classes is None else {"y": classes}
        if weights is not None and has_fit_parameter(given, "sample_weight"):
            known["sample_weight"] = weights
        found = point_map(clone(given).fit(rows, **known))
    if found.n_features not in (None, features.shape[1]):
        raise ValueError(f"feature_map must be for the {features.shape[1]} features of X, got one for {found!r}")
    some, steps = np.asarray(features[:1], dtype=np.float64), []
    for step in found.steps:
        after = PointMap([step])(some)
        steps.append(replace(step, shape=(some.shape[1], after.shape[1])) if isinstance(step, OtherStep) else step)
        some = after
    return PointMap(steps)


def _needs_classes(given: Any) -> bool:
    steps = [each for _, each in given.steps] if isinstance(given, Pipeline) else [given]
    return any(get_tags(each).target_tags.required for each in steps if hasattr(each, "fit"))


def step_arrays(step: Step) -> dict[str, Any]:
    """What a step is made of, for files."""
    if isinstance(step, OtherStep):
        raise TypeError(
            f"a feature map can be saved where its steps are scalers, PCA, LDA, NCA, Nystroem with its Gaussian kernel,"
            f" 'rbf' or 'lda', got {step.transformer!r}"
        )
    return {each.name: getattr(step, each.name) for each in fields(step)}
