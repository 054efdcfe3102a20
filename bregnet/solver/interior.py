r"""The second stage: a primal-dual interior-point method for gaps that ADMM closes slowly.

It keeps all constraints, so it needs a handful of matrices of the state's size in double precision, and one that is
larger by the number of features; it is only for problems where those are small. Slopes are eliminated piece by piece
when every point has its own piece, which leaves one linear system of the size of the points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from bregnet.solver.geometry import Geometry
from bregnet.solver.margins import Hinges
from bregnet.solver.penalty import Penalty

STEP_BACK = 0.98  # how much of the way to the boundary is gone
START_COMPLEMENTARITY = 20.0  # sum of slacks times multipliers at the start, in units of the objective
HINGE_ELEMENTS = 1 << 22  # numbers in a block of outer products
START_MARGIN, HINGED_START_MARGIN = 0.5, 0.05  # of the mean slack, added to every slack at the start


@runtime_checkable
class Interior(Protocol):
    """A problem with a weighted sum of squares of the signed sum of fitted values, and a hinge loss on the slacks."""

    geometry: Geometry
    penalty: Penalty
    signs: tuple[int, ...]
    targets: Tensor

    @property
    def curvature(self) -> Tensor:
        """Second derivative of the loss in each fitted value, (n,)."""

    def slack_loss(self) -> tuple[Tensor, Hinges] | None:
        """Weights P (K, n) of the slacks, and hinges on them; None where slacks cost nothing."""

    def primal(self, pieces: Tensor) -> tuple[float, Tensor]:
        """Value of the functions these pieces define, and the pieces after cheap improvements."""

    def dense_bound(self, multipliers: Tensor, theta: Tensor, hinges: Tensor) -> float:
        """Bound from multipliers mu (Q, K, n) of the constraints, theta (n,) of the data term and (H,) of hinges."""


@dataclass
class _Barrier:
    """Slacks and multipliers of all inequalities.

    Attributes
    ----------
    pairs : Tensor of shape (Q, K, n)
        s >= 0.
    upper, lower : Tensor of shape (Q, K, d)
        Both ends of |a_kl| <= L_l.
    short, over : Tensor of shape (H,)
        z >= 0 and z + e - margin >= 0: what a hinge is short of its margin.
    """

    pairs: Tensor
    upper: Tensor
    lower: Tensor
    short: Tensor
    over: Tensor

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.pairs, self.upper, self.lower, self.short, self.over))

    def map(self, other: _Barrier, combine: Callable[[Tensor, Tensor], Tensor]) -> _Barrier:
        return _Barrier(*(combine(a, b) for a, b in zip(self, other, strict=True)))


class InteriorPoint:
    """One run of the method.

    Parameters
    ----------
    problem : Interior
    pieces : Tensor of shape (Q, K, d + 1)
        Where to start; need not be feasible.
    """

    def __init__(self, problem: Interior, pieces: Tensor) -> None:
        self.problem, self.geometry = problem, problem.geometry
        lifted, geometry = problem.geometry.lifted, problem.geometry
        signs = problem.penalty.signs
        free = torch.zeros_like(problem.penalty.level) if signs is None else signs
        # where a sign is forced, the end that the sign excludes is 0 instead of L
        self._reach_upper = (free >= 0).to(lifted.dtype)
        self._reach_lower = (free <= 0).to(lifted.dtype)
        own = torch.zeros((geometry.n_pieces, geometry.n_points), dtype=torch.bool, device=lifted.device)
        own[geometry.cells, torch.arange(geometry.n_points, device=lifted.device)] = True
        self._own = own
        loss = problem.slack_loss()
        self._pull = lifted.new_zeros(()) if loss is None else loss[0].masked_fill(own, 0)
        self.hinges = None if loss is None else loss[1]
        self._push = lifted.new_zeros(0) if loss is None else loss[1].weights
        self._signs = torch.tensor(problem.signs, dtype=lifted.dtype, device=lifted.device)
        self.pieces = pieces.clone()
        self._count = len(problem.signs) * int((~own).sum()) + 2 * pieces[..., :-1].numel() + 2 * len(self._push)
        mean = lifted.new_tensor(START_COMPLEMENTARITY * problem.primal(pieces)[0] / self._count)
        self.levels = self._centred_levels(mean)
        self._start_slacks(mean)
        self.multipliers = _Barrier(*(mean / s for s in self.slacks))
        self.multipliers.pairs[:, own] = 0
        self.multipliers.short, self.multipliers.over = self._push / 2, self._push / 2

    def _hinged(self, pairs: Tensor) -> Tensor:
        """e, what hinges act on, for slacks or changes of them; a piece has no slack at its own points, (H,)."""
        return self._push if self.hinges is None else self.hinges.values(pairs[0].masked_fill(self._own, 0))

    def _start_slacks(self, mean: Tensor) -> None:
        """Slacks clear of the boundary by a common margin; they grow true as steps are taken."""
        self.slacks = self._slacks(self.pieces, self.levels)
        pairs = self.slacks.pairs
        margin = START_MARGIN if self.hinges is None else HINGED_START_MARGIN
        self.slacks.pairs = pairs.clamp_min(0) + margin * pairs.abs().mean()
        for ends, reach in ((self.slacks.upper, self._reach_upper), (self.slacks.lower, self._reach_lower)):
            ends.clamp_min_((1 - reach) * START_MARGIN * ends.abs().mean())  # a forced end may start at 0
        self.slacks.pairs[:, self._own] = 1
        room = 2 * mean / self._push
        short = self._margin - self._hinged(self.slacks.pairs)
        self.slacks.short = short.clamp_min(0) + room
        self.slacks.over = self.slacks.short - short + room

    @property
    def _margin(self) -> float:
        return 0.0 if self.hinges is None else self.hinges.margin

    def _centred_levels(self, mean: Tensor) -> Tensor:
        """Levels L whose multipliers, mean / slack, add up to alpha: found by halving an interval."""
        slopes, alpha = self.pieces[..., :-1], self.problem.penalty.level
        largest = slopes.abs().amax(-2)
        low, high = torch.zeros_like(largest), 2 * len(slopes[0]) * mean / alpha + torch.zeros_like(largest)
        for _ in range(50):
            middle = (low + high) / 2
            level = (largest + middle)[:, None]
            total = (self._reach_upper * mean / (level - slopes) + self._reach_lower * mean / (level + slopes)).sum(1)
            low, high = torch.where(total > alpha, middle, low), torch.where(total > alpha, high, middle)
        return largest + high

    def _fitted(self, pieces: Tensor) -> Tensor:
        values = torch.stack([self.geometry.fitted(u) for u in pieces])
        return (self._signs[:, None] * values).sum(0)

    def _excess(self, pieces: Tensor) -> Tensor:
        """r_kj = u_k.xh_j - u_c(j).xh_j, (Q, K, n)."""
        return torch.stack([u @ self.geometry.lifted.T - self.geometry.fitted(u) for u in pieces])

    def _slacks(self, pieces: Tensor, levels: Tensor) -> _Barrier:
        """Slacks of pieces and levels; those of the margins are kept apart."""
        slopes = pieces[..., :-1]
        pairs = -self._excess(pieces)
        pairs[:, self._own] = 1  # these constraints are identities; their multipliers stay 0
        reach = levels[:, None]
        none = torch.zeros_like(self._push)
        return _Barrier(pairs, self._reach_upper * reach - slopes, self._reach_lower * reach + slopes, none, none)

    def _theta(self) -> Tensor:
        """Minus the derivative of the loss in each fitted value, (n,)."""
        return self.problem.curvature * (self.problem.targets - self._fitted(self.pieces))

    def _balance(self, pairs: Tensor) -> Tensor:
        """For values (Q, K, n) on pairs, what each piece is left with, (Q, K, d + 1)."""
        lifted = self.geometry.lifted
        rows = [flow @ lifted - self.geometry.cell_sum(flow.sum(0)[:, None] * lifted) for flow in pairs]
        return torch.stack(rows)

    def _adjoint(self, pairs: Tensor, upper: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient of the sum of these values times their constraints, in pieces and levels."""
        pieces = self._balance(pairs)
        pieces[..., :-1] += upper - lower
        return pieces, -(self._reach_upper * upper + self._reach_lower * lower).sum(1)

    def certify(self) -> tuple[float, Tensor, float]:
        """Objective and pieces of the current function, and a certified bound."""
        objective, pieces = self.problem.primal(self.pieces)
        multipliers = self._with_hinges(self.multipliers.pairs, self.multipliers.over)
        return objective, pieces, self.problem.dense_bound(multipliers, self._theta(), self.multipliers.over)

    def _with_hinges(self, pairs: Tensor, hinges: Tensor) -> Tensor:
        """What the constraints of pairs add up to: their own values, those of hinges, and the pull."""
        if self.hinges is None:
            return pairs
        return pairs + self.hinges.spread(hinges, pairs[0]).masked_fill(self._own, 0) - self._pull

    def step(self) -> None:
        """A predictor-corrector step (Mehrotra)."""
        slack, mult = self.slacks, self.multipliers
        missing = slack.map(self._slacks(self.pieces, self.levels), torch.sub)
        missing.short = torch.zeros_like(slack.short)
        missing.over = slack.over - (slack.short + self._hinged(slack.pairs) - self._margin)
        weights = mult.map(slack, torch.div)
        weights.pairs[:, self._own] = 0
        # z takes up a part of its hinge's constraint; the rest bears on the slacks
        share = weights.short / (weights.short + weights.over)
        stiff = share * weights.over
        system = _system(self, weights, stiff)
        pull_of_data = self.geometry.cell_sum(self._theta()[:, None] * self.geometry.lifted)
        loss = -self._signs[:, None, None] * pull_of_data
        level_gradient = self.problem.penalty.level.expand_as(self.levels)
        total = torch.stack([(s * m).sum() for s, m in zip(slack, mult, strict=True)]).sum()

        def direction(aim: _Barrier) -> tuple[Tensor, Tensor, _Barrier, _Barrier]:
            goal = aim.map(slack, torch.div)
            goal.pairs[:, self._own] = 0
            pull = _Barrier(*(g + w * r for g, w, r in zip(goal, weights, missing, strict=True)))
            given = share * goal.over - (1 - share) * (goal.short - self._push)
            hinges = given + stiff * (missing.over + self._hinged(missing.pairs))
            pieces, levels = self._adjoint(self._with_hinges(pull.pairs, hinges), pull.upper, pull.lower)
            step_pieces, step_levels = system.solve(-(loss + pieces), -(level_gradient + levels))
            moved = self._slacks(step_pieces, step_levels).map(missing, torch.sub)
            moved.pairs[:, self._own] = 0
            raised = self._hinged(moved.pairs) - missing.over
            wanting = goal.short + goal.over - self._push - weights.over * raised
            moved.short = wanting / (weights.short + weights.over)
            moved.over = moved.short + raised
            change = _Barrier(*(g - m - w * d for g, m, w, d in zip(goal, mult, weights, moved, strict=True)))
            return step_pieces, step_levels, moved, change

        zero = _Barrier(*(torch.zeros((), dtype=total.dtype, device=total.device).expand_as(s) for s in slack))
        _, _, moved, change = direction(zero)
        length = _longest(slack, moved, mult, change)
        after = sum(
            ((s + length * ds) * (m + length * dm)).sum()
            for s, ds, m, dm in zip(slack, moved, mult, change, strict=True)
        )
        centre = (after / total) ** 3 * total / self._count
        aim = moved.map(change, lambda ds, dm: centre - ds * dm)
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
    """Newton equations when every point has its own piece, in values z_k at the points and slopes a_k.

    r_kj = z_k - z_j + a_k.(x_j - x_k): the slopes of a piece meet only its own constraints and are eliminated.
    """

    def __init__(self, method: InteriorPoint, weights: _Barrier) -> None:
        geometry = method.geometry
        points = geometry.points
        n, d = points.shape
        n_sets = len(weights.pairs)
        self._points = points
        outer = (points[:, :, None] * points[:, None, :]).reshape(n, -1)
        size = n_sets * (n + d)
        matrix = points.new_zeros((size, size))
        self._slopes, self._cross, self._levels = [], [], []
        for q, (pair, upper, lower) in enumerate(zip(weights.pairs, weights.upper, weights.lower, strict=True)):
            total = pair.sum(1)
            mean = pair @ points
            # sum_j d_kj (x_j - x_k)(x_j - x_k)'
            block = (pair @ outer).reshape(n, d, d) - mean[:, :, None] * points[:, None, :]
            block += -points[:, :, None] * mean[:, None, :] + total[:, None, None] * outer.reshape(n, d, d)
            block += (upper + lower).diag_embed()
            factor = _cholesky(block)
            reach = method._reach_lower * lower - method._reach_upper * upper
            levels = torch.linalg.solve_triangular(factor, reach.diag_embed(), upper=False)  # (n, d, d)
            cross = self._values_block(pair, total, mean, factor)  # (n d, n)
            z, level = slice(q * n, (q + 1) * n), slice(n_sets * n + q * d, n_sets * n + (q + 1) * d)
            own = (total + pair.sum(0)).diag() - pair - pair.T
            matrix[z, z] = own - cross.T @ cross
            flat = levels.reshape(n * d, d)
            matrix[z, level] = -(cross.T @ flat)
            matrix[level, z] = matrix[z, level].T
            ends = (method._reach_upper * upper + method._reach_lower * lower).sum(0).diag()
            matrix[level, level] = ends - flat.T @ flat
            self._slopes.append(factor)
            self._cross.append(cross)
            self._levels.append(flat)
        signs = method._signs
        curvature = method.problem.curvature.diag()
        for q in range(n_sets):
            for p in range(n_sets):
                matrix[q * n : (q + 1) * n, p * n : (p + 1) * n] += signs[q] * signs[p] * curvature
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
        values = pieces[..., -1]
        slopes = pieces[..., :-1] - values[..., None] * self._points  # gradient in a with z held
        reduced, heads, tails = [], [], []
        for q in range(len(pieces)):
            part = torch.linalg.solve_triangular(self._slopes[q], slopes[q][..., None], upper=False).reshape(-1)
            reduced.append(part)
            heads.append(values[q] - self._cross[q].T @ part)
            tails.append(levels[q] - self._levels[q].T @ part)
        solution = torch.cholesky_solve(torch.cat(heads + tails)[:, None], self._factor)[:, 0]
        z = solution[: len(pieces) * n].reshape(len(pieces), n)
        level = solution[len(pieces) * n :].reshape(len(pieces), d)
        out = []
        for q in range(len(pieces)):
            part = reduced[q] - self._cross[q] @ z[q] - self._levels[q] @ level[q]
            back = torch.linalg.solve_triangular(self._slopes[q].mT, part.reshape(n, d, 1), upper=True)[..., 0]
            out.append(torch.cat([back, (z[q] - (back * self._points).sum(1))[:, None]], dim=1))
        return torch.stack(out), level


