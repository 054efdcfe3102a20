r"""The second stage of learning a divergence: a primal-dual interior-point method for gaps that ADMM closes slowly.

It keeps all constraints, so it needs a handful of matrices of the state's size in double precision, and one that is
larger by the number of features; it is only for problems where those are small. Slopes are eliminated piece by piece
when every point has its own piece, which leaves one linear system of the size of the points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from bregnet._core import chunks
from bregnet.solver.admm import Certified
from bregnet.solver.bregman import BregmanLearning

STEP_BACK = 0.98  # how much of the way to the boundary is gone


@dataclass
class _Barrier:
    """Slacks and multipliers of all inequalities."""

    pairs: Tensor  # s >= 0, (K, n)
    upper: Tensor  # a_kl <= L_l, (K, d)
    lower: Tensor  # -L_l <= a_kl, (K, d)
    short: Tensor  # z >= 0: what a hinge is short of its margin, (H,)
    over: Tensor  # z + e - margin >= 0, (H,)

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.pairs, self.upper, self.lower, self.short, self.over))

    def map(self, other: _Barrier, combine: Callable[[Tensor, Tensor], Tensor]) -> _Barrier:
        return _Barrier(*(combine(a, b) for a, b in zip(self, other, strict=True)))


class InteriorPoint:
    """One run of the method.

    Parameters
    ----------
    problem : BregmanLearning
    pieces : Tensor of shape (K, d + 1)
        Where to start; need not be feasible.
    """

    def __init__(self, problem: BregmanLearning, pieces: Tensor) -> None:
        self.problem, self.geometry = problem, problem.geometry
        lifted, geometry = problem.geometry.lifted, problem.geometry
        own = torch.zeros((geometry.n_pieces, geometry.n_points), dtype=torch.bool, device=lifted.device)
        own[geometry.cells, torch.arange(geometry.n_points, device=lifted.device)] = True
        self._own = own
        pull, self.hinges = problem.slack_loss()
        self._pull, self._push = pull.masked_fill(own, 0), self.hinges.weights
        self.pieces = pieces.clone()
        self._count = int((~own).sum()) + 2 * pieces[:, :-1].numel() + 2 * len(self._push)
        total = 20.0 * problem.primal(pieces[None])[0]  # of slacks times multipliers at the start
        mean = lifted.new_tensor(total / self._count)
        self.levels = self._centered_levels(mean)
        self._start_slacks(mean)
        self.multipliers = _Barrier(*(mean / s for s in self.slacks))
        self.multipliers.pairs[own] = 0
        self.multipliers.short, self.multipliers.over = self._push / 2, self._push / 2

    def _hinged(self, pairs: Tensor) -> Tensor:
        """e, what hinges act on, for slacks or changes of them; a piece has no slack at its own points, (H,)."""
        return self.hinges.values(pairs.masked_fill(self._own, 0))

    def _start_slacks(self, mean: Tensor) -> None:
        """Slacks clear of the boundary by a common margin; they grow true as steps are taken."""
        self.slacks = self._slacks(self.pieces, self.levels)
        pairs = self.slacks.pairs
        self.slacks.pairs = pairs.clamp_min(0) + 0.05 * pairs.abs().mean()
        self.slacks.pairs[self._own] = 1
        room = 2 * mean / self._push
        short = self.hinges.margin - self._hinged(self.slacks.pairs)
        self.slacks.short = short.clamp_min(0) + room
        self.slacks.over = self.slacks.short - short + room

    def _centered_levels(self, mean: Tensor) -> Tensor:
        """Levels L whose multipliers, mean / slack, add up to alpha: found by halving an interval."""
        slopes, alpha = self.pieces[:, :-1], self.problem.penalty.level
        largest = slopes.abs().amax(0)
        low, high = torch.zeros_like(largest), 2 * len(slopes) * mean / alpha + torch.zeros_like(largest)
        for _ in range(50):
            middle = (low + high) / 2
            level = largest + middle
            total = (mean / (level - slopes) + mean / (level + slopes)).sum(0)
            low, high = torch.where(total > alpha, middle, low), torch.where(total > alpha, high, middle)
        return largest + high

    def _slacks(self, pieces: Tensor, levels: Tensor) -> _Barrier:
        """Slacks of pieces and levels; those of the margins are kept apart."""
        slopes, geometry = pieces[:, :-1], self.geometry
        pairs = geometry.fitted(pieces) - pieces @ geometry.lifted.T
        pairs[self._own] = 1  # these constraints are identities; their multipliers stay 0
        none = torch.zeros_like(self._push)
        return _Barrier(pairs, levels - slopes, levels + slopes, none, none)

    def _adjoint(self, pairs: Tensor, upper: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient of the sum of these values times their constraints, in pieces and levels."""
        pieces = pairs @ self.geometry.lifted - self.geometry.cell_moments(pairs.sum(0))
        pieces[:, :-1] += upper - lower
        return pieces, -(upper + lower).sum(0)

    def certify(self) -> Certified:
        """The current function, and a certified bound."""
        multipliers = self._with_hinges(self.multipliers.pairs, self.multipliers.over)
        bound = self.problem.dense_bound(multipliers, self.multipliers.over)
        return Certified(*self.problem.primal(self.pieces[None]), bound)

    def _with_hinges(self, pairs: Tensor, hinges: Tensor) -> Tensor:
        """What the constraints of pairs add up to: their own values, those of hinges, and the pull."""
        return pairs + self.hinges.spread(hinges, pairs).masked_fill(self._own, 0) - self._pull

    def step(self) -> None:
        """A predictor-corrector step (Mehrotra)."""
        slack, mult = self.slacks, self.multipliers
        missing = slack.map(self._slacks(self.pieces, self.levels), torch.sub)
        missing.short = torch.zeros_like(slack.short)
        missing.over = slack.over - (slack.short + self._hinged(slack.pairs) - self.hinges.margin)
        weights = mult.map(slack, torch.div)
        weights.pairs[self._own] = 0
        # z takes up a part of its hinge's constraint; the rest bears on the slacks
        share = weights.short / (weights.short + weights.over)
        stiff = share * weights.over
        system = _system(self, weights, stiff)
        total = torch.stack([(s * m).sum() for s, m in zip(slack, mult, strict=True)]).sum()

        def direction(aim: _Barrier) -> tuple[Tensor, Tensor, _Barrier, _Barrier]:
            goal = aim.map(slack, torch.div)
            goal.pairs[self._own] = 0
            pull = _Barrier(*(g + w * r for g, w, r in zip(goal, weights, missing, strict=True)))
            given = share * goal.over - (1 - share) * (goal.short - self._push)
            hinges = given + stiff * (missing.over + self._hinged(missing.pairs))
            pieces, levels = self._adjoint(self._with_hinges(pull.pairs, hinges), pull.upper, pull.lower)
            step_pieces, step_levels = system.solve(-pieces, -(self.problem.penalty.level + levels))
            moved = self._slacks(step_pieces, step_levels).map(missing, torch.sub)
            moved.pairs[self._own] = 0
            gain = self._hinged(moved.pairs) - missing.over
            wanting = goal.short + goal.over - self._push - weights.over * gain
            moved.short = wanting / (weights.short + weights.over)
            moved.over = moved.short + gain
            change = _Barrier(*(g - m - w * d for g, m, w, d in zip(goal, mult, weights, moved, strict=True)))
            return step_pieces, step_levels, moved, change

        zero = _Barrier(*(torch.zeros((), dtype=total.dtype, device=total.device).expand_as(s) for s in slack))
        _, _, moved, change = direction(zero)
        length = _longest(slack, moved, mult, change)
        after = sum(
            ((s + length * ds) * (m + length * dm)).sum()
            for s, ds, m, dm in zip(slack, moved, mult, change, strict=True)
        )
        center = (after / total) ** 3 * total / self._count
        aim = moved.map(change, lambda ds, dm: center - ds * dm)
        pieces, levels, moved, change = direction(aim)
        length = STEP_BACK * _longest(slack, moved, mult, change)
        self.pieces = self.pieces + length * pieces
        self.levels = self.levels + length * levels
        self.slacks = slack.map(moved, lambda s, ds: s + length * ds)
        self.multipliers = mult.map(change, lambda m, dm: m + length * dm)


