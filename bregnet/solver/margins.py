"""How slacks follow from the state: the prox of a loss on every slack, s = prox(-w)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

MARGIN = 2.0  # the slack above which nothing pushes any more
TRIPLET_MARGIN = 1.0  # the difference of two slacks above which a triplet is content


def slack_prox(state: Tensor, pull: Tensor | float, push: Tensor | float) -> Tensor:
    """Prox of ``pull * s + push * max(0, MARGIN - s)`` over s >= 0 at -w, with weights in units of rho."""
    start = -state - pull
    return torch.maximum(start, (start + push).clamp_max(MARGIN)).clamp_min(0)


@dataclass(frozen=True)
class Hinges:
    """sum_h weight_h max(0, margin - e_h), where e_h is a slack or the difference of two."""

    weights: Tensor  # (H,)
    far: Tensor  # number of the slack that should be large, counted row by row through the (K, n) of them, (H,)
    near: Tensor | None  # number of the slack that is subtracted, (H,)
    margin: float

    def values(self, slacks: Tensor) -> Tensor:
        """e_h for slacks (K, n)."""
        flat = slacks.reshape(-1)
        return flat[self.far] if self.near is None else flat[self.far] - flat[self.near]

    def spread(self, values: Tensor, slacks: Tensor) -> Tensor:
        """The adjoint: values (H,) added up at the slacks, (K, n)."""
        flat = torch.zeros_like(slacks).reshape(-1).index_add_(0, self.far, values)
        if self.near is not None:
            flat.index_add_(0, self.near, -values)
        return flat.reshape(slacks.shape)


@dataclass(frozen=True)
class Margins:
    """Weights P and M of the loss P s + M max(0, MARGIN - s) on every slack.

    They depend on the piece and on the group a point is in, so nothing of the state's size is stored. Points are in
    the order of their groups.

    Parameters
    ----------
    pull : Tensor of shape (K, G)
        P, what draws a slack towards 0.
    push : Tensor of shape (K, G)
        M, what draws it up to the margin.
    sizes : Tensor of shape (G,), int64
        Points in each group.
    """

    pull: Tensor
    push: Tensor
    sizes: Tensor

    @cached_property
    def bounds(self) -> Tensor:
        """First point of each group, and the number of points, (G + 1,)."""
        return torch.cat([self.sizes.new_zeros(1), self.sizes.cumsum(0)])

    @cached_property
    def groups(self) -> Tensor:
        """The group of each point, (n,)."""
        return torch.repeat_interleave(torch.arange(len(self.sizes), device=self.sizes.device), self.sizes)

    def at(self, rows: slice) -> tuple[Tensor, Tensor]:
        """P and M of some pieces at every point, (rows, n) each."""
        return self.pull[rows][:, self.groups], self.push[rows][:, self.groups]

    def scaled(self, rho: float, dtype: torch.dtype) -> Margins:
        """The weights in units of `rho`."""
        return Margins((self.pull / rho).to(dtype), (self.push / rho).to(dtype), self.sizes)
