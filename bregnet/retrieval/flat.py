"""Exact search: candidates by inner products in single or half precision, ranked in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet._core.chunks import batches, rows_at_once
from bregnet._core.state import Tensors
from bregnet.retrieval.engine import Engine, Settings
from bregnet.retrieval.items import Found, Gallery
from bregnet.retrieval.lift import Queries
from bregnet.retrieval.scan import found_in_threads, half_is_fast, room_for, scan, spare_room
from bregnet.retrieval.vectors import Vectors

GROUP = 64  # items of which the best is looked for first
# The width of vectors from which many queries go by half precision. With 128, 192, 256 and 768 features it takes 1.11,
# 0.88, 0.79 and 0.71 of the time of single precision (10 nearest; 50,000 items, 200,000 with 128).
HALF_WIDTH = 160
# Queries before the copy in half precision is made: with 50,000 items of 128 features it takes 10 ms, and saves a query
# 0.3 ms. Items that come and go between single queries would have it made each time.
HALF_FROM = 32


class FlatEngine(Engine):
    """All inner products of a batch of queries, in single or half precision; the best are ranked in double precision.

    The rounding of both is bounded. Where items beyond the candidates might belong to the answer, as with
    many ties, all of these are ranked, so the answer is always exact.
    """

    name = "inner products"

    def __init__(self, vectors: Vectors) -> None:
        self.vectors, self.gallery = vectors, vectors.gallery
        # queries, those in half precision, and those of them that had to be asked again
        self._n_asked = self._n_half = self._n_missed = 0

    @classmethod
    def build(cls, gallery: Gallery, settings: Settings) -> FlatEngine:
        """The engine for these items."""
        return cls(Vectors.from_gallery(gallery))

    def extend(self, gallery: Gallery) -> FlatEngine:
        """An engine for a gallery with more items."""
        return FlatEngine(self.vectors.extend(gallery))

    def keep(self, gallery: Gallery, rows: Tensor) -> FlatEngine:
        """An engine for some rows of the old gallery, which are the new one."""
        return FlatEngine(self.vectors.keep(gallery, rows))

    def state(self, name: str, tensors: Tensors, folder: Path | None) -> dict[str, Any]:
        """Its vectors."""
        self.vectors.write(name, tensors)
        return {}

    @classmethod
    def from_state(
        cls, name: str, state: dict[str, Any], gallery: Gallery, tensors: Tensors, folder: Path | None
    ) -> FlatEngine:
        """Read what `state` wrote."""
        return cls(Vectors.read(name, gallery, tensors))

    @property
    def nbytes(self) -> int:
        """Memory in addition to that of the gallery."""
        return self.vectors.nbytes

    def batch_size(self, k: int) -> int:
        """How many queries to give at once."""
        spare = spare_room(len(self.gallery), 2) if self._half_is_for_many else 1
        return min(4096, rows_at_once(room_for(k)), rows_at_once(spare, budget=1 << 25))

    def search(self, points: Tensor, k: int, settings: Settings) -> Found:
        """The k nearest items of each query, (m, k)."""
        if self.vectors.n_candidates(k) + len(self.vectors.long) >= len(self.gallery):
            everything = torch.arange(len(self.gallery), device=points.device).expand(len(points), -1)
            return self.vectors.ranked(self.vectors.lift.queries(points), everything, k)
        if points.device.type != "cpu":
            return self._grouped(self.vectors.lift.queries(points), k)
        n_threads, self._n_asked = torch.get_num_threads(), self._n_asked + len(points)
        return found_in_threads(lambda some: self._scanned(some, k, n_threads), points, k)

    def within(self, points: Tensor, radii: Tensor, settings: Settings) -> list[Found]:
        """Items at most as far as the radius of each query, (m,)."""
        queries, found = self.vectors.lift.queries(points), []
        for part in self._batches(len(queries), GROUP):
            scores = Scores(self.vectors, queries[part], GROUP)
            found += self.vectors.within(queries[part], radii[part], scores.rows_above)
        return found

    def _scanned(self, points: Tensor, k: int, n_threads: int) -> Found:
        """The k nearest items (m, k), by all products."""
        queries, half = self.vectors.lift.queries(points), self.vectors.half if self._half_pays(len(points)) else None
        candidates = scan(self.vectors, queries, k, scanned=half, n_threads=n_threads)
        found = candidates.nearest()
        missed = candidates.missed(found)
        if half is not None:
            self._n_half, self._n_missed = self._n_half + len(queries), self._n_missed + len(missed)
        if half is not None and len(missed):
            again = scan(self.vectors, queries[missed], k, n_threads=n_threads)
            found.divergences[missed], found.rows[missed] = again.nearest()
            missed = missed[again.missed(Found(found.divergences[missed], found.rows[missed]))]
        if len(missed):
            found.divergences[missed], found.rows[missed] = self._grouped(queries[missed], k)
        return found

    def _half_pays(self, n_queries: int) -> bool:
        """Whether products in half precision are faster, and have left few enough items so far.

        A single query takes as long as reading the items. Many take as long as their products.
        """
        faster = self._n_asked > HALF_FROM and (n_queries == 1 or self._half_is_for_many)
        return faster and 4 * self._n_missed <= self._n_half + 16  # one in four may be asked twice

    @property
    def _half_is_for_many(self) -> bool:
        return self.vectors.width > HALF_WIDTH and half_is_fast()

    def _grouped(self, queries: Queries, k: int) -> Found:
        """The k nearest items (m, k), by the best products of groups of items."""
        count = self.vectors.n_candidates(k)
        group = GROUP if len(self.gallery) > 2 * count * GROUP else 1  # or most groups would be among the best
        parts = [self._nearest(queries[part], k, count, group) for part in self._batches(len(queries), group)]
        divergences, rows = zip(*parts, strict=True)
        return Found(torch.cat(divergences), torch.cat(rows))

    def _nearest(self, queries: Queries, k: int, count: int, group: int) -> Found:
        scores, long = Scores(self.vectors, queries, group), self.vectors.long
        rows, worst = scores.largest(count)
        found = self.vectors.ranked(queries, torch.cat([rows, long.expand(len(rows), -1)], 1), k)
        return self.vectors.completed(queries, found, worst, scores.rows_above)

    def _batches(self, n_queries: int, group: int) -> Iterator[slice]:
        n_groups = -(-len(self.gallery) // group)  # the best inner product of each is kept
        return batches(n_queries, min(128, rows_at_once(n_groups, budget=1 << 25)))


class Scores:
    """The largest inner product of each query with each group of items, in single precision.

    Products are computed for as many items at a time as fit into the cache, and those of the best groups are computed
    again: this is faster than writing all of them to memory and reading them once more. Items that are always ranked
    count as minus infinity.

    Parameters
    ----------
    vectors : Vectors
    queries : Queries
    group : int
        Items in a group.
    at_once : int, default=None
        Items whose products are computed at once; by default, on a CPU, as many as its cache holds.
    """

    def __init__(self, vectors: Vectors, queries: Queries, group: int, at_once: int | None = None) -> None:
        self._vectors, self._queries, self._group = vectors, queries.vectors.float(), group
        n_items = len(vectors.coarse)
        step = at_once or (1 << 13 if vectors.coarse.device.type == "cpu" else 1 << 18)
        self._best = self._queries.new_empty(len(queries), -(-n_items // group))  # (m, n_groups)
        room = self._queries.new_empty(len(queries) * min(step, n_items + group))  # fresh memory is slow
        for rows in batches(n_items, step):
            part = vectors.coarse[rows]
            n_groups = -(-len(part) // group)
            scores = room[: len(queries) * n_groups * group].view(len(queries), n_groups * group)
            torch.mm(self._queries, part.T, out=scores[:, : len(part)])
            scores[:, len(part) :] = -torch.inf
            scores[:, self._long_between(rows.start, rows.stop)] = -torch.inf
            first = rows.start // group
            torch.amax(scores.unflatten(1, (n_groups, group)), 2, out=self._best[:, first : first + n_groups])

    def largest(self, count: int) -> tuple[Tensor, Tensor]:
        """Rows (m, count) of the largest products, and an upper bound on all others, (m,)."""
        best = self._best.topk(min(count, self._best.shape[1]), dim=1)
        rows = self._members(best.indices)
        values, places = self._again(self._queries, rows).topk(count, dim=1)
        worst = values[:, -1]
        if count < self._best.shape[1]:  # those of other groups were rounded differently
            worst = torch.maximum(worst, best.values[:, -1])
        return rows.gather(1, places).clamp_max(len(self._vectors.coarse) - 1), worst

    def rows_above(self, number: int, least: float) -> Tensor:
        """All items whose product with query `number` is at least `least`, and those that are always ranked."""
        bound = float(np.nextafter(np.float32(np.clip(least, -3e38, 3e38)), np.float32(-np.inf)))
        rows = self._members((self._best[number] >= bound).nonzero()[None, :, 0])
        scores = self._again(self._queries[number : number + 1], rows)
        return torch.cat([rows[scores >= bound], self._vectors.long])

    def _members(self, groups: Tensor) -> Tensor:
        """Rows (m, c * group) of the items in groups (m, c); the last group may have rows that do not exist."""
        return (self._group * groups[:, :, None] + torch.arange(self._group, device=groups.device)).flatten(1)

    def _again(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Products of queries (m, width) and the items in `rows` (m, c)."""
        coarse = self._vectors.coarse
        missing = rows >= len(coarse)
        if len(self._vectors.long):
            missing |= torch.isin(rows, self._vectors.long)
        step = rows_at_once(rows.shape[1] * coarse.shape[1])
        parts = zip(queries.split(step), rows.clamp_max(len(coarse) - 1).split(step), strict=True)
        products = torch.cat([torch.bmm(coarse[there], some[:, :, None])[:, :, 0] for some, there in parts])
        return products.masked_fill_(missing, -torch.inf)

    def _long_between(self, start: int, stop: int) -> Tensor:
        long = self._vectors.long
        return long[(long >= start) & (long < stop)] - start