class _CellSystem:
    """Newton equations in all pieces at once, for few pieces, or where hinges couple the slopes of several."""

    def __init__(self, method: InteriorPoint, weights: _Barrier, stiff: Tensor | None = None) -> None:
        geometry = method.geometry
        lifted, n_pieces = geometry.lifted, geometry.n_pieces
        size, d = lifted.shape[1], geometry.dimension
        n_sets = len(weights.pairs)
        outer = lifted[:, :, None] * lifted[:, None, :]
        each = n_pieces * size
        matrix = lifted.new_zeros((n_sets * (each + d), n_sets * (each + d)))
        index = torch.arange(n_pieces, device=lifted.device)
        feature = torch.arange(d, device=lifted.device)
        for q, (pair, upper, lower) in enumerate(zip(weights.pairs, weights.upper, weights.lower, strict=True)):
            blocks = lifted.new_zeros((n_pieces, n_pieces, size, size))
            for k in range(n_pieces):
                blocks[k] -= geometry.cell_sum(pair[k][:, None, None] * outer)  # piece k against every cell
            blocks += blocks.permute(1, 0, 2, 3).clone()
            blocks[index, index] += (pair @ outer.reshape(len(lifted), -1)).reshape(n_pieces, size, size)
            blocks[index, index] += geometry.cell_sum(pair.sum(0)[:, None, None] * outer)
            blocks[:, :, feature, feature] += (
                torch.eye(n_pieces, dtype=lifted.dtype, device=lifted.device)[:, :, None] * (upper + lower)[:, None, :]
            )
            rows = slice(q * each, (q + 1) * each)
            matrix[rows, rows] = blocks.permute(0, 2, 1, 3).reshape(each, each)
            reach = lifted.new_zeros((n_pieces, size, d))
            reach[:, feature, feature] = method._reach_lower * lower - method._reach_upper * upper
            level = slice(n_sets * each + q * d, n_sets * each + (q + 1) * d)
            matrix[rows, level] = reach.reshape(each, d)
            matrix[level, rows] = reach.reshape(each, d).T
            matrix[level, level] = (method._reach_upper * upper + method._reach_lower * lower).sum(0).diag()
        data = torch.block_diag(*geometry.cell_sum(method.problem.curvature[:, None, None] * outer))
        for q in range(n_sets):
            for p in range(n_sets):
                part = method._signs[q] * method._signs[p] * data
                matrix[q * each : (q + 1) * each, p * each : (p + 1) * each] += part
        if stiff is not None:
            blocks = self._hinge_blocks(method, stiff)
            matrix[:each, :each] += blocks.permute(0, 2, 1, 3).reshape(each, each)
        self._factor = _cholesky(matrix)

    @staticmethod
    def _hinge_blocks(method: InteriorPoint, stiff: Tensor) -> Tensor:
        """What hinges add to the equations, (K, K, d + 1, d + 1): each acts on three pieces."""
        geometry, hinges = method.geometry, method.hinges
        assert hinges is not None
        assert hinges.lowered is not None
        n, size = geometry.n_points, geometry.lifted.shape[1]
        blocks = geometry.lifted.new_zeros((geometry.n_pieces, geometry.n_pieces, size, size))
        step = max(1, HINGE_ELEMENTS // size**2)
        for part, raised, lowered in zip(
            stiff.split(step), hinges.raised.split(step), hinges.lowered.split(step), strict=True
        ):
            far, near = geometry.lifted[raised % n], geometry.lifted[lowered % n]
            acts = (
                (geometry.cells[raised % n], far),
                (geometry.cells[lowered % n], -near),
                (raised // n, near - far),
            )
            for (row, left), (column, right) in product(acts, acts):
                outer = (part[:, None] * left)[:, :, None] * right[:, None, :]
                blocks.index_put_((row, column), outer, accumulate=True)
        return blocks

    def solve(self, pieces: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        right = torch.cat([pieces.reshape(-1), levels.reshape(-1)])
        solution = torch.cholesky_solve(right[:, None], self._factor)[:, 0]
        return solution[: pieces.numel()].reshape(pieces.shape), solution[pieces.numel() :].reshape(levels.shape)


def system_size(geometry: Geometry, n_sets: int, coupled: bool = False) -> int:
    """Unknowns of the Newton equations after elimination; `coupled`: hinges couple the slopes of several pieces."""
    eliminates = geometry.own_piece and not coupled
    each = geometry.n_points if eliminates else geometry.n_pieces * geometry.lifted.shape[1]
    return n_sets * (each + geometry.dimension)


def working_elements(geometry: Geometry, n_sets: int, coupled: bool = False) -> int:
    """Numbers in the largest array of a step."""
    if geometry.own_piece and not coupled:
        return n_sets * geometry.n_points**2 * geometry.dimension
    return max(geometry.n_points, geometry.n_pieces**2) * geometry.lifted.shape[1] ** 2


def _system(method: InteriorPoint, weights: _Barrier, stiff: Tensor) -> _OwnPieceSystem | _CellSystem:
    """The Newton equations, with the stiffness (H,) of hinges."""
    hinges = method.hinges
    if hinges is None or hinges.lowered is None:
        if hinges is not None:
            weights = replace(weights, pairs=weights.pairs + hinges.spread(stiff, weights.pairs[0]))
        return (_OwnPieceSystem if method.geometry.own_piece else _CellSystem)(method, weights)
    return _CellSystem(method, weights, stiff)


def _cholesky(matrix: Tensor) -> Tensor:
    """Factor one matrix or a batch, with a ridge where rounding or a free common constant leaves no margin."""
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    for ridge in (1e-14, 1e-12, 1e-10, 1e-8):
        diagonal += ridge * diagonal.abs().amax(-1, keepdim=True)
        factor, info = torch.linalg.cholesky_ex(matrix)
        if not info.any():
            return factor
    raise FloatingPointError("the Newton equations are singular")
