"""The penalty: alpha * sum_l max_k |a_kl|, with optional signs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDING = 2e-14  # of the mass: error of a sum of products in double precision


def shrink_columns(values: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """Prox of ``level_l * max_k |.|`` on every column (algorithm 1, L-update).

    The prox clips each column at the height L_l above which the column's mass is ``level_l``. One sort of the
    column finds it; on the CPU a few compiled sweeps do. What is clipped away is the projection on the l1 ball.

    Parameters
    ----------
    values : Tensor of shape (..., K, d)
    level : Tensor of shape (d,)

    Returns
    -------
    clipped : Tensor of shape (..., K, d)
    height : Tensor of shape (..., d)
        The clipping heights L_l.
    """
    shrink = _shrink_by_sweeps if values.device.type == "cpu" else _shrink_by_sorting
    return shrink(values, level)


def _shrink_by_sorting(values: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    ordered = values.transpose(-1, -2).abs().sort(dim=-1).values  # (..., d, K)
    n_above = torch.arange(ordered.shape[-1], 0, -1, device=values.device, dtype=values.dtype)
    above = ordered.sum(-1, keepdim=True) - ordered.cumsum(-1) + ordered  # sum of this entry and all larger ones
    # at the true height every such sum is at most the level: the largest of these candidates is the height
    height = ((above - level[:, None]) / n_above).amax(-1).clamp_min_(0)
    clipped = values.clamp(-height.unsqueeze(-2), height.unsqueeze(-2))
    return clipped, height


def _shrink_by_sweeps(values: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    from bregnet.solver import compiled  # numba is slow to import

    clipped, height = torch.empty_like(values), values.new_empty((*values.shape[:-2], values.shape[-1]))
    shape = values.shape[-2:]
    sets = (values.contiguous().numpy().reshape(-1, *shape), clipped.numpy().reshape(-1, *shape))
    for matrix, out, top in zip(*sets, height.numpy().reshape(-1, shape[1]), strict=True):
        compiled.clip_columns(matrix, level.numpy(), out, top)
    return clipped, height


def rounding_of(mass: Tensor, largest: Tensor) -> Tensor:
    """Error, at most, of a sum of multipliers that add up to `mass` times entries up to `largest`."""
    return ROUNDING * mass * largest


@dataclass(frozen=True)
class Penalty:
    """alpha_l * max_k |a_kl| summed over features, and the signs that slopes must keep.

    Parameters
    ----------
    level : Tensor of shape (d,)
        alpha_l, one per feature.
    signs : Tensor of shape (d,) or None
        +1 or -1 where slopes must not be negative or positive, 0 where they are free.
    """

    level: Tensor
    signs: Tensor | None = None

    def _feasible(self, slopes: Tensor) -> Tensor:
        if self.signs is None:
            return slopes
        return torch.where(self.signs * slopes < 0, torch.zeros_like(slopes), slopes)

    def prox(self, slopes: Tensor, scale: float) -> Tensor:
        """Prox of the penalty divided by `scale`, on slopes (..., K, d)."""
        return shrink_columns(self._feasible(slopes), self.level / scale)[0]

    def feasible(self, pieces: Tensor, points: Tensor) -> Tensor:
        """Pieces (K, d + 1) with wrong-signed slopes set to 0, turned about each piece's own point."""
        if self.signs is None:
            return pieces
        slopes = self._feasible(pieces[:, :-1])
        turn = ((pieces[:, :-1] - slopes) * points).sum(1, keepdim=True)
        return torch.cat([slopes, pieces[:, -1:] + turn], dim=1)

    def value(self, slopes: Tensor) -> Tensor:
        """sum_l alpha_l max_k |a_kl| for slopes (..., K, d)."""
        return (slopes.abs().amax(-2) * self.level).sum(-1)

    def dual_norm(self, multipliers: Tensor, rounding: Tensor | float = 0.0) -> Tensor:
        """Largest ratio of a column's l1 norm, known up to `rounding`, to its level: at most 1 is dual feasible.

        With a sign constraint only the part that pulls a slope against the penalty counts.
        """
        if self.signs is not None:
            wrong = self.signs * multipliers < 0
            multipliers = torch.where(wrong, torch.zeros_like(multipliers), multipliers)
        return ((multipliers.abs().sum(-2) + rounding) / self.level).amax()
