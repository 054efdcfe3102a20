"""Working pairs: the convexity constraints that the solver keeps, and sums over them.

A pair (k, j) stands for the constraint that piece k does not exceed the fitted value at point j. Pieces are written as
(value at the center m_k of the cell, slopes), so that the slack of a pair is

    (R u)_kj = fitted_j - z_k - a_k.(x_j - m_k),    fitted_j = z_c(j) + a_c(j).(x_j - m_c(j)),

and fitted_j = z_j where every point has a piece of its own. Two operators behind one interface:
:class:`CompiledPairs` (numba, CPU) and :class:`TorchPairs` (any device).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bregnet._core.chunks import batches, blocks, rows_at_once
from bregnet.distributed import Ranks
from bregnet.solver.geometry import Geometry
from bregnet.solver.nearest import nearest
from bregnet.solver.threads import Threads

NEIGHBORS = 20  # nearest points (or cells) whose pairs every piece starts with
WORST = 3  # violated pairs that a scan adds for every point, and for every piece
SERIAL_WORK = 10_000  # pairs times features up to which one thread is as fast as two
SERIAL_SCAN = 300_000  # pieces times points up to which threads cost more than they save


class Scan(NamedTuple):
    """What a look at all pieces and all points has found."""

    largest: Tensor  # of all pieces at every point, (n,)
    violated: Tensor  # keys k n + j of pairs, (m,), of all ranks, some of them twice


def starting_keys(geometry: Geometry) -> Tensor:
    """Pairs of neighboring points, in both directions, or of points and the cells nearest to them."""
    n, n_pieces = geometry.n_points, geometry.n_pieces
    n_near = min(NEIGHBORS + 1, n_pieces)
    points, centers = geometry.points.cpu().numpy(), geometry.centers.cpu().numpy()
    pieces = nearest(centers, points, n_near).reshape(-1)
    columns = np.repeat(np.arange(n), n_near)
    keys = [pieces * n + columns]
    if geometry.own_piece:
        keys.append(columns * n + pieces)
    return without_own(geometry, torch.as_tensor(np.concatenate(keys), device=geometry.lifted.device)).unique()


def without_own(geometry: Geometry, keys: Tensor) -> Tensor:
    """The pairs without those of a point and its own piece, whose slack is 0."""
    return keys[keys // geometry.n_points != geometry.cells[keys % geometry.n_points]]


class PairOperator(ABC):
    """R, its adjoint and its normal equations on a set of pairs, in one precision.

    Where several ranks share a fit, each has the pairs of its share of the pieces; sums over pairs are those of all.

    Parameters
    ----------
    geometry : Geometry
        All points, on every rank.
    dtype : torch.dtype
    ranks : Ranks

    Attributes
    ----------
    keys : Tensor of shape (E,), int64
        k n + j of this rank's pairs, sorted.
    pieces, points : Tensor of shape (E,), int32
        k and j.
    """

    def __init__(self, geometry: Geometry, dtype: torch.dtype, ranks: Ranks) -> None:
        self.geometry, self.dtype, self.ranks = geometry, dtype, ranks
        self.share = ranks.share(geometry.n_pieces)
        self.centers = geometry.points if geometry.own_piece else geometry.centers  # m_k, float64
        apart = geometry.points[:0] if geometry.own_piece else geometry.points - self.centers[geometry.cells]
        self.offsets = apart.to(dtype)  # x_j - m_c(j), none where these are all 0
        self.keys = self.pieces = self.points = geometry.cells[:0]

    def mine(self, keys: Tensor) -> Tensor:
        """Those of the pairs which are of this rank's pieces."""
        n = self.geometry.n_points
        return keys[(keys >= self.share.start * n) & (keys < self.share.stop * n)]

    def choose(self, keys: Tensor) -> None:
        """Take these pairs, sorted, of this rank's pieces."""
        n, self.keys = self.geometry.n_points, keys
        self.pieces, self.points = (self.keys // n).int(), (self.keys % n).int()
        self._index()

    @abstractmethod
    def _index(self) -> None:
        """Prepare the sums over the chosen pairs."""

    def fitted(self, pieces: Tensor) -> Tensor:
        """The value each point's own piece takes there, (n,)."""
        if len(self.offsets) == 0:
            return pieces[:, 0].contiguous()
        cells = self.geometry.cells
        return pieces[cells, 0] + torch.linalg.vecdot(pieces[cells, 1:], self.offsets)

    def fitted_sets(self, pieces: Tensor) -> Tensor:
        """`fitted` of each set of pieces (Q, K, d + 1), (Q, n), float64."""
        return torch.stack([self.fitted(u) for u in pieces]).double()

    def from_points(self, values: Tensor) -> Tensor:
        """The adjoint of `fitted`: what values (n,) at the points do to their own pieces, (K, d + 1)."""
        out = values.new_zeros((self.geometry.n_pieces, self.geometry.dimension + 1))
        if len(self.offsets) == 0:
            out[:, 0] = values
            return out
        out[:, 0].index_add_(0, self.geometry.cells, values)
        out[:, 1:].index_add_(0, self.geometry.cells, values[:, None] * self.offsets)
        return out

    def _collected(self, rows: Tensor, arriving: Tensor) -> Tensor:
        """R't from its two parts: by the pairs' pieces, (K, d + 1), and by their points, (n,)."""
        if len(self.offsets) == 0:
            rows[:, 0] += arriving
        else:
            rows += self.from_points(arriving)
        return self.ranks.sum(rows)

    @abstractmethod
    def slacks(self, pieces: Tensor) -> Tensor:
        """R u on this rank's pairs, (E,)."""

    @abstractmethod
    def normal(self, pieces: Tensor, weights: Tensor | None = None) -> Tensor:
        """R' diag(weights) R u, (K, d + 1)."""

    @abstractmethod
    def adjoint(self, values: Tensor) -> Tensor:
        """R't for values t (E,) of this rank's pairs, (K, d + 1)."""

    @abstractmethod
    def spread(self) -> Tensor:
        """Sums of squares of x_j - m_k over this rank's pairs, and their number, (d + 1,), float64."""

    @abstractmethod
    def _row_grams(self, weights: Tensor, chosen: Tensor) -> Tensor:
        """sum_j weight_kj (1, x_j - m_k)(1, x_j - m_k)' over the pairs of chosen pieces, (m, d + 1, d + 1)."""

    @abstractmethod
    def precondition(self, inverse: Tensor, residual: Tensor) -> Tensor:
        """Products of the pieces' matrices (K, d + 1, d + 1) with rows (K, d + 1)."""

    def blocks(self, weights: Tensor, chosen: Tensor) -> Tensor:
        """Diagonal blocks of R' diag(weights) R for chosen (sorted) pieces, (m, d + 1, d + 1), float64."""
        geometry = self.geometry
        here = torch.searchsorted(chosen, chosen.new_tensor([self.share.start, self.share.stop]))
        mine = slice(*here.tolist())
        size = geometry.dimension + 1
        out = geometry.lifted.new_zeros((len(chosen), size, size))
        out[mine] = self._row_grams(weights, chosen[mine])
        arriving = torch.zeros_like(geometry.weights).index_add_(0, self.points, weights.double())
        return self.add_at_points(self.ranks.sum(out), self.ranks.sum(arriving), chosen)

    def diagonal(self, weights: Tensor) -> Tensor:
        """The diagonal of R' diag(weights) R, (K, d + 1), float64, where every point has a piece of its own."""
        points, out = self.geometry.points, torch.zeros_like(self.geometry.lifted)
        for part in blocks(len(self.pieces), out.shape[1]):
            pieces, there, weight = self.pieces[part], self.points[part], weights[part].double()
            out[:, 0].index_add_(0, pieces, weight).index_add_(0, there, weight)
            out[:, 1:].index_add_(0, pieces, weight[:, None] * (points[there] - self.centers[pieces]).square())
        return self.ranks.sum(out)

    def add_at_points(self, blocks: Tensor, values: Tensor, chosen: Tensor) -> Tensor:
        """Add those of fitted' diag(values) fitted, for values (n,), in place."""
        if len(self.offsets) == 0:
            blocks[:, 0, 0] += values[chosen]
            return blocks
        lifted = torch.cat([torch.ones_like(values[:, None]), self.offsets.double()], dim=1)
        return blocks.add_(self.geometry.cell_grams(values, lifted)[chosen])

    def scan(self, lifted: Tensor, level: float) -> Scan:
        """Compare all pieces (K, d + 1), as (slopes, intercept) in float64, with the fitted values at all points.

        Violated pairs are, for every point, the pieces that exceed its fitted value most, and for every piece the
        points where it does so most, where that is by more than `level`.
        """
        n, ranks = self.geometry.n_points, self.ranks
        fitted = self.geometry.fitted(lifted)
        excess, of_pieces, more, of_points = self._scan(lifted, fitted, level)
        if ranks.size > 1:
            excess, of_pieces = (_gathered(part, ranks) for part in (excess, of_pieces))
            excess, order = excess.sort(dim=1, descending=True, stable=True)
            excess, of_pieces = excess[:, :WORST], of_pieces.gather(1, order)[:, :WORST]
        points = torch.arange(n, device=fitted.device)[:, None]
        own = torch.arange(self.share.start, self.share.stop, device=fitted.device)[:, None]
        by_points = (of_pieces * n + points)[excess > level]
        by_pieces = (own * n + of_points)[more > level]
        if ranks.size > 1:
            by_pieces = _joined(by_pieces, ranks)
        largest = fitted + excess[:, 0].double().clamp_min(0)
        return Scan(largest, torch.cat([by_points, by_pieces]))

    def lifted(self, pieces: Tensor) -> Tensor:
        """Pieces as (slopes, intercept), (K, d + 1), float64."""
        values, slopes = pieces[:, :1].double(), pieces[:, 1:].double()
        return torch.cat([slopes, values - (slopes * self.centers).sum(1, keepdim=True)], dim=1)

    @abstractmethod
    def _scan(self, lifted: Tensor, fitted: Tensor, level: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The worst excesses of this rank's pieces at every point, their pieces; those of every piece, their points."""


def _gathered(values: Tensor, ranks: Ranks) -> Tensor:
    """Columns (n, m) of all ranks beside each other, (n, size m)."""
    out = values.new_zeros((ranks.size, *values.shape), dtype=torch.float64)
    out[ranks.rank] = values
    return ranks.sum(out).permute(1, 0, 2).reshape(len(values), -1).to(values.dtype)


def _joined(keys: Tensor, ranks: Ranks) -> Tensor:
    """The keys of all ranks."""
    counts = torch.zeros(ranks.size, dtype=torch.float64)
    counts[ranks.rank] = len(keys)
    ends = ranks.sum(counts).cumsum(0).long().tolist()
    out = torch.zeros(ends[-1], dtype=torch.float64, device=keys.device)  # below 2^53, so that keys are exact
    out[ends[ranks.rank] - len(keys) : ends[ranks.rank]] = keys.double()
    return ranks.sum(out).long()


class CompiledPairs(PairOperator):
    """Compiled sums on several threads; differences x_j - m_k lie in the order in which they are read."""

    def __init__(self, geometry: Geometry, dtype: torch.dtype, ranks: Ranks) -> None:
        from bregnet.solver import compiled_pairs  # numba is slow to import

        super().__init__(geometry, dtype, ranks)
        self._compiled = compiled_pairs
        self._kind = torch.empty(0, dtype=dtype).numpy().dtype
        self._threads = Threads(torch.get_num_threads())
        self._coordinates = np.ascontiguousarray(geometry.points.numpy().T, dtype=self._kind)  # (d, n)

    def _index(self) -> None:
        geometry = self.geometry
        self._points = self.points.numpy()
        self._starts = np.searchsorted(self.pieces.numpy(), np.arange(geometry.n_pieces + 1, dtype=np.int32))
        work = len(self._points) * (geometry.dimension + 4)
        self._own = Threads(1) if work <= SERIAL_WORK else self._threads
        self._chunks = self._own.chunks(geometry.n_pieces, self._starts)
        self._arriving = torch.empty((len(self._chunks), geometry.n_points), dtype=self.dtype)
        if self.many_features:
            self._differences = geometry.points.numpy().astype(self._kind, copy=False)
            return
        self._differences = np.empty(0)  # the memory of those before serves again
        self._differences = np.empty(len(self._points) * geometry.dimension, dtype=self._kind)
        given = self._starts, self._points, geometry.points.numpy(), self.centers.numpy(), self._differences
        self._own.run(lambda _, *chunk: self._compiled.pair_differences(*given, *chunk), self._chunks)

    @property
    def layout(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the pairs of each piece start, their points, and their differences, or the points' coordinates."""
        return self._starts, self._points, self._differences

    @property
    def many_features(self) -> bool:
        """Whether differences are computed from the points each time, and not kept."""
        return self.geometry.own_piece and self.geometry.dimension >= self._compiled.MANY_FEATURES

    @cached_property
    def members(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the points of each cell start, these points, and how far they are from the centers."""
        cells = self.geometry.cells.numpy()
        order = np.argsort(cells, kind="stable").astype(np.int32)
        starts = np.searchsorted(cells[order], np.arange(self.geometry.n_pieces + 1))
        return starts, order, self.offsets.numpy()

    @property
    def team(self) -> tuple[Threads, list[tuple[int, int]]]:
        """The threads that share the work on pairs, and the pieces of each."""
        return self._own, self._chunks

    def slacks(self, pieces: Tensor) -> Tensor:
        """R u on this rank's pairs."""
        out = torch.empty(len(self._points), dtype=self.dtype)
        given = *self.layout, pieces.numpy(), self.fitted(pieces).numpy(), out.numpy()
        self._own.run(lambda _, *chunk: self._compiled.pair_slacks(*given, *chunk), self._chunks)
        return out

    def adjoint(self, values: Tensor) -> Tensor:
        """R't."""
        return self._summed(self._compiled.pair_sums, values.numpy())

    def normal(self, pieces: Tensor, weights: Tensor | None = None) -> Tensor:
        """R' diag(weights) R u."""
        weights = pieces.new_empty(0) if weights is None else weights
        slack = np.empty(len(self._points), dtype=self._kind)
        arrays = (part.numpy() for part in (pieces, self.fitted(pieces), weights))
        return self._summed(self._compiled.pair_pass, *arrays, slack)

    def _summed(self, function: Callable[..., None], *arrays: np.ndarray) -> Tensor:
        """R't from the function that computes its two parts."""
        shape = self.geometry.n_pieces, self.geometry.dimension + 1
        rows, arriving = torch.empty(shape, dtype=self.dtype), self._arriving.numpy()
        given = *self.layout, *arrays, rows.numpy()
        self._own.run(lambda number, *chunk: function(*given, arriving[number], *chunk), self._chunks)
        return self._collected(rows, self._arriving.sum(0) if len(arriving) > 1 else self._arriving[0])

    def spread(self) -> Tensor:
        """Sums of squares of x_j - m_k, and the number of pairs."""
        out = torch.zeros((len(self._chunks), self.geometry.dimension + 1), dtype=torch.float64)
        self._own.run(
            lambda number, *chunk: self._compiled.pair_spread(*self.layout, out[number].numpy(), *chunk), self._chunks
        )
        return out.sum(0)

    def _row_grams(self, weights: Tensor, chosen: Tensor) -> Tensor:
        size = self.geometry.dimension + 1
        out = torch.empty((len(chosen), size, size), dtype=torch.float64)
        given = *self.layout, weights.numpy(), chosen.numpy(), out.numpy()
        chunks = self._own.chunks(len(chosen))
        self._own.run(lambda _, *chunk: self._compiled.pair_grams(*given, *chunk), chunks)
        return out

    def precondition(self, inverse: Tensor, residual: Tensor) -> Tensor:
        """Products of the pieces' matrices with rows."""
        n_pieces, size = residual.shape
        starts, never = np.arange(n_pieces + 1) * size**2, np.zeros(n_pieces, dtype=bool)
        columns, none = np.empty((0, size), dtype=self._kind), np.empty(0, dtype=self._kind)
        return self.divided(0, (none, inverse.numpy().reshape(1, -1), starts, never, columns, none), none, residual)

    def pairs_of_pieces(self) -> np.ndarray:
        """How many pairs each piece has."""
        return np.diff(self._starts)

    def invert(self, kappa: np.ndarray, at_points: np.ndarray, *arrays: np.ndarray) -> None:
        """Fill the matrices of :class:`bregnet.solver.preconditioner.CompiledPreconditioner` for one mode."""
        given = self.layout, self.members, kappa, at_points, *arrays
        self._own.run(lambda _, *chunk: self._compiled.invert(*given, *chunk), self._chunks)

    def divided(self, mode: int, preconditioner: tuple[np.ndarray, ...], kappa: np.ndarray, residual: Tensor) -> Tensor:
        """The products of a preconditioner's matrices with rows (K, d + 1)."""
        out = torch.empty_like(residual)
        given = mode, self.layout, preconditioner, kappa, residual[None].numpy(), out[None].numpy()
        self._own.run(lambda _, *chunk: self._compiled.precondition(*given, *chunk), self._chunks)
        return out

    def _scan(self, lifted: Tensor, fitted: Tensor, level: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        n, n_pieces = self.geometry.n_points, self.geometry.n_pieces
        threads = self._threads if n * n_pieces > SERIAL_SCAN else Threads(1)
        here = self.share.stop - self.share.start
        chunks = [(begin + self.share.start, end + self.share.start) for begin, end in threads.chunks(here)]
        excess = torch.zeros((len(chunks), n, WORST), dtype=self.dtype)
        of_pieces = torch.zeros(excess.shape, dtype=torch.int64)
        more = torch.zeros((n_pieces, WORST), dtype=self.dtype)
        of_points = torch.zeros(more.shape, dtype=torch.int64)
        given = (
            lifted.to(self.dtype).numpy(),
            self._coordinates,
            fitted.to(self.dtype).numpy(),
            self.geometry.cells.numpy(),
            self._kind.type(level),
        )

        def run(number: int, begin: int, end: int) -> None:
            there = excess[number].numpy(), of_pieces[number].numpy(), more.numpy(), of_points.numpy()
            self._compiled.scan(*given, *there, begin, end)

        threads.run(run, chunks)
        values = excess.permute(1, 0, 2).reshape(n, -1)
        numbers = of_pieces.permute(1, 0, 2).reshape(n, -1)
        if len(chunks) > 1:
            values, order = values.sort(dim=1, descending=True, stable=True)
            values, numbers = values[:, :WORST], numbers.gather(1, order)[:, :WORST]
        return values, numbers, more[self.share], of_points[self.share]


class TorchPairs(PairOperator):
    """Plain torch, for any device."""

    def _index(self) -> None:
        self._differences = (self.geometry.points[self.points] - self.centers[self.pieces]).to(self.dtype)

    def slacks(self, pieces: Tensor) -> Tensor:
        """R u on this rank's pairs."""
        slopes = torch.linalg.vecdot(pieces[self.pieces, 1:], self._differences)
        return self.fitted(pieces)[self.points] - pieces[self.pieces, 0] - slopes

    def adjoint(self, values: Tensor) -> Tensor:
        """R't."""
        geometry = self.geometry
        rows = values.new_zeros((geometry.n_pieces, geometry.dimension + 1))
        rows[:, 0].index_add_(0, self.pieces, values, alpha=-1)
        rows[:, 1:].index_add_(0, self.pieces, values[:, None] * self._differences, alpha=-1)
        return self._collected(rows, values.new_zeros(geometry.n_points).index_add_(0, self.points, values))

    def normal(self, pieces: Tensor, weights: Tensor | None = None) -> Tensor:
        """R' diag(weights) R u."""
        slack = self.slacks(pieces)
        return self.adjoint(slack if weights is None else slack * weights)

    def spread(self) -> Tensor:
        """Sums of squares of x_j - m_k, and the number of pairs."""
        number = torch.full_like(self.geometry.lifted[0, :1], len(self.points))
        return torch.cat([self._differences.double().square().sum(0), number])

    def _row_grams(self, weights: Tensor, chosen: Tensor) -> Tensor:
        geometry, size = self.geometry, self.geometry.dimension + 1
        out = geometry.lifted.new_zeros((geometry.n_pieces, size, size))
        for part in blocks(len(self.pieces), size**2):
            differences = self._differences[part].double()
            lifted = torch.cat([torch.ones_like(differences[:, :1]), differences], dim=1)
            out.index_add_(0, self.pieces[part], (weights[part, None] * lifted)[:, :, None] * lifted[:, None, :])
        return out[chosen]

    def precondition(self, inverse: Tensor, residual: Tensor) -> Tensor:
        """Products of the pieces' matrices with rows."""
        return torch.bmm(residual.unsqueeze(1), inverse).squeeze(1)

    def _scan(self, lifted: Tensor, fitted: Tensor, level: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        geometry, n, device = self.geometry, self.geometry.n_points, lifted.device
        points, anchor = geometry.lifted.to(self.dtype), fitted.to(self.dtype)
        excess = torch.zeros((n, WORST), dtype=self.dtype, device=device)
        of_pieces = torch.zeros((n, WORST), dtype=torch.int64, device=device)
        more, of_points = [excess[:0]], [of_pieces[:0]]  # a rank may have no pieces
        for part in batches(self.share.stop, rows_at_once(n), start=self.share.start):
            numbers = torch.arange(part.start, part.stop, device=device)
            tile = lifted[numbers].to(self.dtype) @ points.T - anchor  # (pieces, n)
            tile.masked_fill_(geometry.cells == numbers[:, None], 0)
            values, at = tile.topk(min(WORST, n), 1)
            more.append(torch.nn.functional.pad(values, (0, WORST - values.shape[1])))
            of_points.append(torch.nn.functional.pad(at, (0, WORST - at.shape[1])))
            values, at = tile.topk(min(WORST, len(tile)), 0)
            found = torch.cat([excess, values.T.clamp_min(0)], dim=1)
            excess, order = found.sort(dim=1, descending=True, stable=True)
            of_pieces = torch.cat([of_pieces, numbers[at.T]], dim=1).gather(1, order)[:, :WORST]
            excess = excess[:, :WORST]
        return excess, of_pieces, torch.cat(more), torch.cat(of_points)


def pair_operator(geometry: Geometry, dtype: torch.dtype, ranks: Ranks) -> PairOperator:
    """Compiled on a CPU, torch elsewhere."""
    return (CompiledPairs if geometry.lifted.device.type == "cpu" else TorchPairs)(geometry, dtype, ranks)
