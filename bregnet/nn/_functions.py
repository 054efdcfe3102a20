"""The functions that a learnable one is made of, its divergences in blocks, and how it starts."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet.divergences import Generator, MaxAffine
from bregnet.divergences.classical import _QuadraticForm


class Pieces(MaxAffine):
    """Max-affine, with a temperature that gradients reach."""

    def __init__(self, slopes: Tensor, intercepts: Tensor, temperature: Tensor) -> None:
        super().__init__(slopes, intercepts, temperature=temperature.detach())  # type: ignore[arg-type]
        if temperature.requires_grad:
            self.temperature = temperature  # type: ignore[assignment]


class SquaredLength(_QuadraticForm):
    """f(x) = |x W|^2."""

    def __init__(self, factor: Tensor) -> None:
        self._factor = arrays.parameter("factor", factor)
        self._n_features = len(factor)
        self._lives_with(self._factor, factor)

    def _times(self, x: Tensor) -> Tensor:
        return x * self._factor.square() if self._factor.ndim == 1 else x @ self._factor @ self._factor.T

    def _sizes(self, x: Tensor) -> Tensor:
        return x @ (self._factor @ self._factor.T).abs() if self._factor.ndim == 2 else self._times(x)


def recovered(function: Generator, x: Tensor, y: Tensor, block: Tensor, sizes: Tensor) -> Tensor:
    """The divergences of a block, those that rounding would spoil computed on their own."""
    with torch.no_grad():
        near = block <= 100 * torch.finfo(block.dtype).eps * sizes  # two digits are left, or fewer
        if not function._stable:  # a plain maximum: where nothing is left, nothing was lost
            near &= block > 0
        rows, columns = near.nonzero(as_tuple=True)
    if not len(rows):
        return block
    batches = zip(*(part.split(function._batch_size(x)) for part in (rows, columns)), strict=True)
    exact = torch.cat([function._paired(x[i], y[j]) for i, j in batches])
    return block.index_put((rows, columns), exact)


def drawing(random_state: int | np.random.RandomState | torch.Generator | None) -> torch.Generator | None:
    """What draws the first pieces; None is torch's own generator."""
    if isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(np.iinfo(np.int32).max))
    if random_state is None or isinstance(random_state, torch.Generator):
        return random_state
    return torch.Generator().manual_seed(check.integer_at_least("random_state", random_state, 0))


def precision(dtype: torch.dtype | None) -> torch.dtype:
    """A precision for parameters, torch's default for None."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    return dtype
