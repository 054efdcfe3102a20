"""The penalty: alpha * sum_l max_k |a_kl|, with optional signs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_SWEEPS = 60  # of the search for a height; it ends after a few
ROUNDING = 2e-14  # of the mass: error of a sum of products in double precision


def clip_heights(values: Tensor, level: Tensor, heights: Tensor | None = None) -> Tensor:
    """For each column of values (..., K, d) the h with sum_k max(|v_k| - h, 0) = level_l (algorithm 1, L-update).

    It is 0 where the whole sum is less. Clipping at h is the prox of ``level_l * max_k |.|``; what is clipped away
    is the projection on the l1 ball. The sum is convex in h and falls, so Newton's method finds it in a few sweeps
    from below, and its first step from above ends below.

    Parameters
    ----------
    values : Tensor of shape (..., K, d)
    level : Tensor of shape (d,)
    heights : Tensor of shape (..., d), float64, or None
        Where to start: heights of values that were much the same.
    """
    found = torch.zeros_like(values[..., 0, :], dtype=torch.float64) if heights is None else heights
    for _ in range(MOST_SWEEPS):
        above, count = _sums_above(values, found)
        after = (above - level).clamp_min(0) / count.clamp_min(1)
        if torch.allclose(after, found, rtol=1e-15, atol=0):
            break
        found = after
    return found


def _sums_above(values: Tensor, heights: Tensor) -> tuple[Tensor, Tensor]:
    """Sum and number of the absolute entries of each column above its height, (..., d) each."""
    if values.device.type != "cpu":
        size = values.abs()
        over = size > heights.unsqueeze(-2)
        return (size * over).sum(-2, dtype=torch.float64), over.sum(-2, dtype=torch.float64)
    from bregnet.solver import compiled  # numba is slow to import

    above, count = torch.empty_like(heights), torch.empty_like(heights)
    shape = (-1, *values.shape[-2:])
    sets = zip(
        values.contiguous().view(shape).numpy(),
        *(part.view(-1, shape[-1]).numpy() for part in (heights, above, count)),
        strict=True,
    )
    for given in sets:
        compiled.height_sums(*given)
    return above, count


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

    def prox(self, slopes: Tensor, scale: Tensor | float, heights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Prox of the penalty divided by `scale`, on slopes (..., K, d), and the heights (..., d) it clips at.

        ``_clip_slopes`` in :mod:`bregnet.solver.compiled_steps` is the same for working pairs on a CPU.
        The scale is one number, or one for each feature. `heights` of a call before this one save time.
        """
        slopes = self._feasible(slopes)
        found = clip_heights(slopes, self.level / scale, heights)
        ends = found.to(slopes.dtype).unsqueeze(-2)
        return slopes.clamp(-ends, ends), found

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
