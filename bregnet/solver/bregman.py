"""Learning a Bregman divergence (paper, program 7 and algorithm 3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bregnet.solver.entries import Entries, EntryKernel, PairEntries, TripletEntries
from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import Kernel, choose_kernel
from bregnet.solver.margins import MARGIN, TRIPLET_MARGIN, Hinges, Margins
from bregnet.solver.multipliers import DenseMultipliers, Multipliers
from bregnet.solver.penalty import Penalty, rounding_of
from bregnet.solver.polish import strictly_convex
from bregnet.solver.problem import Problem
from bregnet.solver.transport import PieceTree


class Tangents:
    """The divergences of a max-affine function at the points: D(x_j, x_i) = f(x_j) - u_active(i).xh_j.

    Only pieces that are active at some point are kept.
    """

    def __init__(self, geometry: Geometry, pieces: Tensor) -> None:
        self.values, active = geometry.largest(pieces)  # f(x_j)
        counts = torch.bincount(active, minlength=len(pieces))
        used = geometry.ranks.sum(counts) > 0
        self.active = (used.cumsum(0) - 1)[active]
        self.pieces = pieces[used]
        self._geometry = geometry

    def pairs(self, tangents: Tensor, points: Tensor) -> Tensor:
        """D(x_j, x_i) for lists of tangent points i and points j."""
        lifted = self._geometry.lifted[points]
        tangent_values = torch.linalg.vecdot(self.pieces[self.active[tangents]], lifted)
        return (self.values[points] - tangent_values).clamp_min_(0)

    def has_ties(self) -> bool:
        """Whether some point's largest pieces are so near each other that rounding decides between them."""
        if len(self.pieces) == 1:
            return False
        margin = 1e-10 * (1 + self.values.abs().amax())
        parts = (self._geometry.lifted[part] for part in self._geometry.tiles(len(self.pieces)))
        best = (torch.topk(part @ self.pieces.T, 2).values for part in parts)
        return any(bool((two[:, 0] - two[:, 1] <= margin).any()) for two in best)

    def tile(self, part: slice) -> Tensor:
        """D of some points to the tangents of all pieces, (points, pieces)."""
        return (self.values[part, None] - self._geometry.lifted[part] @ self.pieces.T).clamp_min_(0)


class SlackLoss(ABC):
    """What is known about the points: it weighs their divergences, in the primal and in the dual."""

    kind: str  # its name in checkpoints
    margins: Margins | None = None
    entries: Entries | None = None
    coupled = False  # whether a loss acts on several slacks at once

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """What it consists of."""

    @abstractmethod
    def slack_loss(self) -> tuple[Tensor, Hinges]:
        """Weights P (K, n) of the slacks, and hinges on them."""

    @abstractmethod
    def loss(self, tangents: Tangents, scales: Tensor) -> Tensor:
        """The loss of a function times each of some numbers, (S,)."""

    @abstractmethod
    def dual_value(self, multipliers: Multipliers, scale: float) -> float:
        """What multipliers, each no lower than its floor and then scaled, are worth; scale is at most 1."""

    @abstractmethod
    def clamped_multipliers(self, multipliers: Multipliers, rows: slice, tile: Tensor) -> Tensor:
        """Multipliers mu of some pieces, clamped at the floor below which the dual is unbounded, in place."""


