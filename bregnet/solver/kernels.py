"""Passes over the state matrix: the only code whose cost grows with n x K.

Two kernels behind one interface: :class:`FusedKernel` (numba, CPU) and :class:`TiledKernel` (torch, any device).
Rare passes (norms, rescaling, collecting the active pairs) are shared and work tile by tile, so that no second
matrix of the state's size ever exists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from bregnet._core.chunks import blocks, cache
from bregnet.solver.admm import single_threaded_torch
from bregnet.solver.geometry import Geometry
from bregnet.solver.margins import Margins, slack_prox
from bregnet.solver.threads import Threads

FUSED_MAX_DIMENSION = 64  # beyond, matrix products win over the fused loop
SINGLE_THREAD_WORK = 12_000_000  # entries times features below which handing work to a thread costs more than it saves


class Moments(NamedTuple):
    """Sums over W = w + 2 s that block 1 needs."""

    products: Tensor  # sum_j W_kj xh_j, (K, d + 1), float64
    column_sums: Tensor  # sum_k W_kj, (n,), float64


class Kernel(ABC):
    """One pass over the state matrix w (K, n) of a piece set; s = prox(-w) and W = w + 2 s.

    Parameters
    ----------
    geometry : Geometry
    dtype : torch.dtype
        Of the state.
    margins : Margins or None
        The loss on the slacks; without one they are merely non-negative, s = max(-w, 0) and W = |w|.
    """

    def __init__(self, geometry: Geometry, dtype: torch.dtype, margins: Margins | None = None) -> None:
        self._geometry = geometry
        self.dtype = dtype
        self._device = geometry.lifted.device
        self._margins = margins
        self.start(1.0)

    def start(self, rho: float) -> None:
        """Use the step size `rho`."""
        self.rho = rho
        self._scaled = None if self._margins is None else self._margins.scaled(rho, self.dtype)

    def new_state(self) -> Tensor:
        """A zero state, one row a piece."""
        shape = (self._geometry.n_pieces, self._geometry.n_points)
        return torch.zeros(shape, dtype=self.dtype, device=self._device)

    def session(self) -> AbstractContextManager[None]:
        """What must hold while iterations run."""
        return nullcontext()

    @abstractmethod
    def advance(self, state: Tensor, pieces: Tensor, fitted: Tensor, relaxation: float) -> Moments:
        """Add g (r + s) to w in place; returns the moments of the new state."""

    def _slack(self, tile: Tensor, rows: slice) -> Tensor:
        """Slacks s of some rows of the state."""
        if self._scaled is None:
            return (-tile).clamp_min_(0)
        return slack_prox(tile, *self._scaled.at(rows))

    def moments(self, state: Tensor) -> Moments:
        """The moments of a state as it is: a step of length 0, so that they are the same to the last bit."""
        shape = self._geometry.n_pieces, self._geometry.dimension + 1
        nothing = torch.zeros(shape, dtype=torch.float64, device=self._device)
        return self.advance(state, nothing, torch.zeros_like(self._geometry.weights), 0.0)

    def rescale(self, state: Tensor, rho: float) -> None:
        """Change the step size, keeping slacks and multipliers: w <- ratio (w + s) - s, in place."""
        ratio = self.rho / rho
        for rows in self._tiles(state):
            tile = state[rows]
            slack = self._slack(tile, rows)
            tile.copy_(ratio * (tile + slack) - slack)
        self.start(rho)

    def multipliers(self, state: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """mu = rho (w + s), some rows after the other, in double precision."""
        exact = None if self._margins is None else self._margins.scaled(self.rho, torch.float64)
        for rows in self._tiles(state):
            tile = state[rows].double()
            slack = (-tile).clamp_min_(0) if exact is None else slack_prox(tile, *exact.at(rows))
            yield rows, (tile + slack).mul_(self.rho)

    def _tiles(self, state: Tensor) -> Iterator[slice]:
        return blocks(*state.shape, budget=cache(self._device))


class TiledKernel(Kernel):
    """Torch matrix products on tiles of pieces, for any device and for many features."""

    def __init__(self, geometry: Geometry, dtype: torch.dtype, margins: Margins | None = None) -> None:
        super().__init__(geometry, dtype, margins)
        self._lifted = geometry.lifted.to(dtype)

    def advance(self, state: Tensor, pieces: Tensor, fitted: Tensor, relaxation: float) -> Moments:
        """One tile of pieces after the other."""
        pieces, fitted = pieces.to(self.dtype), fitted.to(self.dtype)
        products = torch.empty_like(pieces)
        column_sums = torch.zeros_like(fitted)
        for rows in self._tiles(state):
            tile = state[rows]
            step = torch.addmm(fitted, pieces[rows], self._lifted.T, beta=-1)  # r
            step += self._slack(tile, rows)  # r + s
            tile.add_(step, alpha=relaxation)
            total = torch.add(tile, self._slack(tile, rows), alpha=2, out=step)  # W
            torch.matmul(total, self._lifted, out=products[rows])
            column_sums += total.sum(0)
        return Moments(products.double(), column_sums.double())


class FusedKernel(Kernel):
    """One compiled pass per iteration: the update and both sums while a block of the state is in cache."""

    def __init__(self, geometry: Geometry, dtype: torch.dtype, margins: Margins | None = None) -> None:
        super().__init__(geometry, dtype, margins)
        from bregnet.solver import compiled

        self._compiled = compiled.advance
        self._points = geometry.points.T.to(dtype).contiguous().numpy()
        work = geometry.n_pieces * geometry.n_points * (geometry.dimension + 4)
        self._threads = Threads(1 if work < SINGLE_THREAD_WORK else torch.get_num_threads())
        self._chunks = self._threads.chunks(geometry.n_pieces)
        self._column_sums = torch.empty((len(self._chunks), geometry.n_points), dtype=dtype)

    def start(self, rho: float) -> None:
        """Use the step size `rho`."""
        super().start(rho)
        scaled = self._scaled
        if scaled is None:
            none = torch.zeros((self._geometry.n_pieces, 1), dtype=self.dtype)
            scaled = Margins(none, none, torch.tensor([self._geometry.n_points]))
        self._tables = scaled.pull.contiguous().numpy(), scaled.push.contiguous().numpy()
        self._bounds = scaled.bounds.numpy()

    @contextmanager
    def session(self) -> Iterator[None]:
        """One thread for torch: its own would spin between its small operations and take the cores of the pass."""
        with single_threaded_torch:
            yield

    def advance(self, state: Tensor, pieces: Tensor, fitted: Tensor, relaxation: float) -> Moments:
        """One chunk of pieces a thread."""
        rows, anchor = pieces.to(self.dtype).numpy(), fitted.to(self.dtype).numpy()
        moments = torch.empty(pieces.shape, dtype=torch.float64)
        matrix, products, sums = state.numpy(), moments.numpy(), self._column_sums.numpy()
        step, (pull, push) = matrix.dtype.type(relaxation), self._tables

        def run(number: int, begin: int, end: int) -> None:
            chunk = slice(begin, end)
            weights = pull[chunk], push[chunk], self._bounds
            out = products[chunk], sums[number]
            self._compiled(matrix[chunk], rows[chunk], self._points, anchor, *weights, step, *out)

        self._threads.run(run, self._chunks)
        return Moments(moments, self._column_sums.sum(0, dtype=torch.float64))


def choose_kernel(geometry: Geometry, dtype: torch.dtype, margins: Margins | None = None) -> Kernel:
    """The fused pass on a CPU with few features, matrix products otherwise."""
    on_cpu = geometry.lifted.device.type == "cpu"
    if on_cpu and geometry.dimension <= FUSED_MAX_DIMENSION:
        return FusedKernel(geometry, dtype, margins)
    return TiledKernel(geometry, dtype, margins)
