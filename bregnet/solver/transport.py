"""Moving what is missed by a little from piece to piece, along short ways."""

from __future__ import annotations

import torch
from torch import Tensor

from bregnet.solver.geometry import Geometry

DISTANCE_ELEMENTS = 1 << 19


def _nearest_before(centres: Tensor) -> Tensor:
    """For every row but the first, the nearest of the rows before it."""
    n = len(centres)
    parents = torch.zeros(n, dtype=torch.int64, device=centres.device)
    step = max(1, DISTANCE_ELEMENTS // n)
    index = torch.arange(n, device=centres.device)
    for start in range(1, n, step):
        stop = min(start + step, n)
        distance = torch.cdist(centres[start:stop], centres[:stop])
        distance.masked_fill_(index[:stop] >= index[start:stop, None], torch.inf)
        parents[start:stop] = distance.argmin(1)
    return parents


def _places(geometry: Geometry) -> Tensor:
    """The point of each cell nearest to its centre, with a trailing 1, (K, d + 1); 0 for a cell without points."""
    lifted, cells, ranks = geometry.lifted, geometry.cells, geometry.ranks
    n_points, n_pieces = len(lifted), geometry.n_pieces
    step = max(1, DISTANCE_ELEMENTS // lifted.shape[1])
    parts = zip(geometry.points.split(step), cells.split(step), strict=True)
    distance = torch.cat([(points - geometry.centres[cell]).square().sum(1) for points, cell in parts])
    nearest = distance.new_full((n_pieces,), torch.inf).scatter_reduce(0, cells, distance, "amin")
    nearest = ranks.smallest(nearest)
    index = torch.arange(n_points, device=cells.device)
    candidates = torch.where(distance == nearest[cells], index, n_points)
    place = torch.full_like(nearest, n_points, dtype=torch.int64).scatter_reduce(0, cells, candidates, "amin")
    here = place < n_points
    owner = ranks.smallest(torch.where(here, ranks.rank, ranks.size))  # of equally near ones, the first rank's
    mine = here & (owner == ranks.rank)
    out = lifted.new_zeros((n_pieces, lifted.shape[1]))
    out[mine] = lifted[place[mine]]
    return ranks.sum(out)


class PieceTree:
    """A tree over the pieces whose edges join near ones, coarse to fine.

    Pieces are taken in random order and each is hung under the nearest earlier one: early ones are far apart,
    late ones have a near parent, and the depth grows like log K. Mass sent along an edge from piece k to piece m
    is a multiplier mu of piece m at a point of cell k (or the other way round), so it is always dual feasible;
    it costs the penalty the distance it travels.
    """

    def __init__(self, geometry: Geometry) -> None:
        centres = geometry.centres
        order = torch.randperm(geometry.n_pieces, generator=torch.Generator().manual_seed(0)).to(centres.device)
        parents = _nearest_before(centres[order])
        self._child, self._parent = order[1:], order[parents[1:]]
        self._places = _places(geometry)
        self._levels = self._by_depth(parents)

    @staticmethod
    def _by_depth(parents: Tensor) -> list[Tensor]:
        """Edges (numbered by child - 1) grouped by depth, deepest first."""
        depth = [0] * len(parents)
        for child, parent in enumerate(parents.tolist()):
            depth[child] = depth[parent] + 1 if child else 0
        depths = torch.tensor(depth[1:], device=parents.device)
        return [torch.nonzero(depths == level).squeeze(1) for level in range(max(depth, default=0), 0, -1)]

    def level_out(self, stationarity: Tensor) -> Tensor:
        """Stationarity (K, d + 1) after multipliers were added that make its last column zero."""
        surplus = stationarity[:, -1].clone()
        flow = torch.zeros(len(self._child), dtype=surplus.dtype, device=surplus.device)
        for edges in self._levels:
            flow[edges] = surplus[self._child[edges]]
            surplus.index_add_(0, self._parent[edges], flow[edges])
        outward = flow > 0  # child gives to parent: mu of the parent's piece at a point of the child's cell
        place = torch.where(outward, self._child, self._parent)
        amount = flow.abs()[:, None] * self._places[place]
        receiver = torch.where(outward, self._parent, self._child)
        giver = torch.where(outward, self._child, self._parent)
        out = stationarity.index_add(0, receiver, amount).index_add_(0, giver, -amount)
        out[:, -1] = 0  # exact but for rounding
        return out
