"""Weighted points relative to their mean, for divergences from a few centers that move."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bregnet._core.chunks import CACHE, batches, blocks, cache, rows_at_once
from bregnet.divergences.generators import Generator, from_one

TILE = 512  # points whose products with all centers are made at once; 256 are 1.2 times slower with 64 features


class CenteredPoints:
    """Points with weights, and what of their divergences D(x, c) does not depend on the centers c.

    D does not change when an affine function is added to f. With the mean o of the points as origin,

        D(x, c) = D(x, o) - (slope_c . (x - o) - D(o, c)),   slope_c = grad f(c) - grad f(o),

    so D(x, o) is computed once, centers cost a matrix product, and few digits are lost when the points are far from 0.
    Where the product is so much larger than D(x, o) that many would be lost, as with points of very different sizes
    under Itakura-Saito, an `Assignment` computes D(x, c) directly.

    Parameters
    ----------
    generator : Generator
    x : Tensor of shape (n, d)
        Points in the generator's domain.
    weights : Tensor of shape (n,), default=None
        At least 0, with a positive sum; 1 by default.
    origin : Tensor of shape (d,), default=None
        The origin o; the mean by default.
    unit : float, default=1.0
        The weights are multiples of this number.
    """

    def __init__(
        self,
        generator: Generator,
        x: Tensor,
        weights: Tensor | None = None,
        origin: Tensor | None = None,
        unit: float = 1.0,
    ) -> None:
        self.generator, self.weights, self.unit = generator, weights, unit
        self.x = x = x.detach().contiguous()
        self.origin = generator._interior((self.shares() @ x.double()).to(x) if origin is None else origin)
        self._slope = generator._gradients(self.origin[None])
        self.values = self.from_one(x, self.origin)  # D(x, o), (n,)

    def __len__(self) -> int:
        return len(self.x)

    def as_centers(self, rows: Tensor) -> Tensor:
        """The points in these rows, moved to where the tangent of f exists, (m, d)."""
        return self.generator._interior(self.x[rows])

    def shares(self) -> Tensor:
        """The weights, scaled to a sum of 1, (n,)."""
        weights = self.x.new_ones(len(self)) if self.weights is None else self.weights
        return weights.double() / weights.sum(dtype=torch.float64)

    def weighted(self, values: Tensor) -> Tensor:
        """The values (n,) or (n, m), times the weights."""
        if self.weights is None:
            return values
        return values * (self.weights if values.ndim == 1 else self.weights[:, None])

    def total(self, values: Tensor) -> float:
        """The weighted sum of values (n,), in units of the weights."""
        return self.finite(self.weighted(values).sum(dtype=torch.float64).item())

    def finite(self, objective: float) -> float:
        """The objective, or an error where it has overflowed."""
        if not math.isfinite(objective):
            precision = str(self.x.dtype).removeprefix("torch.")
            sizes = f"entries up to {self.x.abs().max().item():g} with an objective of {objective:g}"
            raise ValueError(f"X must not be so large, or spread so widely, that {precision} overflows, got {sizes}")
        return objective

    def counts(self, labels: Tensor, n_centers: int) -> Tensor:
        """Weight of each label, (k,)."""
        weights = None if self.weights is None else self.weights.double()
        return torch.bincount(labels, weights, minlength=n_centers).double()

    def sums(self, labels: Tensor, n_centers: int) -> Tensor:
        """Weighted sums of the points of each label, (k, d), in double precision."""
        sums = torch.zeros(n_centers, self.x.shape[1], dtype=torch.float64, device=self.x.device)
        for rows in blocks(*self.x.shape, budget=CACHE):  # of x, not of x - o: these means stay in the domain of f
            x = self.x[rows] if self.weights is None else self.x[rows] * self.weights[rows, None]
            sums.index_add_(0, labels[rows], x.double())
        return sums

    def means(self, labels: Tensor, centers: Tensor) -> Tensor:
        """Weighted means of the points of each label, (k, d); the center itself where there are none."""
        counts = self.counts(labels, len(centers))[:, None]
        means = self.generator._interior((self.sums(labels, len(centers)) / counts).to(centers.dtype))
        return torch.where(counts > 0, means, centers)

    def under(self, generator: Generator) -> CenteredPoints:
        """The same points with another generator."""
        return CenteredPoints(generator, self.x, self.weights, self.origin, self.unit)

    @property
    def rounding(self) -> float:
        """Divergences up to this size may be rounding errors."""
        return 100 * torch.finfo(self.x.dtype).eps * self.values.max().item()

    def variance(self) -> float:
        """Weighted variance, the mean over features."""
        return self.finite((self.shares() @ self.reach.square()).item() / self.x.shape[1])

    @cached_property
    def reach(self) -> Tensor:
        """Lengths of x - o, (n,), in double precision."""
        parts = self.x.split(rows_at_once(self.x.shape[1], budget=cache(self.x.device)))
        return torch.cat([torch.linalg.vector_norm(x - self.origin, dim=1, dtype=torch.float64) for x in parts])

    @cached_property
    def shifted(self) -> Tensor:
        """The points relative to o, (n, d)."""
        return self.x - self.origin

    @cached_property
    def tiles(self) -> tuple[np.ndarray, tuple[np.ndarray, ...], np.ndarray, float]:
        """What compiled passes need: tiles of the points relative to o in single precision, arrays, o, and a scale.

        The arrays are the points, their scaled distances from o, D(x, o), and the weights, empty if they are 1. A
        tile, (features, TILE), has a column for each of its points, and rows of zeros up to a multiple of 4. The
        longest point is scaled to a length between 1/2 and 1, so that products neither overflow nor vanish.
        """
        from bregnet.clustering.compiled_assignment import cut_into_tiles  # numba is slow to import

        n_points, n_features = self.x.shape
        scale = inverse_power_of_two(self.reach.max().item())
        # Torch's memory begins at a cache line, from where vectors are read in one piece.
        tiles = torch.zeros(-(-n_points // TILE), -(-n_features // 4) * 4, TILE, dtype=torch.float32).numpy()
        origin = self.origin.double().numpy()
        cut_into_tiles(self.x.numpy(), origin, scale, tiles)
        weights = self.x.new_empty(0) if self.weights is None else self.weights
        rows = self.x, (self.reach * scale).float(), self.values, weights
        return tiles, tuple(each.numpy() for each in rows), origin, scale

    @cached_property
    def rises(self) -> Tensor:
        """D(x, o) / |x - o|, infinite for points at o, (n,), in double precision."""
        return torch.where(self.reach > 0, self.values.double() / self.reach, torch.inf)

    @cached_property
    def least_rise(self) -> float:
        """The least of them."""
        return self.rises.min().item()

    @property
    def steepness(self) -> float:
        """Length of the gradient of f at o."""
        return torch.linalg.vector_norm(self._slope, dtype=torch.float64).item()

    @cached_property
    def order(self) -> Tensor:
        """Row numbers in an order that depends on the points alone, (n,), so that shuffled rows give the same draws."""
        slant = torch.sin(torch.arange(1.0, self.x.shape[1] + 1, device=self.x.device)).to(self.shifted)
        return (self.shifted @ slant).argsort()

    def from_one(self, x: Tensor, center: Tensor) -> Tensor:
        """D(x, c) for the rows of x and one center (d,), to full precision."""
        parts = x.split(self.generator._batch_size(x))
        return torch.cat([from_one(self.generator, rows, center[None]) for rows in parts])

    def tangents(self, centers: Tensor) -> tuple[Tensor, Tensor]:
        """Tangent planes at the centers relative to that at o: slopes (k, d), and depths D(o, c) at o, (k,)."""
        step = self.generator._batch_size(centers)
        parts = centers.split(step)  # the same parts for both: a tie between pieces then goes to the same one
        slopes = torch.cat([self.generator._gradients(c) for c in parts]) - self._slope
        below = torch.cat([self.generator._paired(self.origin.expand_as(c), c) for c in parts])
        return slopes, below

    def heights(self, slopes: Tensor, below: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Blocks of the values (rows, k) of tangent planes; D(x, c) is `values` minus these.

        A block is overwritten by the next one.
        """
        step = rows_at_once(max(slopes.shape), budget=cache(self.x.device))
        room = self.x.new_empty(min(step, len(self)), len(slopes))
        for rows in batches(len(self), step):
            yield rows, torch.addmm(-below, self.shifted[rows], slopes.T, out=room[: rows.stop - rows.start])

    def divergences(self, centers: Tensor) -> Tensor:
        """D(x, c) for all points and centers, (n, k)."""
        out = self.x.new_empty(len(self), len(centers))
        for rows, block in self.heights(*self.tangents(centers)):
            torch.sub(self.values[rows, None], block, out=out[rows])
        return out.clamp_min_(0)


def inverse_power_of_two(size: float) -> float:
    """A power of 2 that scales numbers up to this size to numbers up to 1; 1 where they are 0 or not finite."""
    return 2.0 ** -min(max(math.frexp(size)[1], -1000), 1000) if 0 < size < math.inf else 1.0
