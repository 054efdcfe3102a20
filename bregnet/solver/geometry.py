"""Where the points are, and which piece is active at each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bregnet._core.chunks import blocks, cache
from bregnet.distributed import ALONE, Ranks
from bregnet.solver.threads import Threads

COMPILED_MAX_DIMENSION = 16  # features up to which the compiled maximum beats matrix products
SERIAL_ELEMENTS = 100_000  # piece values up to which threads cost more than they save


@dataclass(frozen=True)
class Geometry:
    """Distinct points, their multiplicities and the cell each belongs to.

    Where several ranks share a fit, these are the points of one of them; sums over cells are those of all.

    Parameters
    ----------
    lifted : Tensor of shape (n, d + 1), float64
        The points with a trailing 1, so that ``pieces @ lifted.T`` evaluates affine pieces.
    weights : Tensor of shape (n,)
        How many observations a point stands for; sums to `n_observations`.
    cells : Tensor of shape (n,), int64
        The piece that must be active at each point, c(j).
    n_pieces : int
        Number of pieces K.
    ranks : Ranks
        Who shares the points.
    """

    lifted: Tensor
    weights: Tensor
    cells: Tensor
    n_pieces: int
    ranks: Ranks = ALONE

    @property
    def n_points(self) -> int:
        """Number of distinct points here."""
        return self.lifted.shape[0]

    @cached_property
    def n_total(self) -> int:
        """Number of distinct points n, of all ranks."""
        return int(self.ranks.sum(torch.tensor(float(self.n_points), dtype=torch.float64)))

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.lifted.shape[1] - 1

    @property
    def own_piece(self) -> bool:
        """Whether every point has a piece of its own (the paper's program)."""
        return self.n_pieces == self.n_points and self.ranks.size == 1

    @property
    def points(self) -> Tensor:
        """The points without the trailing 1, (n, d)."""
        return self.lifted[:, :-1]

    @cached_property
    def centers(self) -> Tensor:
        """Mean point of each cell, (K, d); 0 for a cell without points."""
        total = self.cell_sum(self.lifted)
        return total[:, :-1] / total[:, -1:].clamp_min(1)

    @cached_property
    def largest_entry(self) -> Tensor:
        """The largest absolute coordinate of any point, a scalar."""
        return self.ranks.largest(torch.stack(self.lifted.aminmax()).abs().amax())

    def cell_sum(self, values: Tensor) -> Tensor:
        """Sum rows of `values` (n, ...) over the points of each cell, giving (K, ...)."""
        if self.own_piece:
            return values
        out = values.new_zeros((self.n_pieces, *values.shape[1:]))
        return self.ranks.sum(out.index_add_(0, self.cells, values))

    def cell_moments(self, values: Tensor) -> Tensor:
        """sum_{j in m} values_j xh_j for every piece m, (K, d + 1)."""
        return self.ranks.sum(self.own_moments(values))

    def own_moments(self, values: Tensor) -> Tensor:
        """That part of the moments which this rank's points make up."""
        if self.own_piece:
            return values[:, None] * self.lifted
        out = self.lifted.new_zeros((self.n_pieces, self.lifted.shape[1]))
        if out.device.type == "cpu":
            from bregnet.solver import compiled  # numba is slow to import

            compiled.cell_moments(values.contiguous().numpy(), self.lifted.numpy(), self.cells.numpy(), out.numpy())
            return out
        return out.index_add_(0, self.cells, values[:, None] * self.lifted)

    def cell_grams(self, weights: Tensor, lifted: Tensor | None = None) -> Tensor:
        """Sum over each cell of weight_j xh_j xh_j', (K, d + 1, d + 1); other rows (n, d + 1) may stand for xh."""
        lifted = self.lifted if lifted is None else lifted
        size = lifted.shape[1]
        out = lifted.new_zeros((self.n_pieces, size, size))
        if out.device.type == "cpu":
            from bregnet.solver import compiled  # numba is slow to import

            compiled.cell_grams(weights.contiguous().numpy(), lifted.numpy(), self.cells.numpy(), out.numpy())
            return self.ranks.sum(out)
        for part in blocks(len(lifted), size**2, budget=cache(lifted.device)):
            outer = (weights[part, None] * lifted[part])[:, :, None] * lifted[part, None, :]
            out.index_add_(0, self.cells[part], outer)
        return self.ranks.sum(out)

    def at_cells(self, pieces: Tensor) -> Tensor:
        """Rows of `pieces` (K, ...) taken at each point's cell, giving (n, ...)."""
        return pieces if self.own_piece else pieces[self.cells]

    def fitted(self, pieces: Tensor) -> Tensor:
        """u_c(j).xh_j, the value each point's own piece takes there, (n,)."""
        if self.own_piece or pieces.device.type != "cpu":
            return torch.linalg.vecdot(self.at_cells(pieces), self.lifted)
        from bregnet.solver import compiled  # numba is slow to import

        out = torch.empty_like(self.weights)
        compiled.fitted(pieces.contiguous().numpy(), self.lifted.numpy(), self.cells.numpy(), out.numpy())
        return out

    def largest(self, pieces: Tensor) -> tuple[Tensor, Tensor]:
        """max_k u_k.xh_j at every point and the piece that attains it, (n,) each, some points at a time."""
        # what lasts is made before the tiles: between them, it would keep the memory of each from being used again
        values, index = torch.empty_like(self.weights), torch.empty_like(self.cells)
        for part in self.tiles(len(pieces)):
            torch.max(self.lifted[part] @ pieces.T, 1, out=(values[part], index[part]))
        return values, index

    def largest_anyhow(self, pieces: Tensor) -> tuple[Tensor, Tensor]:
        """As `largest`, but sooner, and pieces that tie up to rounding may come in another order."""
        if pieces.device.type != "cpu" or self.dimension > COMPILED_MAX_DIMENSION:
            return self.largest(pieces)
        from bregnet.solver import compiled_pairs  # numba is slow to import

        values, index = torch.empty_like(self.weights), torch.empty_like(self.cells)
        given = pieces.contiguous().numpy(), self.points.T.contiguous().numpy(), values.numpy(), index.numpy()
        threads = Threads(torch.get_num_threads() if len(pieces) * self.n_points > SERIAL_ELEMENTS else 1)
        chunks = threads.chunks(self.n_points)
        threads.run(lambda _, begin, end: compiled_pairs.largest(*given, begin, end), chunks)
        return values, index

    def tiles(self, n_pieces: int) -> Iterator[slice]:
        """Points, some at a time, for so many pieces."""
        return blocks(self.n_points, n_pieces, budget=cache(self.lifted.device))

    @classmethod
    def build(
        cls, points: Tensor, weights: Tensor, cells: Tensor | None = None, n_pieces: int | None = None
    ) -> Geometry:
        """Lift `points` and give each its own piece unless `cells` are given."""
        n = points.shape[0]
        index = torch.arange(n, device=points.device)
        if cells is None or n_pieces is None:
            cells, n_pieces = index, n
        elif n_pieces == n and not torch.equal(cells, index):
            raise ValueError("a piece per point must have the pieces in the order of the points")
        return cls(torch.cat([points, points.new_ones(n, 1)], dim=1), weights, cells, n_pieces)
