"""Where a fit begins: points cut into cells, and the state of an earlier fit or of a checkpoint to go on from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from bregnet.distributed import current
from bregnet.solver import checkpoints
from bregnet.solver.geometry import Geometry
from bregnet.solver.growth import grown, known_places, nearest_cells
from bregnet.solver.points import MemoryNeed, Points, Standardization, free_bytes, readable


class Start(NamedTuple):
    """What the solver is given beside the problem."""

    geometry: Geometry
    state: Any  # of an earlier fit, or None
    checkpoint: checkpoints.CheckpointWriter | None  # reads and writes it
    n_pieces: int  # as asked for


@dataclass
class WarmStart:
    """What a warm start goes on from."""

    geometry: Geometry
    state: Any  # of the solver
    n_pieces: int  # as asked for

    def fits(self, points: Tensor, n_pieces: int) -> bool:
        """Whether it is for these lifted points on this device, with as many pieces asked for."""
        known = self.geometry.lifted
        if known.shape != points.shape or known.device != points.device or self.n_pieces != n_pieces:
            return False
        return torch.equal(known, points)

    def grown(self, whole: Geometry, n_pieces: int, classes: np.ndarray | None) -> tuple[Geometry, Any] | None:
        """Cells and state for more points, if the pieces are of the same kind: one a point, or cells."""
        before, points, own_piece = self.geometry, whole.lifted, n_pieces == whole.n_pieces
        if before.lifted.device != points.device or before.own_piece != own_piece:
            return None
        if not own_piece and self.n_pieces != n_pieces:
            return None
        place = known_places(before.lifted, points)
        new = torch.nonzero(place < 0).squeeze(1)
        cells = before.cells[place.clamp_min(0)]
        if len(new):
            cells[new] = nearest_cells(before, points[new, :-1])
            if classes is not None:
                _keep_classes_apart(before, points, cells, place, torch.as_tensor(classes, device=points.device))
        geometry = whole if own_piece else replace(whole, cells=cells, n_pieces=before.n_pieces)
        return geometry, grown(self.state, before, geometry, place, cells)


def _keep_classes_apart(before: Geometry, points: Tensor, cells: Tensor, place: Tensor, classes: Tensor) -> None:
    """Give new points of a class that has cells to the nearest of these."""
    known = place >= 0
    for label in torch.unique(classes[~known]):
        here = torch.nonzero(~known & (classes == label)).squeeze(1)
        theirs = torch.unique(cells[known & (classes == label)])
        if len(theirs):
            cells[here] = theirs[nearest_cells(before, points[here, :-1], theirs)]


class SeenRows(NamedTuple):
    """The rows that `partial_fit` was given so far, and their units; others would be other coordinates of the state."""

    features: np.ndarray
    targets: np.ndarray
    units: Standardization


def starting_geometry(
    points: Points,
    n_pieces: int,
    *,
    seed: Any,
    classes: np.ndarray | None,
    cells: Tensor | None,
    warm: WarmStart | None,
    same_points: bool,
    more_points: bool,
) -> tuple[Geometry, Any]:
    """Points cut into `n_pieces` cells, inside `classes` if any, and the state of an earlier fit where it applies.

    A checkpoint may have the cells. The earlier fit `warm` may be for the same points, or for some of more points.
    """
    lifted, ranks = points.lifted(), points.ranks
    if same_points and not ranks.any(warm is None or not warm.fits(lifted, n_pieces)):
        assert warm is not None
        return replace(warm.geometry, weights=points.weights), warm.state
    own_pieces = Geometry(lifted, points.weights, torch.arange(len(lifted), device=lifted.device), len(lifted), ranks)
    if more_points and warm is not None:
        more = warm.grown(own_pieces, n_pieces, classes)
        if more is not None:
            return more
    if n_pieces == len(points):
        return own_pieces, None
    if cells is not None:
        cells, n_cells = cells.to(lifted.device), int(ranks.largest(cells.max())) + 1
    else:
        cells, n_cells = points.cut(lifted, n_pieces, classes, seed)
    return replace(own_pieces, cells=cells, n_pieces=n_cells), None


def open_checkpoint(
    given: Any, parameters: Sequence[Any], max_iter: int, points: Points, classes: np.ndarray | None
) -> tuple[checkpoints.CheckpointWriter | None, Tensor | None]:
    """What reads and writes the checkpoint of a fit, if it has one, and the cells that are stored there, if any.

    All processes that share a fit must have the same data and parameters.
    """
    found, ranks = checkpoints.checked(given), current()
    if found is None and ranks.size == 1:
        return None, None
    writer = None if found is None else checkpoints.CheckpointWriter(found, ranks)
    units, merged = points.units, points.merged
    arrays = units.center, units.scale, merged.inverse, merged.counts, np.zeros(0) if classes is None else classes
    about = checkpoints.digest(parameters, (torch.as_tensor(array) for array in arrays))
    number = float(int(about[:12], 16))  # fits a double
    if ranks.any(ranks.agreed(number, float(max_iter)) != (number, float(max_iter))):
        raise ValueError("X, y and parameters must be the same on every process that shares a fit, got others")
    return writer, None if writer is None else writer.cells(about)


def require_room(name: str, points: Points, n_pieces: int, need: Callable[[int], MemoryNeed], *, verbose: bool) -> None:
    """Refuse a fit that cannot be shared or does not fit into memory, and say what the estimator `name` takes.

    `need` goes from a number of pieces to what a fit takes.
    """
    n, ranks = len(points), current()
    if ranks.size > n:
        raise ValueError(f"X must have at least as many distinct rows as processes, {ranks.size}, got {n}")
    needed, free = need(n_pieces), free_bytes(points.device)
    wanted = needed.total * (ranks.local_size if points.device.type == "cpu" else 1)
    if verbose and ranks.rank == 0:
        tqdm.write(f"{name}: {n} points, {n_pieces} pieces; {needed}, {readable(free)} free")
    if ranks.any(wanted > free):
        fewer = ((k, need(k).total) for k in (1000, 400, 200, 100, 50) if k < n_pieces)
        advice = (f"n_pieces={k} needs {readable(least)}" for k, least in fewer if least * ranks.local_size <= free)
        raise MemoryError(
            f"the fit needs {needed} for {n} points and {n_pieces} pieces, and {readable(free)} are"
            f" free; {next(advice, 'share it among more machines')}"
        )
