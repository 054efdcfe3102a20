"""Weighted points relative to their mean, for divergences from a few centers that move."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bregnet._core.chunks import CACHE, batches, blocks, cache, rows_at_once
from bregnet.divergences import Generator


class CentredPoints:
    """Points with weights, and what of their divergences D(x, c) does not depend on the centers c.

    D does not change when an affine function is added to f. With the mean o of the points as origin,

        D(x, c) = D(x, o) - (slope_c . (x - o) - D(o, c)),   slope_c = grad f(c) - grad f(o),

    so D(x, o) is computed once, centers cost a matrix product, and few digits are lost when the points are far from 0.
    Where the product is so much larger than D(x, o) that many would be lost, as with points of very different sizes
    under Itakura-Saito, `nearest` computes D(x, c) directly.

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
        self.generator, self.x, self.weights, self.unit = generator, x, weights, unit
        self.origin = generator._interior((self.shares() @ x.double()).to(x) if origin is None else origin)
        self.shifted = x - self.origin  # (n, d)
        self._slope = generator._gradients(self.origin[None])
        self.values = self.from_one(x, self.origin)  # D(x, o), (n,)

    def __len__(self) -> int:
        return len(self.x)

    def as_centres(self, rows: Tensor) -> Tensor:
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

    def counts(self, labels: Tensor, n_centres: int) -> Tensor:
        """Weight of each label, (k,)."""
        weights = None if self.weights is None else self.weights.double()
        return torch.bincount(labels, weights, minlength=n_centres).double()

    def sums(self, labels: Tensor, n_centres: int) -> Tensor:
        """Weighted sums of the points of each label, (k, d), in double precision."""
        sums = torch.zeros(n_centres, self.x.shape[1], dtype=torch.float64, device=self.x.device)
        for rows in blocks(*self.x.shape, budget=CACHE):  # of x, not of x - o: these means stay in the domain of f
            x = self.x[rows] if self.weights is None else self.x[rows] * self.weights[rows, None]
            sums.index_add_(0, labels[rows], x.double())
        return sums

    def means(self, labels: Tensor, centres: Tensor) -> Tensor:
        """Weighted means of the points of each label, (k, d); the center itself where there are none."""
        counts = self.counts(labels, len(centres))[:, None]
        means = self.generator._interior((self.sums(labels, len(centres)) / counts).to(centres.dtype))
        return torch.where(counts > 0, means, centres)

    def under(self, generator: Generator) -> CentredPoints:
        """The same points with another generator."""
        return CentredPoints(generator, self.x, self.weights, self.origin, self.unit)

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
        return torch.linalg.vector_norm(self.shifted, dim=1, dtype=torch.float64)

    @cached_property
    def _least_rise(self) -> float:
        """The least D(x, o) / |x - o| of points that are not at o."""
        rises = self.values.double() / self.reach
        return torch.where(self.reach > 0, rises, torch.inf).min().item()

    @property
    def steepness(self) -> float:
        """Length of the gradient of f at o."""
        return torch.linalg.vector_norm(self._slope, dtype=torch.float64).item()

    @cached_property
    def order(self) -> Tensor:
        """Row numbers in an order that depends on the points alone, (n,), so that shuffled rows give the same draws."""
        slant = torch.sin(torch.arange(1.0, self.x.shape[1] + 1, device=self.x.device)).to(self.shifted)
        return (self.shifted @ slant).argsort()

    def from_one(self, x: Tensor, centre: Tensor) -> Tensor:
        """D(x, c) for the rows of x and one center (d,), to full precision."""
        parts = x.split(self.generator._batch_size(x))
        return torch.cat([self.generator._from_one(rows, centre[None]) for rows in parts])

    def tangents(self, centres: Tensor) -> tuple[Tensor, Tensor]:
        """Tangent planes at the centers relative to that at o: slopes (k, d), and depths D(o, c) at o, (k,)."""
        step = self.generator._batch_size(centres)
        parts = centres.split(step)  # the same parts for both: a tie between pieces then goes to the same one
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

    def divergences(self, centres: Tensor) -> Tensor:
        """D(x, c) for all points and centers, (n, k)."""
        out = self.x.new_empty(len(self), len(centres))
        for rows, block in self.heights(*self.tangents(centres)):
            torch.sub(self.values[rows, None], block, out=out[rows])
        return out.clamp_min_(0)

    def nearest(self, centres: Tensor) -> tuple[Tensor, Tensor]:
        """Number of the center nearest to each point and D(x, c) from it, both (n,).

        Between centers with the same tangent plane, as on one piece of a max-affine function, the squared Euclidean
        distance decides. Means minimize that too, so the objective still decreases.
        """
        slopes, below = self.tangents(centres)
        labels = torch.empty(len(self), dtype=torch.int64, device=self.x.device)
        highest = torch.empty_like(self.values)
        for rows, block in self.heights(slopes, below):
            _largest(block, highest[rows], labels[rows])
        if _may_repeat(slopes):
            self._separate(labels, centres, slopes)
        gaps = (self.values - highest).clamp_min_(0)
        if self.generator._stable:
            self._recover(labels, gaps, centres, slopes, below)
        return labels, gaps

    def _recover(self, labels: Tensor, gaps: Tensor, centres: Tensor, slopes: Tensor, below: Tensor) -> None:
        """Compute D(x, c) directly where the product slope . (x - o) is so large that rounding may decide."""
        eps = torch.finfo(self.x.dtype).eps
        steepness = torch.linalg.vector_norm(slopes, dim=1, dtype=torch.float64)  # (k,)
        if eps * steepness.max().item() <= math.sqrt(eps) * self._least_rise:
            return
        least = math.sqrt(eps) * self.values.double()
        suspects = (eps * self.reach * steepness.max() > least).nonzero()[:, 0]
        for rows in suspects.split(rows_at_once(max(centres.shape), budget=CACHE)):
            errors = eps * self.reach[rows, None] * steepness  # (rows, k)
            rough = self.values[rows, None] - torch.addmm(-below, self.shifted[rows], slopes.T)
            may_win = rough - errors <= (rough + errors).amin(1, keepdim=True)
            lost = rows[((errors > least[rows, None]) & may_win).any(1)]
            if len(lost):
                exact = torch.stack([self.from_one(self.x[lost], centre) for centre in centres], dim=1)
                gaps[lost], labels[lost] = exact.min(1)

    def _separate(self, labels: Tensor, centres: Tensor, slopes: Tensor) -> None:
        """Among centers that share a slope, assign points by squared Euclidean distance."""
        _, plane = torch.unique(slopes, dim=0, return_inverse=True)
        sizes = torch.bincount(plane)
        of_points = plane[labels]
        order = torch.argsort(of_points, stable=True)
        rows_of = order.split(torch.bincount(of_points, minlength=len(sizes)).tolist())
        shifted = centres - self.origin
        for number in (sizes > 1).nonzero()[:, 0].tolist():
            rows, group = rows_of[number], (plane == number).nonzero()[:, 0]
            half_norms = shifted[group].square().sum(1) / 2
            near = torch.addmm(-half_norms, self.shifted[rows], shifted[group].T)
            labels[rows] = group[near.argmax(1)]


def _may_repeat(rows: Tensor) -> bool:
    """False where no two rows are equal, by sums of their bits, which are exact."""
    bits = rows.contiguous().view(torch.int64 if rows.dtype == torch.float64 else torch.int32).sum(1)
    return len(torch.unique(bits)) < len(rows)


def _largest(block: Tensor, values: Tensor, places: Tensor) -> None:
    if block.device.type == "cpu" and block.shape[1] >= 32:  # numpy is faster from so many columns
        np.argmax(block.numpy(), axis=1, out=places.numpy())
        torch.gather(block, 1, places[:, None], out=values[:, None])
    else:
        torch.max(block, dim=1, out=(values, places))
