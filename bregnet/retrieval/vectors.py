"""Lifted vectors of all items, in single precision with the remainder to double precision, and their ranking."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bregnet._core.chunks import batches, blocks, rows_at_once
from bregnet._core.state import Tensors
from bregnet.retrieval.items import Found, Gallery, GrowingRows, nearest_first
from bregnet.retrieval.lift import Lift, Queries

LONGEST = 1e6  # vectors have lengths of about 1; beyond, they are scaled again, or single precision may overflow
SMALL = 1e-4  # divergences below this share of the scale have lost digits as inner products, and are computed again
NEAR = 1e-12  # divergences that differ by less than this share of the scale, or by rounding, are computed again
UNDERFLOW = 2.0**-63  # numbers of single precision below it may have the square 0
HALF = 1.005 * 2.0**-8  # of a number, what it may be off as one of half precision (bfloat16), and more than that
HALF_TILE = 1024  # items whose vectors in half precision are next to each other, feature by feature


@dataclass(frozen=True)
class Scanned:
    """Vectors as a scan reads them, whose products with queries are no less than the exact ones, but for rounding.

    Attributes
    ----------
    vectors : Tensor of shape (n_items, width) or (n_tiles, width + 2, HALF_TILE)
        In single precision; or in half precision, a column for each item, with two more rows, of what rounding may take
        from a product: the distance of a vector from the exact one, and its length, to be multiplied by the distance of
        the query's.
    above : Tensor of shape (n_items, 2) or (0, 2)
        Twice these two: by how much products may be above the exact ones; by nothing where it is empty.
    rounding : float
        Of sums in single precision.
    relative : float
        Of the sums themselves, where they are rounded to half precision.
    """

    vectors: Tensor
    above: Tensor
    rounding: float
    relative: float = 0.0

    @property
    def is_half(self) -> bool:
        """Whether the vectors are in half precision."""
        return self.vectors.dtype == torch.bfloat16

    def asked(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Vectors of queries in the same precision, and how far they are from the exact ones, (m,)."""
        exact = queries.vectors
        near = exact.to(self.vectors.dtype)
        if not self.is_half:
            return near, torch.zeros(len(near))
        lost = ((1 + HALF) * (exact - near).norm(dim=1)).to(near.dtype)
        return torch.column_stack([near, torch.ones_like(lost), lost]), lost.float()


