"""Divergences as inner products, centered and scaled for single precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bregnet._core.state import Tensors
from bregnet.divergences import BregmanDivergence
from bregnet.divergences.generators import batched
from bregnet.retrieval.items import Gallery


@dataclass(frozen=True)
class Queries:
    """Queries, and their vectors: D = offset - reach * <vector of the item, vector of the query>.

    Attributes
    ----------
    points : Tensor of shape (m, n_features)
    vectors : Tensor of shape (m, n_features + 1)
        Of length 1, in double precision.
    reach, offsets : Tensor of shape (m,)
    scale : Tensor of shape (m,)
        The size of the terms that are added up to a divergence, which decides its rounding error.
    """

    points: Tensor
    vectors: Tensor
    reach: Tensor
    offsets: Tensor
    scale: Tensor

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, chosen: slice | Tensor) -> Queries:
        return Queries(*(part[chosen] for part in vars(self).values()))


@dataclass(frozen=True)
class Lift:
    """The lift of a divergence (`BregmanDivergence.lift_items`), moved and scaled.

    Inner products of the plain lift are large and nearly equal. So the vectors of items and queries are centered, which
    changes all inner products of a query by the same constant; features are weighted so that those of items and queries
    have about the same size; and vectors are divided by the length of the longest.

    Attributes
    ----------
    divergence, side
        Those of the gallery.
    centre : Tensor of shape (n_features,)
        Subtracted from the vectors of queries.
    mean : Tensor of shape (n_features + 1,)
        Then subtracted from the vectors of items.
    weights : Tensor of shape (n_features + 1,)
        Vectors of items are divided by these, and those of queries multiplied.
    unit : Tensor
        Vectors of items are divided by it, too.
    typical : Tensor
        Length of a typical vector after that.
    plain : Tensor
        Size of the terms that cancel when the vectors of items are centered.
    """

    divergence: BregmanDivergence
    side: str
    centre: Tensor
    mean: Tensor
    weights: Tensor
    unit: Tensor
    typical: Tensor
    plain: Tensor

    @classmethod
    def from_gallery(cls, gallery: Gallery) -> Lift:
        """The lift for these items, and for queries that are distributed like them."""
        sample = gallery.sample
        items = gallery.divergence.lift_items(sample, gallery.side)
        queries = sample if gallery.side == "right" else gallery.divergence.generator._gradients(sample)
        queries = queries[torch.isfinite(queries).all(1)]  # items may lie where queries are not allowed
        # medians, so that a few outliers have no effect
        centre = queries.median(0).values if len(queries) else torch.zeros_like(sample[0])
        moved = _moved(items, centre)
        mean = moved.median(0).values
        spread, wanted = _spread(moved - mean), torch.ones_like(mean)
        if len(queries):
            wanted[:-1] = _spread(queries - centre)
        weights = torch.where((spread > 0) & (wanted > 0), spread.sqrt() / wanted.sqrt(), 1.0)
        lengths = _lengths((moved - mean) / weights)
        if not torch.isfinite(lengths).all():
            raise ValueError("X must not be so large, or so near the border of the domain, that divergences overflow")
        unit = torch.where(lengths.max() > 0, lengths.max(), 1.0)
        plain = (items[:, -1].abs() + (items[:, :-1] * centre).abs().sum(1)).median()
        return cls(gallery.divergence, gallery.side, centre, mean, weights, unit, lengths.median() / unit, plain)

    def write(self, name: str, tensors: Tensors) -> None:
        """Store its tensors under names that begin with `name`."""
        for part, value in vars(self).items():
            if isinstance(value, Tensor):
                tensors.put(f"{name}.lift.{part}", value)

    @classmethod
    def read(cls, name: str, divergence: BregmanDivergence, side: str, n_features: int, tensors: Tensors) -> Lift:
        """Read what `write` stored, on the CPU."""
        lengths = {"centre": n_features, "mean": n_features + 1, "weights": n_features + 1}
        parts: dict[str, Any] = {}
        for part in ("centre", "mean", "weights", "unit", "typical", "plain"):
            shape = (lengths[part],) if part in lengths else ()
            parts[part] = tensors.tensor(f"{name}.lift.{part}", shape, torch.float64)
            if part in ("weights", "unit") and not (parts[part] > 0).all():
                raise ValueError(f"{name}.lift.{part} must be positive, got {parts[part].min():g}")
        return cls(divergence, side, **parts)

    def to(self, device: torch.device) -> Lift:
        """The same lift on another device."""
        parts: dict[str, Any] = {name: part.to(device) for name, part in vars(self).items() if isinstance(part, Tensor)}
        return replace(self, **parts)

    def rescaled(self, longest: float) -> Lift:
        """The same lift with vectors of items divided by `longest`, too."""
        return replace(self, unit=self.unit * longest, typical=self.typical / longest)

    def items(self, points: Tensor) -> Tensor:
        """Vectors of items, in double precision, (n, n_features + 1)."""
        vectors = _moved(self.divergence.lift_items(points.double(), self.side), self.centre)
        return vectors.sub_(self.mean).div_(self.weights * self.unit)

    def cancelled(self, longest: float) -> Tensor:
        """A bound on the terms that cancel in the last entry of vectors up to this length, in their unit."""
        plain = longest * self.unit * (self.weights[:-1] * self.centre).norm()
        plain = plain + self.mean[:-1].abs() @ self.centre.abs()
        return (2 * plain + self.mean[-1].abs()) / (self.weights[-1] * self.unit)

    def rounding(self, longest: float) -> float:
        """A bound on the rounding of inner products in double precision with vectors up to this length, in their unit.

        Vectors may be sums of two numbers of single precision, which are off by 32 times the unit of double precision.
        """
        return (len(self.weights) + 32) * 2.0**-53 * (longest + float(self.cancelled(longest)))

    def queries(self, points: Tensor) -> Queries:
        """Queries with their vectors."""
        points = points.double()
        if self.side == "right":
            vectors = torch.column_stack([points, points.new_ones(len(points))])
            plain_offsets = self.divergence.lift_offsets(points)[:, 0]
        else:  # both are in the tangent plane, which is the costly part
            generator = self.divergence.generator
            vectors = batched(
                generator, points, lambda q: torch.column_stack(generator._planes(q)), name="Q", tangent=True
            )
            plain_offsets = -vectors[:, -1]
            vectors[:, -1] = 1
        vectors[:, :-1] -= self.centre
        shared = vectors @ self.mean
        offsets = plain_offsets - shared
        rounding = 0.01 * (plain_offsets.abs() + shared.abs() + self.plain)
        vectors *= self.weights
        lengths = _lengths(vectors)
        reach = lengths * self.unit
        scale = offsets.abs() + reach * self.typical + rounding
        if not torch.isfinite(scale).all():
            raise ValueError("Q must not be so large, or so near the border of the domain, that divergences overflow")
        return Queries(points, vectors / lengths[:, None], reach, offsets, scale)


def _moved(items: Tensor, centre: Tensor) -> Tensor:
    """Vectors of items for queries from whose vectors `centre` was subtracted."""
    return torch.column_stack([items[:, :-1], items[:, -1] + items[:, :-1] @ centre])


def _spread(deviations: Tensor) -> Tensor:
    """A typical size of each column, (width,)."""
    sizes = deviations.abs()
    middle = sizes.median(0).values
    return torch.where(middle > 0, middle, sizes.mean(0))


def _lengths(vectors: Tensor) -> Tensor:
    """Euclidean lengths (n,), without overflow of the squares."""
    largest = vectors.abs().amax(1)
    unit = torch.where(largest > 0, largest, 1.0)
    return unit * (vectors / unit[:, None]).norm(dim=1)
