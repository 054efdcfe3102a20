"""Exact search without a temperature: items of a piece are equally far from a query, so pieces are ranked."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bregnet._core import validation as check
from bregnet._core.chunks import blocks, rows_at_once
from bregnet._core.parallel import in_threads
from bregnet._core.state import Tensors
from bregnet.divergences import BregmanDivergence, Generator, GeneratorSum, MaxAffine
from bregnet.retrieval.engine import Engine, Settings
from bregnet.retrieval.flat import FlatEngine
from bregnet.retrieval.items import ULPS, Found, Gallery, nearest_first, rounded
from bregnet.retrieval.vectors import Vectors


class ScaledMaximum(NamedTuple):
    """A multiple of a max-affine function without temperature."""

    function: MaxAffine
    weight: float

    @classmethod
    def from_generator(cls, generator: Generator) -> ScaledMaximum | None:
        """The generator as such a multiple, or None where it is none."""
        weight = 1.0
        if isinstance(generator, GeneratorSum) and len(generator.generators) == 1:
            weight, generator = generator.weights[0], generator.generators[0]
        if not isinstance(generator, MaxAffine) or generator.temperature or weight == 0:
            return None
        return cls(generator, weight)


class PieceEngine(Engine):
    """Lists of the items of each piece, visited in the order of the pieces' divergences.

    On the right side D(q, x) is the largest piece at q minus the piece active at x, the same for all items of a list,
    which are ordered by squared Euclidean distance. On the left side D(x, q) = 0 for the items of the piece that is
    active at q; where they are too few, inner products find the others.

    Parameters
    ----------
    gallery : Gallery
    pieces, rows : Tensor of shape (n_members,)
        The piece of each member of a list, and its row in the gallery.
    flat : FlatEngine, default=None
        The engine that finds the others, where it was needed before.
    """

    name = "lists of pieces"

    def __init__(self, gallery: Gallery, pieces: Tensor, rows: Tensor, flat: FlatEngine | None = None) -> None:
        self.gallery, self._flat = gallery, flat
        self._maximum = _maximum_of(gallery)
        paraboloid = self._maximum.function._paraboloid
        weights = torch.zeros(0) if paraboloid is None or paraboloid._weights is None else paraboloid._weights
        self._curvatures = self._maximum.weight * weights.double()
        self._lock = threading.Lock()
        order = pieces.argsort(stable=True)
        self._listed, sizes = torch.unique_consecutive(pieces[order], return_counts=True)
        self._starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        self._members = rows[order]
        self._points, self._ids = _columns(gallery.points, self._members), gallery.ids[self._members]

    @classmethod
    def suits(cls, gallery: Gallery) -> bool:
        """Whether lists are exact and fast for this divergence: no temperature, and hardly any strictness."""
        maximum = ScaledMaximum.from_generator(gallery.divergence.generator)
        if maximum is None or gallery.points.device.type != "cpu":
            return False
        paraboloid = maximum.function._paraboloid
        if paraboloid is None:
            return True
        if gallery.side == "left":  # the lists do not know how far items of other pieces are
            return False
        sample = gallery.sample[:512]
        across = BregmanDivergence(paraboloid).pairwise(sample).mean()
        # where more of the divergence comes from the paraboloid, too many lists are visited
        return bool(maximum.weight * across <= 0.02 * gallery.divergence.pairwise(sample).mean())

    @classmethod
    def build(cls, gallery: Gallery, settings: Settings) -> PieceEngine:
        """The engine for these items."""
        return cls(gallery, *_memberships(gallery, gallery.points))

    def extend(self, gallery: Gallery) -> PieceEngine:
        """An engine for a gallery with more items."""
        first = len(self.gallery)
        pieces, rows = _memberships(gallery, gallery.points[first:])
        flat = None if self._flat is None else self._flat.extend(gallery)
        return PieceEngine(gallery, torch.cat([self._pieces(), pieces]), torch.cat([self._members, rows + first]), flat)

    def keep(self, gallery: Gallery, rows: Tensor) -> PieceEngine:
        """An engine for some rows of the old gallery, which are the new one."""
        place = torch.full((len(self.gallery),), -1)
        place[rows] = torch.arange(len(rows))
        there = place[self._members]
        flat = None if self._flat is None else self._flat.keep(gallery, rows)
        return PieceEngine(gallery, self._pieces()[there >= 0], there[there >= 0], flat)

    def state(self, name: str, tensors: Tensors, folder: Path | None) -> dict[str, Any]:
        """Its lists, and the vectors of all items where they were needed."""
        tensors.put(f"{name}.pieces", self._pieces())
        tensors.put(f"{name}.members", self._members)
        if self._flat is not None:
            self._flat.state(name, tensors, folder)
        return {"vectors": self._flat is not None}

    @classmethod
    def from_state(
        cls, name: str, state: dict[str, Any], gallery: Gallery, tensors: Tensors, folder: Path | None
    ) -> PieceEngine:
        """Read what `state` wrote: every item is in one list, or in several on the left side."""
        maximum, right = _maximum_of(gallery), gallery.side == "right"
        if not (right or maximum.function._paraboloid is None):
            raise ValueError(f"{name} cannot be lists of pieces of {gallery.divergence!r}")
        pieces = tensors.numbers_below(f"{name}.pieces", None, maximum.function.n_pieces)
        members = tensors.numbers_below(f"{name}.members", len(pieces), len(gallery))
        counts = torch.bincount(members, minlength=len(gallery))
        distinct = len(torch.unique(pieces * len(gallery) + members))
        if counts.min() < 1 or distinct < len(members) or (right and counts.max() > 1):
            raise ValueError(f"{name}.members must hold every item once, got others")
        there = check.boolean("vectors", state["vectors"])
        return cls(
            gallery, pieces, members, FlatEngine.from_state(name, {}, gallery, tensors, folder) if there else None
        )

    def _pieces(self) -> Tensor:
        return self._listed.repeat_interleave(self._starts.diff())

    @property
    def nbytes(self) -> int:
        """Memory beside that of the gallery."""
        own = sum(part.nbytes for part in (self._listed, self._starts, self._members, self._points, self._ids))
        return own + (0 if self._flat is None else self._flat.nbytes)

    def batch_size(self, k: int) -> int:
        """How many queries to give at once."""
        return min(4096, rows_at_once(max(k, self._maximum.function.n_pieces)))

    def search(self, points: Tensor, k: int, settings: Settings) -> Found:
        """The k nearest items of each query, (m, k)."""
        from bregnet.retrieval.compiled_pieces import walk  # numba is slow to import

        queries = points.double()
        gaps, ties = self._gaps(queries)
        order = gaps.argmin(1).argsort()  # consecutive queries that visit the same list find it in the cache
        asked = (gaps[order], ties[order], queries[order])
        lists = (self._starts, self._members, self._points, self._ids, self._curvatures)
        values, rows = queries.new_empty(len(queries), k), torch.empty(len(queries), k, dtype=torch.int64)
        counts = torch.empty(len(queries), dtype=torch.int64)

        def answer(part: slice) -> None:
            parts = [[each[part].numpy() for each in group] for group in (asked, (values, rows, counts))]
            walk(*parts[0], *(each.numpy() for each in lists), *parts[1])

        in_threads(answer, len(queries))
        back = order.argsort()
        found, counts = Found(values[back], rows[back]), counts[back]
        short = (counts < k).nonzero()[:, 0]
        if len(short):
            found.divergences[short], found.rows[short] = self._by_products(queries[short], k, settings)
        return found

    def within(self, points: Tensor, radii: Tensor, settings: Settings) -> list[Found]:
        """Items at most as far as the radius of each query, (m,)."""
        if self.gallery.side == "left":
            return self._products().within(points, radii, settings)
        queries = points.double()
        gaps, ties = self._gaps(queries)
        sizes = self._starts.diff()
        out = []
        for query, gap, radius, tie in zip(queries, gaps, radii, ties, strict=True):
            near = gap <= radius + tie
            rows = self._members[near.repeat_interleave(sizes)]
            values = gap[near].repeat_interleave(sizes[near])
            if len(self._curvatures):
                there = self.gallery.points[rows].double()
                values = values + rounded((there - query).square() @ self._curvatures)
            found = Found(values[None], rows[None])
            ranked = nearest_first(self.gallery, query[None], found, tie.expand_as(found.rows), len(rows))
            inside = ranked.divergences[0] <= radius + tie
            out.append(Found(ranked.divergences[0, inside], ranked.rows[0, inside]))
        return out

    def _gaps(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Divergences from the lists without the paraboloid (m, n_lists), infinite if not known, and ties (m,)."""
        values = self._maximum.weight * self._maximum.function._piece_values(queries)
        largest, active = values.max(1)
        if self.gallery.side == "right":
            gaps = largest[:, None] - values[:, self._listed]
        else:
            gaps = torch.where(active[:, None] == self._listed, 0.0, torch.inf).double()
        return gaps, ULPS * values.abs().amax(1)

    def _by_products(self, queries: Tensor, k: int, settings: Settings) -> Found:
        flat = self._products()
        parts = [flat.search(part, k, settings) for part in queries.split(flat.batch_size(k))]
        divergences, rows = zip(*parts, strict=True)
        return Found(torch.cat(divergences), torch.cat(rows))

    def _products(self) -> FlatEngine:
        """The engine for the items that the lists do not rank, built when it is first needed."""
        with self._lock:
            if self._flat is None:
                self._flat = FlatEngine(Vectors.from_gallery(self.gallery))
            return self._flat