def _longest(slack: _Barrier, moved: _Barrier, mult: _Barrier, change: _Barrier) -> Tensor:
    """The longest step, at most 1 / STEP_BACK, that keeps slacks and multipliers positive."""
    most = torch.full((), -STEP_BACK, dtype=slack.pairs.dtype, device=slack.pairs.device)
    for value, step in (*zip(slack, moved, strict=True), *zip(mult, change, strict=True)):
        if value.numel():
            ratio = torch.where(value > 0, step / value, 0)
            most = torch.minimum(most, ratio.amin())
    return -1 / most


class _OwnPieceSystem:
    """Newton equations when every point has its own piece: slopes are eliminated one piece at a time.

    Unknowns are the fitted values z (n), then the levels L (d). With pieces as values z_k at their own points, the
    pair (k, j) is r_kj = z_k - z_j + a_k.(x_j - x_k).
    """

    def __init__(self, method: InteriorPoint, weights: _Barrier) -> None:
        points = self._points = method.geometry.points
        n, d = points.shape
        pair, ends = weights.pairs, weights.upper + weights.lower
        outer = (points[:, :, None] * points[:, None, :]).reshape(n, -1)
        total, mean = pair.sum(1), pair @ points  # sum_j d_kj, sum_j d_kj x_j
        block = (pair @ outer).reshape(n, d, d)  # sum_j d_kj (x_j - x_k)(x_j - x_k)' + diag(ends)
        cross = mean[:, :, None] * points[:, None, :]
        block += total[:, None, None] * points[:, :, None] * points[:, None, :] - cross - cross.mT
        block.diagonal(dim1=1, dim2=2).add_(ends)
        self._slopes = _cholesky(block)
        self._cross = self._values_block(pair, total, mean, self._slopes)
        uneven = (weights.lower - weights.upper).diag_embed()
        self._levels = torch.linalg.solve_triangular(self._slopes, uneven, upper=False).reshape(n * d, d)
        matrix = points.new_zeros((n + d, n + d))
        matrix[:n, :n] = (total + pair.sum(0)).diag() - pair - pair.T - self._cross.T @ self._cross
        matrix[:n, n:] = -self._cross.T @ self._levels
        matrix[n:, :n] = matrix[:n, n:].T
        matrix[n:, n:] = ends.sum(0).diag() - self._levels.T @ self._levels
        self._factor = _cholesky(matrix)

    def _values_block(self, pair: Tensor, total: Tensor, mean: Tensor, factor: Tensor) -> Tensor:
        """F_k^-1 sum_j d_kj (x_j - x_k)(e_k - e_j)', all pieces below each other, (n d, n)."""
        points, (n, d) = self._points, self._points.shape
        block = pair[:, None, :] * (points[:, :, None] - points.T[None])  # -d_kj (x_j - x_k), (n, d, n)
        own = mean - total[:, None] * points
        index = torch.arange(n, device=points.device)
        block[index, :, index] += own
        return torch.linalg.solve_triangular(factor, block, upper=False).reshape(n * d, n)

    def solve(self, pieces: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        n, d = self._points.shape
        values = pieces[:, -1]
        slopes = pieces[:, :-1] - values[:, None] * self._points  # gradient in a with z held
        reduced = torch.linalg.solve_triangular(self._slopes, slopes[..., None], upper=False).reshape(-1)
        right = torch.cat([values - self._cross.T @ reduced, levels - self._levels.T @ reduced])
        solution = torch.cholesky_solve(right[:, None], self._factor)[:, 0]
        z, level = solution[:n], solution[n:]
        reduced = reduced - self._cross @ z - self._levels @ level
        back = torch.linalg.solve_triangular(self._slopes.mT, reduced.reshape(n, d, 1), upper=True)[..., 0]
        return torch.cat([back, (z - (back * self._points).sum(1))[:, None]], dim=1), level


class _CellSystem:
    """Newton equations in all pieces at once, for few pieces, or where hinges couple the slopes of several."""

    def __init__(self, method: InteriorPoint, weights: _Barrier, stiff: Tensor | None = None) -> None:
        geometry, pair = method.geometry, weights.pairs
        lifted, n_pieces = geometry.lifted, geometry.n_pieces
        size, d = lifted.shape[1], geometry.dimension
        outer = lifted[:, :, None] * lifted[:, None, :]
        index = torch.arange(n_pieces, device=lifted.device)
        feature = torch.arange(d, device=lifted.device)
        blocks = lifted.new_zeros((n_pieces, n_pieces, size, size))
        for k in range(n_pieces):
            blocks[k] -= geometry.cell_sum(pair[k][:, None, None] * outer)  # piece k against every cell
        blocks += blocks.permute(1, 0, 2, 3).clone()
        blocks[index, index] += (pair @ outer.reshape(len(lifted), -1)).reshape(n_pieces, size, size)
        blocks[index, index] += geometry.cell_sum(pair.sum(0)[:, None, None] * outer)
        blocks[index[:, None], index[:, None], feature, feature] += weights.upper + weights.lower
        if stiff is not None:
            blocks += self._hinge_blocks(method, stiff)
        each = n_pieces * size
        matrix = lifted.new_zeros((each + d, each + d))
        matrix[:each, :each] = blocks.permute(0, 2, 1, 3).reshape(each, each)
        reach = lifted.new_zeros((n_pieces, size, d))
        reach[:, feature, feature] = weights.lower - weights.upper
        matrix[:each, each:] = reach.reshape(each, d)
        matrix[each:, :each] = reach.reshape(each, d).T
        matrix[each:, each:] = (weights.upper + weights.lower).sum(0).diag()
        self._factor = _cholesky(matrix)

    @staticmethod
    def _hinge_blocks(method: InteriorPoint, stiff: Tensor) -> Tensor:
        """What hinges add to the equations, (K, K, d + 1, d + 1): each acts on three pieces."""
        geometry, hinges = method.geometry, method.hinges
        assert hinges.near is not None
        n, size = geometry.n_points, geometry.lifted.shape[1]
        blocks = geometry.lifted.new_zeros((geometry.n_pieces, geometry.n_pieces, size, size))
        for rows in chunks.blocks(len(stiff), size**2):
            part, far, near = stiff[rows], hinges.far[rows], hinges.near[rows]
            far_point, near_point = geometry.lifted[far % n], geometry.lifted[near % n]
            acts = (
                (geometry.cells[far % n], far_point),
                (geometry.cells[near % n], -near_point),
                (far // n, near_point - far_point),
            )
            for (row, left), (column, right) in product(acts, acts):
                outer = (part[:, None] * left)[:, :, None] * right[:, None, :]
                blocks.index_put_((row, column), outer, accumulate=True)
        return blocks

    def solve(self, pieces: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        right = torch.cat([pieces.reshape(-1), levels])
        solution = torch.cholesky_solve(right[:, None], self._factor)[:, 0]
        return solution[: pieces.numel()].reshape(pieces.shape), solution[pieces.numel() :]


def system_size(problem: BregmanLearning) -> int:
    """Unknowns of the Newton equations after elimination."""
    geometry = problem.geometry
    each = geometry.n_points if _eliminates(problem) else geometry.n_pieces * geometry.lifted.shape[1]
    return each + geometry.dimension


def working_elements(problem: BregmanLearning) -> int:
    """Numbers in the largest array of a step."""
    geometry = problem.geometry
    if _eliminates(problem):
        return geometry.n_points**2 * geometry.dimension
    return max(geometry.n_points, geometry.n_pieces**2) * geometry.lifted.shape[1] ** 2


def _eliminates(problem: BregmanLearning) -> bool:
    """Whether slopes are eliminated piece by piece: hinges on differences couple the slopes of several."""
    return problem.geometry.own_piece and not problem.supervision.coupled


def _system(method: InteriorPoint, weights: _Barrier, stiff: Tensor) -> _OwnPieceSystem | _CellSystem:
    """The Newton equations, with the stiffness (H,) of hinges."""
    if method.hinges.near is not None:
        return _CellSystem(method, weights, stiff)
    weights = replace(weights, pairs=weights.pairs + method.hinges.spread(stiff, weights.pairs))
    return (_OwnPieceSystem if _eliminates(method.problem) else _CellSystem)(method, weights)


def _cholesky(matrix: Tensor) -> Tensor:
    """Factor one matrix or a batch, with a ridge where rounding or a free common constant leaves no margin."""
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    for ridge in (1e-14, 1e-12, 1e-10, 1e-8):
        diagonal += ridge * diagonal.abs().amax(-1, keepdim=True)
        factor, info = torch.linalg.cholesky_ex(matrix)
        if not info.any():
            return factor
    raise FloatingPointError("the Newton equations are singular")