class LabelLoss(SlackLoss):
    """Points of the same class are similar, others are not.

    Parameters
    ----------
    geometry : Geometry
        Its points lie in the order of their groups.
    histograms : Tensor of shape (G, C)
        Observations of each class at a point of a group.
    sizes : Tensor of shape (G,), int64
        Points in each group.
    pull, push : float
        Weight of a similar and of a dissimilar pair of observations.
    """

    kind = "Labels"

    def __init__(self, geometry: Geometry, histograms: Tensor, sizes: Tensor, pull: float, push: float) -> None:
        self._geometry, self._histograms, self._sizes = geometry, histograms, sizes
        self._pull, self._push = pull, push
        self._groups = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
        self.margins = self._weights(geometry.cells, geometry.n_pieces)

    def _weights(self, cells: Tensor, n_pieces: int) -> Margins:
        """P and M when the points are cut into these cells."""
        members = self._histograms.new_zeros((n_pieces, len(self._sizes)))
        members.index_put_((cells, self._groups), torch.ones_like(members[0, 0]), accumulate=True)
        in_cells = self._geometry.ranks.sum(members @ self._histograms)
        similar = in_cells @ self._histograms.T
        everyone = in_cells.sum(1)[:, None] * self._histograms.sum(1)
        return Margins(self._pull * similar, self._push * (everyone - similar).clamp_min(0), self._sizes)

    def tensors(self) -> list[Tensor]:
        """Weights of all slacks."""
        assert self.margins is not None
        return [self.margins.pull, self.margins.push, self.margins.sizes]

    def slack_loss(self) -> tuple[Tensor, Hinges]:
        """P and M on every slack."""
        assert self.margins is not None
        pull, push = self.margins.at(slice(None))
        return pull, _hinges_of(self._geometry, push)

    def loss(self, tangents: Tangents, scales: Tensor) -> Tensor:
        """sum_ij P_ij D(x_j, x_i) + M_ij max(0, 2 - D(x_j, x_i))."""
        weights = self._weights(tangents.active, len(tangents.pieces))
        pull, push = weights.pull.T.contiguous(), weights.push.T.contiguous()
        total = torch.zeros_like(scales)
        for part in self._geometry.tiles(len(tangents.pieces)):
            divergence = tangents.tile(part)
            groups = self._groups[part]
            total += scales * (pull[groups] * divergence).sum()
            total += torch.stack([_short(push[groups], scale * divergence) for scale in scales])
        return self._geometry.ranks.sum(total)

    def clamped_multipliers(self, multipliers: Multipliers, rows: slice, tile: Tensor) -> Tensor:
        """mu >= -P."""
        assert self.margins is not None
        return torch.maximum(tile, -self.margins.at(rows)[0], out=tile)

    def dual_value(self, multipliers: Multipliers, scale: float) -> float:
        """sum_kj 2 min(M, P + mu); a piece against its own points is worth 2 M whatever the multiplier."""
        assert self.margins is not None
        geometry = self._geometry
        total = torch.zeros((), dtype=torch.float64, device=geometry.lifted.device)
        for rows, tile in multipliers.tiles():
            pull, push = self.margins.at(rows)
            worth = torch.minimum(push, self.clamped_multipliers(multipliers, rows, tile).mul_(scale).add_(pull))
            own = own_entries(geometry, rows)
            worth[own] = push[own]
            total += worth.sum()
        return MARGIN * float(geometry.ranks.sum(total))


class PairLoss(SlackLoss):
    """Some pairs are similar, some are not.

    Parameters
    ----------
    geometry : Geometry
    tangents, points : Tensor of shape (m,), int64
        The pairs: D(x_point, x_tangent) is judged.
    pull, push : Tensor of shape (m,)
        Weights of each as a similar and as a dissimilar pair.
    """

    kind = "Pairs"

    def __init__(self, geometry: Geometry, tangents: Tensor, points: Tensor, pull: Tensor, push: Tensor) -> None:
        self._geometry = geometry
        self._tangents, self._points, self._pull, self._push = tangents, points, pull, push
        rows, columns, inverse = distinct(geometry.cells[tangents], points, geometry.n_points)
        total = torch.zeros((2, len(rows)), dtype=pull.dtype, device=pull.device)
        total.index_add_(1, inverse, torch.stack([pull, push]))
        self.entries: PairEntries = PairEntries(rows, columns, *total)

    def tensors(self) -> list[Tensor]:
        """The pairs and their weights."""
        return [self._tangents, self._points, self._pull, self._push]

    def slack_loss(self) -> tuple[Tensor, Hinges]:
        """P and M on the given pairs."""
        shape = 2, self._geometry.n_pieces, self._geometry.n_points
        out = torch.zeros(shape, dtype=self._pull.dtype, device=self._pull.device)
        out[:, self.entries.rows, self.entries.columns] = torch.stack([self.entries.pull, self.entries.push])
        return out[0], _hinges_of(self._geometry, out[1])

    def loss(self, tangents: Tangents, scales: Tensor) -> Tensor:
        """The weighted sum over the pairs."""
        divergence = tangents.pairs(self._tangents, self._points)
        pushed = torch.stack([_short(self._push, scale * divergence) for scale in scales])
        return scales * (self._pull @ divergence) + pushed

    def clamped_multipliers(self, multipliers: Multipliers, rows: slice, tile: Tensor) -> Tensor:
        """mu >= -P on the pairs and mu >= 0 elsewhere."""
        return raise_entries(self.entries, -self.entries.pull, rows, tile)

    def dual_value(self, multipliers: Multipliers, scale: float) -> float:
        """As that of labels, on the given pairs."""
        entries, geometry = self.entries, self._geometry
        mu = scale * torch.maximum(multipliers.of_entries(entries), -entries.pull)
        worth = torch.minimum(entries.push, entries.pull + mu)
        own = geometry.cells[entries.columns] == entries.rows
        return MARGIN * float(torch.where(own, entries.push, worth).sum())