def _memberships(gallery: Gallery, points: Tensor) -> tuple[Tensor, Tensor]:
    """Pieces and rows of items: the active piece of each, on the left side also those that tie with it."""
    function = _maximum_of(gallery).function
    # written in place: small results between large blocks that come and go scatter them over gigabytes
    pieces, rows, first = torch.empty(len(points), dtype=torch.int64), torch.arange(len(points)), 0
    others: list[tuple[Tensor, Tensor]] = []
    for part in points.split(function._batch_size(points)):
        values = function._piece_values(part.double())
        active = torch.argmax(values, dim=1, out=pieces[first : first + len(part)])[:, None]
        if gallery.side == "left":
            tied = values >= values.gather(1, active) - ULPS * values.abs().amax(1, keepdim=True)
            row, piece = tied.scatter_(1, active, value=False).nonzero(as_tuple=True)
            others += [(piece, row + first)] if len(row) else []
        first += len(part)
    if not others:
        return pieces, rows
    more, at = zip(*others, strict=True)
    return torch.cat([pieces, *more]), torch.cat([rows, *at])


def _columns(points: Tensor, rows: Tensor) -> Tensor:
    """Points of these rows as columns, (n_features, n_rows), some at a time."""
    out = points.new_empty(points.shape[1], len(rows))
    for part in blocks(len(rows), points.shape[1]):
        out[:, part] = points[rows[part]].T
    return out


def _maximum_of(gallery: Gallery) -> ScaledMaximum:
    maximum = ScaledMaximum.from_generator(gallery.divergence.generator)
    if maximum is None:
        raise ValueError(f"lists of pieces need a MaxAffine without temperature, got {gallery.divergence.generator!r}")
    return maximum
