r"""Lower bounds of regression: dual points that are feasible whatever the solver did.

For multipliers :math:`\mu_{kj} \ge 0` of the constraints :math:`u_k \cdot \hat x_j \le u_{c(j)} \cdot \hat x_j` and
:math:`\theta_j` of the data term, piece m of set q (sign :math:`\sigma_q`) is stationary when

.. math:: \sum_j \mu_{mj} \hat x_j - \sum_{j \in m} (\sum_k \mu_{kj} + \sigma_q \theta_j) \hat x_j + (\nu_m, 0) = 0,

and :math:`\nu` is dual feasible when :math:`\sum_k |\nu_{kl}| \le \alpha_l` for every feature. ADMM meets the first
only in the limit: every piece is off by a little, the column sums of :math:`|\nu|` add up all the little errors, and
scaling them back below :math:`\alpha_l` costs most of the bound when alpha is small. So the multipliers are repaired
first: a weighted least-squares step on the pairs that carry a multiplier moves each piece back onto the :math:`\nu`
of the solver, which lies in its ball by construction. What no step can mend is closed exactly by the problem.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from bregnet.solver.pairs import PairOperator

REPAIR_STEPS = 10  # of conjugate gradients; 30 tighten bounds by little
BLOCK_MAX_DIMENSION = 40  # beyond, the preconditioner is diagonal
RIDGE = 1e-4  # of the mean diagonal: pieces with hardly any multiplier cannot be moved and must not blow up
LARGEST_GROWTH = 4.0  # of a multiplier in a repair


@dataclass(frozen=True)
class DualPoint:
    """Multipliers of working pairs, and of the data term.

    Attributes
    ----------
    pairs : Tensor of shape (Q, E), float64
        mu, at least 0.
    theta : Tensor of shape (n,), float64
    """

    pairs: Tensor
    theta: Tensor

    def mass(self, operator: PairOperator) -> Tensor:
        """The sum of the absolute values of all multipliers, before any cancel."""
        return self.theta.abs().sum() + 2 * operator.ranks.sum(self.pairs.sum())


def stationarity(operator: PairOperator, signs: tuple[int, ...], point: DualPoint) -> Tensor:
    """Minus nu: what the penalty's multipliers must make up for, (Q, K, d + 1), in (slope, intercept) coordinates.

    In double precision, from the points themselves: the bound rests on it.
    """
    geometry, out = operator.geometry, []
    for sign, values in zip(signs, point.pairs, strict=True):
        carrying = torch.nonzero(values).squeeze(1)
        pieces, points, flow = (part[carrying] for part in (operator.pieces, operator.points, values))
        arriving = torch.zeros_like(point.theta).index_add_(0, points, flow)
        moved = geometry.lifted.new_zeros((geometry.n_pieces, geometry.lifted.shape[1]))
        if moved.device.type == "cpu":
            from bregnet.solver import compiled  # numba is slow to import

            given = (part.numpy() for part in (pieces, points, flow, geometry.lifted, moved))
            compiled.pair_moments(*given)
        else:
            moved.index_add_(0, pieces, flow[:, None] * geometry.lifted[points])
        own = operator.ranks.sum(moved - geometry.own_moments(arriving))
        out.append(own - geometry.own_moments(sign * point.theta))
    return torch.stack(out)


def inverted(blocks: Tensor, dtype: torch.dtype) -> Tensor:
    """Inverses of positive definite matrices (..., m, m) to the precision of `dtype`, good enough to precondition."""
    scale = blocks.diagonal(dim1=-2, dim2=-1).rsqrt()
    outer = scale[..., :, None] * scale[..., None, :]
    scaled = (blocks * outer).to(dtype)
    scaled.diagonal(dim1=-2, dim2=-1).add_(10 * scaled.shape[-1] * torch.finfo(dtype).eps)  # rounding
    return torch.cholesky_inverse(torch.linalg.cholesky(scaled)) * outer.to(dtype)


class _Response:
    """How stationarity answers to multipliers that move along pieces, each in proportion to its own size."""

    def __init__(self, operator: PairOperator, signs: tuple[int, ...], point: DualPoint, flexibility: Tensor) -> None:
        self.operator, self.signs = operator, signs
        self.weights, self.flexibility = point.pairs.to(operator.dtype), flexibility.to(operator.dtype)
        geometry = operator.geometry
        if geometry.own_piece and geometry.dimension > BLOCK_MAX_DIMENSION:
            diagonal = torch.stack([operator.diagonal(mu) for mu in self.weights])
            diagonal[..., 0] += flexibility
        else:
            every = torch.arange(geometry.n_pieces, device=point.theta.device)
            blocks = torch.stack([operator.blocks(mu, every) for mu in self.weights])
            for each in blocks:
                operator.add_at_points(each, flexibility, every)
            diagonal = blocks.diagonal(dim1=-2, dim2=-1)
        self._ridge = float(RIDGE * diagonal.mean() + sys.float_info.min)
        diagonal += self._ridge
        by_blocks = geometry.dimension <= BLOCK_MAX_DIMENSION
        self._inverse = inverted(blocks, operator.dtype) if by_blocks else (1 / diagonal).to(operator.dtype)

    def theta(self, pieces: Tensor) -> Tensor:
        """The change of theta, (n,)."""
        fitted = [sign * self.operator.fitted(u) for sign, u in zip(self.signs, pieces, strict=True)]
        return self.flexibility * torch.stack(fitted).sum(0)

    def __call__(self, pieces: Tensor) -> Tensor:
        """The change of stationarity, in (value, slope) coordinates, (Q, K, d + 1)."""
        theta = self.theta(pieces)
        each = zip(self.signs, pieces, self.weights, strict=True)
        moved = [self.operator.normal(u, mu) + self.operator.from_points(s * theta) for s, u, mu in each]
        return torch.stack(moved) + self._ridge * pieces

    def precondition(self, residual: Tensor) -> Tensor:
        """The residual (Q, K, d + 1) divided by the diagonal blocks, or by the diagonal."""
        if self._inverse.shape == residual.shape:
            return residual * self._inverse
        each = zip(self._inverse, residual, strict=True)
        return torch.stack([self.operator.precondition(inverse, r) for inverse, r in each])


def repair(
    operator: PairOperator, signs: tuple[int, ...], point: DualPoint, nu: Tensor, flexibility: Tensor
) -> DualPoint:
    """Move multipliers so that the penalty's multipliers become `nu` (Q, K, d), by conjugate gradients."""
    found = stationarity(operator, signs, point)
    slopes = found[..., :-1] - found[..., -1:] * operator.centers + nu
    residual = torch.cat([found[..., -1:], slopes], dim=-1).to(operator.dtype)
    response = _Response(operator, signs, point, flexibility)
    pieces = torch.zeros_like(residual)
    direction = scaled = response.precondition(residual)
    energy = (residual * scaled).sum()
    for _ in range(REPAIR_STEPS):
        change = response(direction)
        length = energy / (direction * change).sum().clamp_min(sys.float_info.min)
        pieces = pieces + length * direction
        residual = residual - length * change
        scaled = response.precondition(residual)
        previous, energy = energy, (residual * scaled).sum()
        direction = scaled + (energy / previous.clamp_min(sys.float_info.min)) * direction
    growth = torch.stack([1 + operator.slacks(u) for u in pieces]).double().clamp_(0, LARGEST_GROWTH)
    return DualPoint(growth * point.pairs, point.theta + response.theta(pieces).double())
