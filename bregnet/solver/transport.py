"""Moving what is missed by a little from piece to piece, along short paths."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bregnet._core.chunks import rows_at_once
from bregnet.solver.geometry import Geometry
from bregnet.solver.nearest import nearest

MATCHING_NEIGHBORS = 16  # known from the start, and once more among those who still need some; more rounds gain little


def _nearest_before(centers: np.ndarray) -> np.ndarray:
    """For every row but the first a near one before it: of all those in the last full power of 2."""
    parents = np.zeros(len(centers), dtype=np.int64)
    start = 1
    while start < len(centers):
        stop = min(2 * start, len(centers))
        parents[start:stop] = nearest(centers[:start], centers[start:stop], 1)[:, 0]
        start = stop
    return parents


def _places(geometry: Geometry) -> Tensor:
    """The point of each cell nearest to its center, with a trailing 1, (K, d + 1); 0 for a cell without points."""
    lifted, cells, ranks = geometry.lifted, geometry.cells, geometry.ranks
    n_points, n_pieces = len(lifted), geometry.n_pieces
    step = rows_at_once(lifted.shape[1])
    parts = zip(geometry.points.split(step), cells.split(step), strict=True)
    distance = torch.cat([(points - geometry.centers[cell]).square().sum(1) for points, cell in parts])
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

    Pieces are taken in random order and each is hung under a near earlier one: early ones are far apart,
    late ones have a near parent, and the depth grows like log K. Mass sent along an edge from piece k to piece m
    is a multiplier mu of piece m at a point of cell k (or the other way round), so it is always dual feasible;
    it costs the penalty the distance it travels.
    """

    def __init__(self, geometry: Geometry) -> None:
        centers = geometry.centers
        order = torch.randperm(geometry.n_pieces, generator=torch.Generator().manual_seed(0)).to(centers.device)
        parents = torch.as_tensor(_nearest_before(centers[order].cpu().numpy()), device=centers.device)
        self._child, self._parent = order[1:], order[parents[1:]]  # parents before their children
        self._places = _places(geometry)

    def level_out(self, stationarity: Tensor, *, short: bool = False) -> Tensor:
        """Stationarity (K, d + 1) after multipliers were added that make its last column zero.

        With `short`, mass first goes straight to near pieces where some is missing: a third of the cost of the tree
        alone.
        """
        surplus = stationarity[:, -1].clone()
        giver, receiver, amount = self._matches(surplus) if short else (self._child[:0], self._child[:0], surplus[:0])
        surplus.index_add_(0, giver, -amount).index_add_(0, receiver, amount)
        flow = torch.as_tensor(_drained(self._child, self._parent, surplus), device=surplus.device)
        outward = flow > 0  # child gives to parent: mu of the parent's piece at a point of the child's cell
        giver = torch.cat([giver, torch.where(outward, self._child, self._parent)])
        receiver = torch.cat([receiver, torch.where(outward, self._parent, self._child)])
        moved = torch.cat([amount, flow.abs()])[:, None] * self._places[giver]
        out = stationarity.index_add(0, receiver, moved).index_add_(0, giver, -moved)
        out[:, -1] = 0  # exact but for rounding
        return out

    def _matches(self, surplus: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Who gives how much to whom, the nearest first, among pieces that have too much and that have too little."""
        left, found = surplus.cpu().numpy().copy(), []
        for known in (True, False):
            giver, receiver = self._near if known else self._ordered(np.flatnonzero(left > 0), np.flatnonzero(left < 0))
            useful = (left[giver] > 0) & (left[receiver] < 0)
            found.append(_matched(giver[useful], receiver[useful], left))
        parts = [torch.as_tensor(np.concatenate(part)).to(surplus.device) for part in zip(*found, strict=True)]
        return parts[0], parts[1], parts[2].to(surplus)

    @cached_property
    def _near(self) -> tuple[np.ndarray, np.ndarray]:
        everyone = np.arange(len(self._places))
        return self._ordered(everyone, everyone)

    def _ordered(self, givers: np.ndarray, receivers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of a giver and a receiver near to it, the nearest first."""
        places = self._places[:, :-1].cpu().numpy()
        n_near = min(MATCHING_NEIGHBORS, len(receivers)) if len(givers) else 0
        near = nearest(places[receivers], places[givers], n_near) if n_near else np.zeros((0, 0), dtype=np.int64)
        giver, receiver = np.repeat(givers, n_near), receivers[near].reshape(-1)
        order = np.argsort(np.square(places[giver] - places[receiver]).sum(1), kind="stable")
        return giver[order], receiver[order]


def _drained(child: Tensor, parent: Tensor, surplus: Tensor) -> np.ndarray:
    """What every child has to give to its parent for all but the root to have none left."""
    from bregnet.solver import compiled  # numba is slow to import

    left, flow = surplus.cpu().numpy().copy(), np.empty(len(child))
    compiled.drain(child.cpu().numpy(), parent.cpu().numpy(), left, flow)
    return flow


def _matched(giver: np.ndarray, receiver: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What givers can give and receivers can take, one after the other; `left` is what is left of a surplus."""
    from bregnet.solver import compiled  # numba is slow to import

    amount = np.zeros(len(giver))
    compiled.match(giver, receiver, left, amount)
    used = amount > 0
    return giver[used], receiver[used], amount[used]
