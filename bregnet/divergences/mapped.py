"""Divergences of mapped points: D(phi(x), phi(y)) for a fixed map phi."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bregnet._core.arrays import Array, ArrayT
from bregnet.divergences.bregman_divergence import BregmanDivergence
from bregnet.divergences.generators import Generator
from bregnet.divergences.maps import PointMap


class MappedDivergence(BregmanDivergence):
    r"""The divergence of a generator after a map that is not affine, :math:`D(\phi(x), \phi(y))`.

    All methods take points as they are before the map. It is a Bregman divergence of the mapped points, not of the
    points themselves: it need not be convex in x, and its generator and the centers of clusters are in the space of
    the map. An affine map needs no such object, for :meth:`Generator.compose` takes it up.

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

    def _mapped(self, name: str, x: Tensor) -> Tensor:
        return self.feature_map(x, name)

    def pairwise(self, X: ArrayT, Y: Array | None = None, *, batch_size: int | None = None) -> ArrayT:
        """Divergences between all rows of X and all rows of Y: see :meth:`BregmanDivergence.pairwise`."""
        return super().pairwise(self.feature_map(X), self._other(Y), batch_size=batch_size)

    def pairwise_blocks(
        self, X: Array, Y: Array | None = None, *, batch_size: int | None = None
    ) -> Iterator[tuple[slice, Array]]:
        """The matrix of :meth:`pairwise`, some rows at a time: see :meth:`BregmanDivergence.pairwise_blocks`."""
        return super().pairwise_blocks(self.feature_map(X), self._other(Y), batch_size=batch_size)

    def paired(self, X: ArrayT, Y: Array) -> ArrayT:
        """Divergences between the rows of X and the same rows of Y: see :meth:`BregmanDivergence.paired`."""
        return super().paired(self.feature_map(X), self.feature_map(Y, "Y"))

    def lift_items(self, X: ArrayT, side: str = "right") -> ArrayT:
        """Vectors of items: see :meth:`BregmanDivergence.lift_items`. They are as long as mapped points, and 1 more."""
        return super().lift_items(self.feature_map(X), side)

    def lift_queries(self, Q: ArrayT, side: str = "right") -> ArrayT:
        """Vectors of queries to go with :meth:`lift_items`."""
        return super().lift_queries(self.feature_map(Q, "Q"), side)

    def lift_offsets(self, Q: ArrayT, side: str = "right") -> ArrayT:
        """Numbers that give divergences: see :meth:`BregmanDivergence.lift_offsets`."""
        return super().lift_offsets(self.feature_map(Q, "Q"), side)

    def _other(self, Y: Array | None) -> Array | None:
        return None if Y is None else self.feature_map(Y, "Y")


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
