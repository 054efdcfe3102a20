"""From pieces that nearly agree to pieces that do: every piece the largest at its own points.

Where several pieces tie at a point, as they do at the optimum, a piece that is too low by a rounding error loses the
point to another with quite a different slope. A loss on divergences, which see slopes, then jumps. So the pieces are
first made to keep their points: the same two blocks of ADMM without any loss, from the pieces at hand, end at pieces
that meet all constraints after some dozens of steps, and these lie near.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bregnet._core.chunks import blocks, cache, rows_at_once
from bregnet.distributed import Ranks
from bregnet.solver.geometry import Geometry
from bregnet.solver.kernels import Kernel
from bregnet.solver.normal import Factor, pull

VIOLATION = 1e-11  # taken as none
SUBSET_SHARE = 8  # of very many points, this part at least is looked at


def excesses(geometry: Geometry, pieces: Tensor) -> Tensor:
    """By how much the largest piece exceeds the point's own, at every point, (n,)."""
    return geometry.largest(pieces)[0] - geometry.fitted(pieces)


def tightest(geometry: Geometry, pieces: Tensor) -> Geometry:
    """Those points at which other pieces come nearest to the point's own, or exceed it, if there are very many.

    At the others nothing changes when pieces move by little. The budget is for the entries of their state.
    """
    n_wanted = max(rows_at_once(geometry.n_pieces, budget=1 << 21), geometry.n_total // SUBSET_SHARE)
    if geometry.own_piece or geometry.n_total <= n_wanted:
        return geometry
    lead = _leads(geometry, pieces)
    level = max(_level(lead, n_wanted, geometry.ranks), float(lead.amin()))  # every rank keeps a point
    chosen = torch.nonzero(lead <= level).squeeze(1)
    return replace(
        geometry, lifted=geometry.lifted[chosen], weights=geometry.weights[chosen], cells=geometry.cells[chosen]
    )


def _level(values: Tensor, n_wanted: int, ranks: Ranks) -> float:
    """The value that about so many of all ranks' do not exceed, by histograms that look closer and closer."""
    low, high = -float(ranks.largest(-values.amin())), float(ranks.largest(values.amax()))
    below = 0.0
    n_bins = 4096
    for _ in range(4):
        if not high > low:
            break
        counts = ranks.sum(torch.histc(values, n_bins, low, high))
        n_below = int((below + counts.cumsum(0) <= n_wanted).sum())
        if n_below == n_bins:
            return high
        below += float(counts[:n_below].sum())
        width = (high - low) / n_bins
        low, high = low + n_below * width, low + (n_below + 1) * width
    return low


def _leads(geometry: Geometry, pieces: Tensor) -> Tensor:
    """By how much the point's own piece exceeds the largest other one, at every point, (n,)."""
    out = torch.empty_like(geometry.weights)
    for part in geometry.tiles(len(pieces)):
        values, cells = geometry.lifted[part] @ pieces.T, geometry.cells[part, None]
        out[part] = values.gather(1, cells).squeeze(1) - values.scatter_(1, cells, -torch.inf).amax(1)
    return out


def keep_points(
    geometry: Geometry, kernel: Kernel, factor: Factor, kappa: float, pieces: Tensor, limit: int
) -> tuple[Tensor, int]:
    """Pieces near `pieces`, no steeper, that are the largest at their own points up to rounding, and the steps taken.

    Parameters
    ----------
    geometry : Geometry
    kernel : Kernel
        A pass without a loss.
    factor : Factor
        Block 1.
    kappa : float
        Weight of the slopes in it.
    pieces : Tensor of shape (K, d + 1)
    limit : int
        Steps after which to give up; what is violated by then is small.
    """
    height = pieces[:, :-1].abs().amax(0)
    slopes = pieces[:, :-1].clone()
    state = _resting(geometry, kernel, pieces)
    moments = kernel.moments(state)
    step = 0
    for step in range(1, limit + 1):
        clipped = slopes.clamp(-height, height)
        pieces = factor.solve(pull(geometry, moments, kappa, 2 * clipped - slopes))
        if step % 20 == 0 and float(geometry.ranks.largest(excesses(geometry, pieces).amax())) <= VIOLATION:
            break
        moments = kernel.advance(state, pieces, geometry.fitted(pieces), 1.7)
        slopes.add_(pieces[:, :-1] - clipped, alpha=1.7)
    return pieces, step


def _resting(geometry: Geometry, kernel: Kernel, pieces: Tensor) -> Tensor:
    """The state without multipliers whose slacks are those of the pieces, where they are not negative."""
    state = kernel.new_state()
    fitted = geometry.fitted(pieces)
    for rows in blocks(len(pieces), geometry.n_points, budget=cache(pieces.device)):
        state[rows] = (pieces[rows] @ geometry.lifted.T - fitted).clamp_max_(0).to(state.dtype)
    return state


def strictly_convex(geometry: Geometry, pieces: Tensor) -> Tensor:
    """Add the least curvature that makes every piece the strictly largest at its point (a piece per point).

    The tangents of (eps / 2) |x|^2 at the points fall behind each other by eps / 2 times squared distances.
    """
    points = geometry.points
    fitted, norms = geometry.fitted(pieces), points.square().sum(1)
    eps = torch.zeros((), dtype=points.dtype, device=points.device)
    for part in geometry.tiles(len(pieces)):
        over = geometry.lifted[part] @ pieces.T - fitted[part, None]
        apart = norms[part, None] + norms - 2 * points[part] @ points.T
        needed = torch.where(over > VIOLATION, 2 * over / apart.clamp_min(1e-12), 0)
        eps = torch.maximum(eps, needed.amax())
    eps = eps + 1e-7  # so that every piece is the strictly largest at its point
    slopes = pieces[:, :-1] + eps * points
    return torch.cat([slopes, (pieces[:, -1] - eps / 2 * norms)[:, None]], dim=1)