class TripletLoss(SlackLoss):
    """The anchor is nearer to the positive than to the negative.

    Parameters
    ----------
    geometry : Geometry
    triplets : Tensor of shape (m, 3), int64
        Anchor, positive, negative.
    weights : Tensor of shape (m,)
    """

    kind = "Triplets"
    coupled = True

    def __init__(self, geometry: Geometry, triplets: Tensor, weights: Tensor) -> None:
        self._geometry, self._triplets, self._weights = geometry, triplets, weights
        anchors, positives, negatives = triplets.unbind(1)
        cells = geometry.cells[anchors].repeat(2)
        rows, columns, inverse = distinct(cells, torch.cat([positives, negatives]), geometry.n_points)
        near, far = inverse.chunk(2)
        self.entries: TripletEntries = TripletEntries(rows, columns, near, far, weights)

    def tensors(self) -> list[Tensor]:
        """The triplets and their weights."""
        return [self._triplets, self._weights]

    def slack_loss(self) -> tuple[Tensor, Hinges]:
        """A hinge on the difference of two slacks for each triplet."""
        geometry, entries = self._geometry, self.entries
        numbers = entries.rows * geometry.n_points + entries.columns
        near, far = numbers[entries.ends]
        free = geometry.lifted.new_zeros((geometry.n_pieces, geometry.n_points))
        return free, Hinges(self._weights, far, near, TRIPLET_MARGIN)

    def loss(self, tangents: Tangents, scales: Tensor) -> Tensor:
        """sum weight max(0, 1 + D(positive, anchor) - D(negative, anchor))."""
        anchors, positives, negatives = self._triplets.unbind(1)
        farther = tangents.pairs(anchors, positives) - tangents.pairs(anchors, negatives)
        return torch.stack([self._weights @ (TRIPLET_MARGIN + scale * farther).clamp_min(0) for scale in scales])

    def clamped_multipliers(self, multipliers: Multipliers, rows: slice, tile: Tensor) -> Tensor:
        """mu >= the multipliers of triplets in which a slack is the far one, minus those where it is the near one."""
        short = self._shortfalls(multipliers)
        floor = self.entries.gather(torch.stack([-short, short]))
        return raise_entries(self.entries, floor, rows, tile)

    def dual_value(self, multipliers: Multipliers, scale: float) -> float:
        """The multipliers of the triplets, scaled with the others."""
        return scale * float(self._shortfalls(multipliers).sum())

    def _shortfalls(self, multipliers: Multipliers) -> Tensor:
        """Multipliers of the triplets, each between 0 and its weight."""
        return multipliers.of_losses().clamp_min(0).minimum(self._weights)


def _short(push: Tensor, divergence: Tensor) -> Tensor:
    """sum M max(0, 2 - D)."""
    return (push * (MARGIN - divergence).clamp_min_(0)).sum()


def _hinges_of(geometry: Geometry, push: Tensor) -> Hinges:
    """A hinge on every slack that is pushed; a piece has no slack at its own points."""
    apart = push.clone()
    apart[own_entries(geometry, slice(0, geometry.n_pieces))] = 0
    pushed = torch.nonzero(apart.reshape(-1)).squeeze(1)
    return Hinges(apart.reshape(-1)[pushed], pushed, None, MARGIN)


def own_entries(geometry: Geometry, rows: slice) -> tuple[Tensor, Tensor]:
    """Where a piece meets its own points, as row (from the first of `rows`) and column."""
    columns = torch.nonzero((geometry.cells >= rows.start) & (geometry.cells < rows.stop)).squeeze(1)
    return geometry.cells[columns] - rows.start, columns


