"""Going on with more points: the state of those that are known is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from bregnet.solver.geometry import Geometry
from bregnet.solver.loop import State
from bregnet.solver.partition import nearest_centre, row_keys


def known_places(before: Tensor, now: Tensor) -> Tensor:
    """Where each row of `now` is among those of `before`, -1 for one that is new."""
    old, new = (row_keys(np.ascontiguousarray(rows.cpu().numpy())) for rows in (before, now))
    order = np.argsort(old)
    at = np.searchsorted(old, new, sorter=order).clip(max=len(old) - 1)
    found = order[at]
    return torch.as_tensor(np.where(old[found] == new, found, -1), device=now.device)


def nearest_cells(geometry: Geometry, points: Tensor, among: Tensor | None = None) -> Tensor:
    """The cell with the nearest centre for every point, or which of those `among` which to choose."""
    centres = geometry.centres if among is None else geometry.centres[among]
    return torch.as_tensor(nearest_centre(points.cpu().numpy(), centres.cpu().numpy()), device=points.device)


def grown(state: State, last: Tensor, geometry: Geometry, place: Tensor, old_cells: Tensor) -> State:
    """The state for more points.

    New constraints start without a multiplier, with the slacks of the pieces at hand.

    Parameters
    ----------
    state : State
        Of the old points.
    last : Tensor of shape (Q, K, d + 1)
        Pieces that go with it.
    geometry : Geometry
        The new points.
    place : Tensor of shape (n,), int64
        Where each was among the old points, -1 for a new one.
    old_cells : Tensor of shape (n,), int64
        The old piece that each begins with.
    """
    own_piece = geometry.own_piece
    pieces_from = old_cells if own_piece else torch.arange(geometry.n_pieces, device=place.device)
    known = place >= 0
    slacks = []
    for number, w in enumerate(state.slacks):
        pieces = last[number][pieces_from]
        fitted = geometry.fitted(pieces)
        out = geometry.storage.state((geometry.n_pieces, geometry.n_points), w.dtype, w.device)
        for k, piece in enumerate(pieces):
            row = (geometry.lifted @ piece - fitted).clamp_max_(0).to(w.dtype)
            if not own_piece or known[k]:
                row[known] = w[place[k] if own_piece else k][place[known]]
            out[k] = row
        slacks.append(out)
    return replace(state, slacks=slacks, slopes=state.slopes[:, pieces_from].clone())
