"""Going on with more points: the state of those that are known is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet.distributed import ALONE
from bregnet.solver.all_pairs import State
from bregnet.solver.geometry import Geometry
from bregnet.solver.pairs import pair_operator, starting_keys
from bregnet.solver.partition import nearest_center, row_keys
from bregnet.solver.working_pairs import PairState


def known_places(before: Tensor, now: Tensor) -> Tensor:
    """Where each row of `now` is among those of `before`, -1 for one that is new."""
    old, new = (row_keys(np.ascontiguousarray(rows.cpu().numpy())) for rows in (before, now))
    order = np.argsort(old)
    at = np.searchsorted(old, new, sorter=order).clip(max=len(old) - 1)
    found = order[at]
    return torch.as_tensor(np.where(old[found] == new, found, -1), device=now.device)


def nearest_cells(geometry: Geometry, points: Tensor, among: Tensor | None = None) -> Tensor:
    """The cell with the nearest center for every point, or which of those `among` which to choose."""
    centers = geometry.centers if among is None else geometry.centers[among]
    return torch.as_tensor(nearest_center(points.cpu().numpy(), centers.cpu().numpy()), device=points.device)


def grown(state: Any, before: Geometry, geometry: Geometry, place: Tensor, old_cells: Tensor) -> Any:
    """The state for more points, or None where it cannot be carried over.

    New constraints start without a multiplier, with the slacks of the pieces at hand.

    Parameters
    ----------
    state : State or PairState
        Of the old points.
    before, geometry : Geometry
        The old points and the new ones.
    place : Tensor of shape (n,), int64
        Where each new point was among the old ones, -1 where it was not.
    old_cells : Tensor of shape (n,), int64
        The old piece that each begins with.
    """
    if state.copies is not None:
        return None
    if isinstance(state, PairState):
        return _grown_pairs(state, before, geometry, place, old_cells)
    return _grown_matrix(state, geometry, place, old_cells)


def _grown_matrix(state: State, geometry: Geometry, place: Tensor, old_cells: Tensor) -> State:
    own_piece, w = geometry.own_piece, state.slacks
    pieces_from = old_cells if own_piece else torch.arange(geometry.n_pieces, device=place.device)
    known = place >= 0
    pieces = state.pieces[pieces_from]
    fitted = geometry.fitted(pieces)
    slacks = torch.empty((geometry.n_pieces, geometry.n_points), dtype=w.dtype, device=w.device)
    for k, piece in enumerate(pieces):
        row = (geometry.lifted @ piece - fitted).clamp_max_(0).to(w.dtype)
        if not own_piece or known[k]:
            row[known] = w[place[k] if own_piece else k][place[known]]
        slacks[k] = row
    return replace(state, slacks=slacks, slopes=state.slopes[pieces_from].clone(), pieces=pieces)


def _grown_pairs(state: PairState, before: Geometry, geometry: Geometry, place: Tensor, old_cells: Tensor) -> PairState:
    own_piece, n_old, n = geometry.own_piece, before.n_points, geometry.n_points
    known = torch.nonzero(place >= 0).squeeze(1)
    now = place.new_full((n_old,), -1).index_put_((place[known],), known)  # where each old point is now
    old_pieces, old_points = state.keys // n_old, now[state.keys % n_old]
    numbers = now[old_pieces] if own_piece else old_pieces
    kept = (numbers >= 0) & (old_points >= 0)
    old_keys = (numbers * n + old_points)[kept]
    pieces_from = old_cells if own_piece else torch.arange(geometry.n_pieces, device=place.device)
    pieces = state.pieces[:, pieces_from].clone()
    if own_piece:  # the old piece, from its own point to the new one
        apart = (geometry.points - before.points[pieces_from]).to(pieces.dtype)
    else:  # the center has moved
        apart = (geometry.centers - before.centers).to(pieces.dtype)
    pieces[..., 0] += torch.linalg.vecdot(pieces[..., 1:], apart)
    keys = torch.unique(torch.cat([old_keys, starting_keys(geometry)]))
    operator = pair_operator(geometry, pieces.dtype, ALONE)
    operator.choose(keys)
    slacks = torch.stack([-operator.slacks(u).clamp_min(0) for u in pieces])
    slacks[:, torch.searchsorted(keys, old_keys)] = state.slacks[:, kept]
    slopes, idle = state.slopes[:, pieces_from].clone(), torch.zeros_like(keys, dtype=torch.int8)
    return replace(state, keys=keys, slacks=slacks, slopes=slopes, pieces=pieces, idle=idle, left=keys[:0])