def distinct(rows: Tensor, columns: Tensor, n_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct entries in order, and where each of the given ones went."""
    keys, inverse = torch.unique(rows * n_columns + columns, return_inverse=True)
    return keys // n_columns, keys % n_columns, inverse


def raise_entries(entries: Entries, floor: Tensor, rows: slice, tile: Tensor) -> Tensor:
    """Raise a tile to the floor of its entries, and to 0 elsewhere."""
    part = entries.within(rows)
    at = entries.rows[part] - rows.start, entries.columns[part]
    kept = torch.maximum(tile[at], floor[part])
    tile.clamp_min_(0)
    tile[at] = kept
    return tile


class BregmanLearning(Problem):
    """The convex function whose divergences fit the supervision best, beside the penalty.

    Parameters
    ----------
    geometry : Geometry
    penalty : Penalty
    supervision : SlackLoss
    """

    layout = "all_pairs"
    interior = True

    def __init__(self, geometry: Geometry, penalty: Penalty, supervision: SlackLoss) -> None:
        super().__init__(geometry, penalty, 1)
        self.ranks = geometry.ranks
        self.supervision = supervision
        self.entries = supervision.entries

    def kernel(self, dtype: torch.dtype) -> Kernel:
        """A pass over the state."""
        base = choose_kernel(self.geometry, dtype, self.supervision.margins)
        return base if self.entries is None else EntryKernel(self.geometry, base, self.entries)

    def identity(self) -> tuple[list[Any], list[Tensor | None]]:
        """Values and tensors that tell this problem from others."""
        values, tensors = super().identity()
        return [*values, self.supervision.kind], [*tensors, *self.supervision.tensors()]

    def slack_loss(self) -> tuple[Tensor, Hinges]:
        """Weights of the slacks, and hinges on them."""
        return self.supervision.slack_loss()

    def dense_bound(self, multipliers: Tensor, hinges: Tensor) -> float:
        """Bound from multipliers (K, n) of all slacks and (H,) of hinges."""
        return self.bound(DenseMultipliers(multipliers, hinges))

    @property
    def trivial_bound(self) -> float:
        """No loss is negative."""
        return 0.0

    @cached_property
    def _tree(self) -> PieceTree:
        return PieceTree(self.geometry)

    def primal(self, pieces: Tensor) -> tuple[float, Tensor]:
        """Value of the function with the pieces that are active at the points, well scaled, and these pieces."""
        tangents = Tangents(self.geometry, pieces[0])
        if self.geometry.own_piece and tangents.has_ties():
            # which of tied pieces is active would be left to rounding: every point gets its own tangent, set apart
            apart = strictly_convex(self.geometry, tangents.pieces[tangents.active])
            tangents = Tangents(self.geometry, apart)
        used = tangents.pieces
        scales = used.new_tensor((0.0, 0.3, 0.7, 0.9, 1.0, 1.1))  # of the function, tried for the least value
        values = self.supervision.loss(tangents, scales) + scales * self.penalty.value(used[:, :-1])
        best = values.argmin()
        return float(values[best]), scales[best] * used[None]

    def objective(self, geometry: Geometry, pieces: Tensor, penalty: Penalty) -> float:
        """Value of a function as it is, with points, pieces and penalty in any coordinates."""
        tangents = Tangents(geometry, pieces)
        loss = self.supervision.loss(tangents, pieces.new_ones(1))
        return float(loss) + float(penalty.value(pieces[:, :-1]))

    def bound(self, found: Multipliers) -> float:
        """Make the multipliers a circulation, scale them into the penalty's ball, and value them."""
        geometry, lifted = self.geometry, self.geometry.lifted
        leaving, arriving = lifted.new_zeros((geometry.n_pieces, lifted.shape[1])), torch.zeros_like(lifted[:, 0])
        mass = torch.zeros_like(lifted[0, 0])
        for rows, tile in found.tiles():
            mu = self.supervision.clamped_multipliers(found, rows, tile)
            mu[own_entries(geometry, rows)] = 0
            leaving[rows] = mu @ lifted
            arriving += mu.sum(0)
            mass += mu.abs().sum()
        stationarity = geometry.ranks.sum(leaving - geometry.own_moments(arriving))
        # what closes the masses only adds multipliers, which never lowers the value
        closed = self._tree.level_out(stationarity, short=True)
        rounding = rounding_of(geometry.ranks.sum(mass), geometry.largest_entry)
        norm = float(self.penalty.dual_norm(-closed[:, :-1], rounding))
        return self.supervision.dual_value(found, min(1.0, 1 / norm) if norm > 0 else 1.0)


Labels, Pairs, Triplets = LabelLoss, PairLoss, TripletLoss  # as the documentation of 0.1.0 had them
