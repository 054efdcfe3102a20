"""Divergences of mapped points: D(phi(x), phi(y)) for a fixed map phi."""

from __future__ import annotations

import torch

from bregnet._core.arrays import ArrayT
from bregnet.divergences.bregman_divergence import BregmanDivergence
from bregnet.divergences.generators import Generator
from bregnet.divergences.maps import PointMap


class MappedDivergence(BregmanDivergence):
    r"""The divergence of a generator after a map that is not affine, :math:`D(\phi(x), \phi(y))`.

    All methods take points as they are before the map; the vectors of :meth:`lift_items` have one entry more than
    mapped points. It is a Bregman divergence of the mapped points, not of the points themselves: it need not be convex
    in x, and its generator and the centers of clusters are in the space of the map. An affine map needs no such object,
    since :meth:`Generator.compose` makes it part of the generator.

    Parameters
    ----------
    generator : Generator
        The convex function, of mapped points.
    feature_map : PointMap
        The map.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_circles
    >>> from bregnet import PBDL
    >>> X, y = make_circles(200, noise=0.05, factor=0.5, random_state=0)
    >>> learner = PBDL(feature_map="rbf", n_pieces=20, tol=0.1, random_state=0).fit(X, y)
    >>> D = learner.divergence_
    >>> D.n_features, D.base.n_features
    (2, 200)
    >>> D.pairwise(X[:2], X[2:5]).shape
    (2, 3)
    """

    def __init__(self, generator: Generator, feature_map: PointMap) -> None:
        super().__init__(generator)
        if not isinstance(feature_map, PointMap):
            raise TypeError(f"feature_map must be a PointMap, such as the feature_map_ of PBDL, got {feature_map!r}")
        if None not in (generator.n_features, feature_map.n_outputs) and generator.n_features != feature_map.n_outputs:
            raise ValueError(f"feature_map must give {generator.n_features} features, got {feature_map!r}")
        self.feature_map = feature_map

    def __repr__(self) -> str:
        return f"MappedDivergence({self.generator!r}, {self.feature_map!r})"

    @property
    def n_features(self) -> int | None:
        """Number of features before the map."""
        return self.feature_map.n_features

    @property
    def base(self) -> BregmanDivergence:
        """The Bregman divergence of mapped points."""
        return BregmanDivergence(self.generator)

    def to(self, target: str | torch.device | torch.dtype) -> MappedDivergence:
        """The same divergence on another device or in another precision; the map keeps its own."""
        generator = self.generator.to(target)  # which checks the target
        moved = self.feature_map if isinstance(target, torch.dtype) else self.feature_map.to(target)
        return MappedDivergence(generator, moved)

    def _mapped(self, name: str, X: ArrayT) -> ArrayT:
        return self.feature_map(X, name)


def before_map(divergence: BregmanDivergence, feature_map: PointMap | None) -> BregmanDivergence:
    """The divergence of points before a map, given that of mapped points; an affine map goes into the generator."""
    if feature_map is None or not feature_map.steps:
        return divergence
    if isinstance(divergence, MappedDivergence):
        return MappedDivergence(divergence.generator, divergence.feature_map.after(feature_map))
    if feature_map.is_affine:
        (step,) = feature_map.steps
        return BregmanDivergence(divergence.generator.compose(step.matrix, step.offset))  # type: ignore[union-attr]
    return MappedDivergence(divergence.generator, feature_map)