class Vectors:
    """The lifted items of a gallery, as sums of two numbers of single precision.

    Parameters
    ----------
    gallery : Gallery
    lift : Lift
    coarse, fine : Tensor of shape (n_items, n_features + 1)
        Single precision, and what is to be added for double precision.

    Attributes
    ----------
    long : Tensor of shape (n_long,)
        Rows of the few vectors that are much longer than the others. They are always ranked, so that the bound on the
        rounding, which grows with the length, need not hold for them.
    """

    def __init__(
        self, gallery: Gallery, lift: Lift, coarse: Tensor, fine: Tensor, *, rows: GrowingRows | None = None
    ) -> None:
        self.gallery, self.lift, self.coarse, self.fine = gallery, lift, coarse, fine
        self._rows = GrowingRows(coarse, fine) if rows is None else rows  # with room for more
        self.long, longest = outliers(coarse.norm(dim=1))
        self._longest = longest + self._underflow  # far outliers make all others tiny
        self.single = Scanned(coarse, coarse[:0, :2], 1.01 * (self.width + 3) * 2.0**-24 * self._longest)
        self._fine_rounding = lift.rounding(self._longest)  # of those in double precision

    @classmethod
    def from_gallery(cls, gallery: Gallery) -> Vectors:
        """The vectors of all items."""
        lift = Lift.from_gallery(gallery)
        coarse, fine, longest = _lifted(lift, gallery.points)
        if longest > LONGEST:
            lift = lift.rescaled(longest)
            coarse, fine, _ = _lifted(lift, gallery.points)
        return cls(gallery, lift, coarse, fine)

    def extend(self, gallery: Gallery) -> Vectors:
        """The vectors of a gallery with more items."""
        coarse, fine, longest = _lifted(self.lift, gallery.points[len(self.gallery) :])
        if longest > LONGEST:
            return Vectors.from_gallery(gallery)
        rows = self._rows.extended(len(self.coarse), coarse, fine)
        return Vectors(gallery, self.lift, *rows.tensors, rows=rows)

    def keep(self, gallery: Gallery, rows: Tensor) -> Vectors:
        """The vectors of some rows of the old gallery, which are the new one."""
        return Vectors(gallery, self.lift, self.coarse[rows], self.fine[rows])

    def write(self, name: str, tensors: Tensors) -> None:
        """Store them under names that begin with `name`."""
        self.lift.write(name, tensors)
        tensors.put(f"{name}.coarse", self.coarse)
        tensors.put(f"{name}.fine", self.fine)

    @classmethod
    def read(cls, name: str, gallery: Gallery, tensors: Tensors) -> Vectors:
        """Read what `write` stored; an error where the first vectors are not those of the first items."""
        (count, n_features), device = gallery.points.shape, gallery.points.device
        lift = Lift.read(name, gallery.divergence, gallery.side, n_features, tensors).to(device)
        shape = (count, n_features + 1)
        coarse, fine = (
            tensors.tensor(f"{name}.{part}", shape, torch.float32).to(device) for part in ("coarse", "fine")
        )
        away = (lift.items(gallery.points[:16]).float() - coarse[:16]).abs().max()
        # where these items are at the center, nothing but rounding is left of what was subtracted
        subtracted = (lift.mean.abs() / (lift.weights * lift.unit)).max() + lift.cancelled(1.0)
        if not away <= 1e-4 * coarse[:16].abs().max() + 1e-10 * subtracted:
            raise ValueError(f"{name}.coarse does not belong to the points")
        return cls(gallery, lift, coarse, fine)

    @property
    def width(self) -> int:
        """Dimension of a vector."""
        return self.coarse.shape[1]

    @property
    def _underflow(self) -> float:
        """By how much the length of a vector, computed in single precision, may be too small because of underflow."""
        return 1.01 * UNDERFLOW * math.sqrt(self.width)

    @cached_property
    def half(self) -> Scanned:
        """The vectors in half precision, made when they are first asked for.

        With b for rounded vectors, <x, q> <= <xb, qb> + |x - xb| |q| + |xb| |q - qb|, where |q| = 1.
        """
        count, width = self.coarse.shape
        shape = -(-count // HALF_TILE), width + 2, HALF_TILE
        rounded, above = torch.zeros(shape, dtype=torch.bfloat16), torch.empty(count, 2)
        for tile, part in zip(rounded, batches(count, HALF_TILE), strict=True):
            exact = self.coarse[part].T
            near = exact.to(tile.dtype)
            lost = torch.stack([(exact - near).norm(dim=0), near.float().norm(dim=0)]) + self._underflow
            tile[:, : exact.shape[1]] = torch.cat([near, ((1 + HALF) * lost).to(tile.dtype)])
            above[part] = 2 * tile[-2:, : exact.shape[1]].T.float()
        # processors may sum up two products at once and round both sums
        return Scanned(rounded, above, 2.1 * self.single.rounding, HALF)

    @property
    def nbytes(self) -> int:
        """Memory of the vectors."""
        half = self.half.vectors.nbytes + self.half.above.nbytes if "half" in vars(self) else 0
        return self.coarse.nbytes + self.fine.nbytes + half

    def n_candidates(self, k: int) -> int:
        """How many candidates to rank for k."""
        return min(len(self.gallery), max(4 * k, 32))

    def batch_size(self, k: int) -> int:
        """How many queries to rank candidates for at once."""
        return min(4096, rows_at_once(self.n_candidates(k) * self.width))

    def least_score(self, queries: Queries, divergences: Tensor, scanned: Scanned | None = None) -> Tensor:
        """The least inner product, in single precision or as it is scanned, of items at these divergences, (m,)."""
        scanned = scanned or self.single
        least = (queries.offsets - divergences - NEAR * queries.scale) / queries.reach - scanned.rounding
        return least * (1 - scanned.relative * least.sign())  # also where it is infinite

    def margins(self, queries: Queries, scanned: Scanned) -> Tensor:
        """By how much an item's inner product may be below the k-th largest if it is one of the k nearest, (m,).

        In addition to what single products may be above the exact ones.
        """
        return 4 * NEAR * queries.scale / queries.reach + 2.1 * scanned.rounding

    def ranked(self, queries: Queries, rows: Tensor, k: int) -> Found:
        """The k nearest of the items in `rows` (m, c), in order; -1 among the rows stands for no item."""
        products = self._products(queries, rows.clamp_min(0))
        return self.settled(queries, rows, torch.where(rows < 0, torch.inf, products), k)

    def settled(self, queries: Queries, rows: Tensor, values: Tensor, k: int) -> Found:
        """The same, where divergences from inner products in double precision are known, infinite for no item."""
        there, values = rows.clamp_min(0), values.clone()
        ordered, order = values.sort(dim=1)
        near = ordered.diff(dim=1) <= self.near(queries)[:, None]
        doubtful = ordered <= SMALL * queries.scale[:, None]
        doubtful[:, 1:] |= near
        doubtful[:, :-1] |= near
        doubtful &= self._may_be_among(queries, ordered, there.gather(1, order), k)
        at = torch.zeros_like(doubtful).scatter_(1, order, doubtful).nonzero(as_tuple=True)
        ties = torch.zeros_like(values)
        values[at], ties[at] = self.gallery.paired(queries.points[at[0]], there[at])
        return nearest_first(self.gallery, queries.points, Found(values, there), ties, k)

    def completed(
        self, queries: Queries, found: Found, worst: Tensor, rows_above: Callable[[int, float], Tensor]
    ) -> Found:
        """The items found (m, k), with those that single precision may have missed.

        `worst` (m,) is the least inner product of the candidates. Where an item below it might belong to the answer, as
        with many ties, `rows_above` gives all such items of a query, and these are ranked.
        """
        least = self.least_score(queries, found.divergences[:, -1])
        for number in (worst.double() >= least).nonzero()[:, 0].tolist():
            rows = rows_above(number, float(least[number]))
            again = self.ranked(queries[number : number + 1], rows[None], found.rows.shape[1])
            found.divergences[number], found.rows[number] = again.divergences[0], again.rows[0]
        return found

    def within(self, queries: Queries, radii: Tensor, rows_above: Callable[[int, float], Tensor]) -> list[Found]:
        """Items at most as far as the radius of each query, (m,), in order, of the candidates of `rows_above`."""
        least = self.least_score(queries, radii)
        out = []
        for number, radius in enumerate(radii):
            query = queries[number : number + 1]
            rows = rows_above(number, float(least[number]))
            found = self.ranked(query, rows[None], len(rows))
            inside = found.divergences[0] <= radius + 0.01 * NEAR * query.scale
            out.append(Found(found.divergences[0, inside], found.rows[0, inside]))
        return out

    def _may_be_among(self, queries: Queries, ordered: Tensor, rows: Tensor, k: int) -> Tensor:
        """Whether items in `rows` (m, c), in the order of their inner products, may be among the k nearest, (m, c).

        Others need not be computed again: at a low temperature thousands of items have lost digits.
        """
        may_be = ordered <= ordered[:, k - 1 : k] + self.slack(queries)[:, None]
        return may_be | torch.isin(rows, self.long) if len(self.long) else may_be

    def near(self, queries: Queries) -> Tensor:
        """Up to which difference divergences, from inner products in double precision, are computed again, (m,)."""
        return NEAR * queries.scale + 2 * queries.reach * self._fine_rounding

    def slack(self, queries: Queries) -> Tensor:
        """By how much an item's inner product in double precision may be off for it to be one of the nearest, (m,)."""
        return self.near(queries) + 3 * NEAR * queries.scale

    def _products(self, queries: Queries, rows: Tensor) -> Tensor:
        """Divergences of the queries and the items in `rows` (m, c), from inner products in double precision."""
        step = rows_at_once(rows.shape[1] * self.width)
        parts = zip(queries.vectors.split(step), rows.split(step), strict=True)
        dots = [torch.bmm(self._precise(there), vectors[:, :, None])[:, :, 0] for vectors, there in parts]
        return (queries.offsets[:, None] - queries.reach[:, None] * torch.cat(dots)).clamp_min_(0)

    def _precise(self, rows: Tensor) -> Tensor:
        return self.coarse[rows].double().add_(self.fine[rows])


def _lifted(lift: Lift, points: Tensor) -> tuple[Tensor, Tensor, float]:
    """Vectors of points in single precision, the remainders to double precision, and their largest entry."""
    shape = len(points), points.shape[1] + 1
    coarse, fine = (torch.empty(shape, dtype=torch.float32, device=points.device) for _ in range(2))
    largest = 0.0
    for part in blocks(*shape):
        vectors = lift.items(points[part])
        largest = max(largest, float(vectors.abs().max()))
        coarse[part] = vectors
        fine[part] = vectors - coarse[part]
    return coarse, fine, largest


def outliers(lengths: Tensor) -> tuple[Tensor, float]:
    """Rows of a few vectors much longer than the others, if there are any, and the longest of the others."""
    far_longer, longest = 4.0, float(lengths.max())
    count = min(64, len(lengths) // 100)  # these are always ranked, so they must be few
    if count:
        sizes, rows = lengths.topk(count + 1)
        others = float(sizes[-1])
        if longest > far_longer * others:
            apart = sizes > far_longer * others
            return rows[apart], float(sizes[int(apart.sum())])
    return torch.empty(0, dtype=torch.int64, device=lengths.device), longest
