"""Whole iterations of ADMM on working pairs, compiled, on one thread: for problems too small to be shared.

The same steps as those of :class:`bregnet.solver.working_pairs.WorkingPairs`, in the same order, without the time that
many calls on small arrays would take.
"""

from __future__ import annotations

import numpy as np

from bregnet._core.compiling import compiled
from bregnet.solver.compiled import height_sums
from bregnet.solver.compiled_pairs import advance_pairs, normal_pairs, precondition
from bregnet.solver.penalty import MOST_SWEEPS


def _fitted_values(pieces, cells, offsets, out):  # pragma: no cover - compiled
    """The value each point's own piece takes there; no offsets: every point has a piece of its own."""
    dimension = pieces.shape[1] - 1
    for j in range(len(out)):
        piece = pieces[cells[j]]
        total = piece[0]
        if len(offsets) > 0:
            for feature in range(dimension):
                total += piece[feature + 1] * offsets[j, feature]
        out[j] = total


def _add_from_points(values, cells, offsets, rows):  # pragma: no cover - compiled
    """Add what values at the points do to their own pieces."""
    dimension = rows.shape[1] - 1
    for j in range(len(values)):
        row = rows[cells[j]]
        row[0] += values[j]
        if len(offsets) > 0:
            for feature in range(dimension):
                row[feature + 1] += values[j] * offsets[j, feature]


def _product(one, other):  # pragma: no cover - compiled
    """The inner product of two matrices, in double precision."""
    total = 0.0
    for k in range(len(one)):
        part = one.dtype.type(0)
        for a in range(one.shape[1]):
            part += one[k, a] * other[k, a]
        total += part
    return total


def _find_heights(values, level, heights, above, count):  # pragma: no cover - compiled
    """Newton's method of :func:`bregnet.solver.penalty.clip_heights`."""
    for _ in range(MOST_SWEEPS):
        height_sums(values, heights, above, count)
        moved = False
        for feature in range(len(heights)):
            after = (
                max((above[feature] - level[feature]) / max(count[feature], 1.0), 0.0) if count[feature] > 0 else 0.0
            )
            moved |= abs(after - heights[feature]) > 1e-15 * abs(heights[feature])
            heights[feature] = after
        if not moved:
            break


def _clip_slopes(slopes, signs, level, heights, clipped):  # pragma: no cover - compiled
    """The prox of the penalty."""
    n_pieces, dimension = slopes.shape
    above, count = np.empty(dimension), np.empty(dimension)
    for k in range(n_pieces):
        for feature in range(dimension):
            value = slopes[k, feature]
            clipped[k, feature] = 0 if len(signs) > 0 and signs[feature] * value < 0 else value
    find_heights(clipped, level, heights, above, count)
    for k in range(n_pieces):
        for feature in range(dimension):
            end = slopes.dtype.type(heights[feature])
            clipped[k, feature] = min(max(clipped[k, feature], -end), end)


def _image(pairs, pieces, strength, kappa, cells, offsets, fitted, arriving, out):  # pragma: no cover - compiled
    """The product of the matrix of block 1 with pieces; no strength: no data term."""
    starts, points, differences = pairs
    fitted_values(pieces, cells, offsets, fitted)
    normal_pairs(starts, points, differences, pieces, fitted, fitted[:0], out, arriving, 0, len(pieces))
    if len(strength) > 0:
        for j in range(len(strength)):
            arriving[j] += strength[j] * fitted[j]
    add_from_points(arriving, cells, offsets, out)
    for k in range(len(pieces)):
        for a in range(1, pieces.shape[1]):
            out[k, a] += kappa[a - 1] * pieces[k, a]


def _conjugate_gradients(
    pairs, inverse, strength, kappa, cells, offsets, limits, residual, change, work
):  # pragma: no cover - compiled
    """Some steps for one piece set, or for the sum or difference of two; `residual` is overwritten."""
    least, most, reduction = limits
    direction, image, scaled, fitted, arriving = work
    n_pieces, size = residual.shape
    change[:] = 0
    precondition(inverse, residual, direction, 0, n_pieces)
    energy = first = product(residual, direction)
    for step in range(1, most + 1):
        image_of(pairs, direction, strength, kappa, cells, offsets, fitted, arriving, image)
        curvature = product(direction, image)
        if not (energy > 0 and curvature > 0):
            break
        length = residual.dtype.type(energy / curvature)
        for k in range(n_pieces):
            for a in range(size):
                change[k, a] += length * direction[k, a]
                residual[k, a] -= length * image[k, a]
        precondition(inverse, residual, scaled, 0, n_pieces)
        before, energy = energy, product(residual, scaled)
        if step >= least and energy <= reduction * first:
            break
        ratio = residual.dtype.type(energy / before)
        for k in range(n_pieces):
            for a in range(size):
                direction[k, a] = scaled[k, a] + ratio * direction[k, a]


def _iterate(
    pairs, geometry, data, penalty, numbers, limits, inverse, slacks, slopes, pieces, heights, moments, n_steps
):  # pragma: no cover - compiled
    """Iterations on the state, in place."""
    starts, points, differences = pairs
    cells, offsets = geometry
    targets, strength = data
    level, signs = penalty
    kappa, relaxation = numbers
    n_sets, n_pieces, size = pieces.shape
    clipped, residual, change = np.empty_like(slopes), np.empty_like(pieces), np.empty_like(pieces)
    mixed = np.empty_like(pieces[0])
    fitted, arriving = np.empty_like(targets), np.empty_like(targets)
    work = np.empty_like(mixed), np.empty_like(mixed), np.empty_like(mixed), fitted, arriving
    half = pieces.dtype.type(0.5)
    for _ in range(n_steps):
        for q in range(n_sets):
            clip_slopes(slopes[q], signs, level, heights[q], clipped[q])
            for k in range(n_pieces):
                residual[q, k, 0] = moments[q, k, 0]
                for a in range(1, size):
                    wanted = 2 * clipped[q, k, a - 1] - slopes[q, k, a - 1]
                    residual[q, k, a] = moments[q, k, a] + kappa[a - 1] * (wanted - pieces[q, k, a])
        mixed[:] = pieces[0]
        if n_sets == 2:
            for k in range(n_pieces):
                for a in range(size):
                    one, other = residual[0, k, a], residual[1, k, a]
                    residual[0, k, a], residual[1, k, a] = one + other, one - other
                    mixed[k, a] -= pieces[1, k, a]
        fitted_values(mixed, cells, offsets, fitted)
        for j in range(len(targets)):
            fitted[j] = strength[j] * (targets[j] - fitted[j])
        add_from_points(fitted, cells, offsets, residual[n_sets - 1])
        for mode in range(n_sets):
            there = strength if mode == n_sets - 1 else strength[:0]
            given = there, kappa, cells, offsets, limits
            conjugate_gradients(pairs, inverse[mode], *given, residual[mode], change[mode], work)
        for k in range(n_pieces):
            for a in range(size):
                if n_sets == 1:
                    pieces[0, k, a] += change[0, k, a]
                else:
                    pieces[0, k, a] += half * (change[0, k, a] + change[1, k, a])
                    pieces[1, k, a] += half * (change[0, k, a] - change[1, k, a])
        for q in range(n_sets):
            fitted_values(pieces[q], cells, offsets, fitted)
            given = starts, points, differences, pieces[q], fitted, slacks[q], relaxation
            advance_pairs(*given, moments[q], arriving, 0, n_pieces)
            add_from_points(arriving, cells, offsets, moments[q])
            for k in range(n_pieces):
                for a in range(1, size):
                    slopes[q, k, a - 1] += relaxation * (pieces[q, k, a] - clipped[q, k, a - 1])


fitted_values = compiled(_fitted_values)
add_from_points = compiled(_add_from_points)
product = compiled(_product)
find_heights = compiled(_find_heights)
clip_slopes = compiled(_clip_slopes)
image_of = compiled(_image)
conjugate_gradients = compiled(_conjugate_gradients)
iterate = compiled(_iterate)
