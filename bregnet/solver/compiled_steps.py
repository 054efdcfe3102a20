"""Whole iterations of ADMM on working pairs, compiled, a thread a piece set: for problems too small to be shared more.

The same steps as those of :class:`bregnet.solver.working_pairs.WorkingPairs`, in the same order, without the time that
many calls on small arrays would take.
"""

from __future__ import annotations

import numpy as np

from bregnet._core.compiling import compiled
from bregnet.solver.compiled import height_sums
from bregnet.solver.compiled_pairs import pair_pass, precondition, precondition_pairs
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
    none = fitted[:0]
    pair_pass(
        starts, points, differences, pieces, fitted, none, none, pieces.dtype.type(0), out, arriving, 0, len(pieces)
    )
    if len(strength) > 0:
        for j in range(len(strength)):
            arriving[j] += strength[j] * fitted[j]
    add_from_points(arriving, cells, offsets, out)
    for k in range(len(pieces)):
        for a in range(1, pieces.shape[1]):
            out[k, a] += kappa[a - 1] * pieces[k, a]


def _preconditioned(starts, points, differences, preconditioner, kappa, residual, out):  # pragma: no cover - compiled
    """The residual divided by the diagonal blocks of the pieces, by their inverses or by their pairs."""
    inverse, own, factors, offsets = preconditioner
    if len(inverse) > 0:
        precondition(inverse, residual, out, 0, len(residual))
    else:
        precondition_pairs(starts, points, differences, kappa, own, factors, offsets, residual, out, 0, len(residual))


def _conjugate_gradients(
    pairs, preconditioner, strength, kappa, cells, offsets, limits, residual, change, work
):  # pragma: no cover - compiled
    """Some steps for one piece set, or for the sum or difference of two; `residual` is overwritten."""
    least, most, reduction = limits
    direction, image, scaled, fitted, arriving = work
    n_pieces, size = residual.shape
    change[:] = 0
    preconditioned(*pairs, preconditioner, kappa, residual, direction)
    energy = first = before = product(residual, direction)
    for step in range(1, most + 1):
        image_of(pairs, direction, strength, kappa, cells, offsets, fitted, arriving, image)
        curvature = product(direction, image)
        if not (energy > 0 and curvature > 0):
            break
        length = residual.dtype.type(energy / curvature)
        for k in range(n_pieces):
            for a in range(size):
                change[k, a] += length * direction[k, a]
        if step == most or (step >= least and energy * energy <= reduction * first * before):
            break
        for k in range(n_pieces):
            for a in range(size):
                residual[k, a] -= length * image[k, a]
        preconditioned(*pairs, preconditioner, kappa, residual, scaled)
        before, energy = energy, product(residual, scaled)
        ratio = residual.dtype.type(energy / before)
        for k in range(n_pieces):
            for a in range(size):
                direction[k, a] = scaled[k, a] + ratio * direction[k, a]


def _start_set(penalty, kappa, slopes, pieces, heights, moments, clipped, residual):  # pragma: no cover - compiled
    """The prox of the penalty, and what block 1 of one piece set has to make up for, without the data."""
    level, signs = penalty
    clip_slopes(slopes, signs, level, heights, clipped)
    n_pieces, size = pieces.shape
    for k in range(n_pieces):
        residual[k, 0] = moments[k, 0]
        for a in range(1, size):
            wanted = 2 * clipped[k, a - 1] - slopes[k, a - 1]
            residual[k, a] = moments[k, a] + kappa[a - 1] * (wanted - pieces[k, a])


def _solve_mode(
    mode, pairs, geometry, data, kappa, limits, preconditioner, pieces, residual, change, work
):  # pragma: no cover - compiled
    """Block 1 of one piece set, or of the sum (mode 0) or difference (mode 1) of two."""
    cells, offsets = geometry
    targets, strength = data
    n_sets, n_pieces, size = pieces.shape
    own, mixed, fitted = work[5], work[6], work[3]
    sign = pieces.dtype.type(1 - 2 * mode)
    for k in range(n_pieces):
        for a in range(size):
            own[k, a] = residual[0, k, a] + (sign * residual[1, k, a] if n_sets == 2 else 0)
    if mode == n_sets - 1:
        for k in range(n_pieces):
            for a in range(size):
                mixed[k, a] = pieces[0, k, a] + (sign * pieces[1, k, a] if n_sets == 2 else 0)
        fitted_values(mixed, cells, offsets, fitted)
        for j in range(len(targets)):
            fitted[j] = strength[j] * (targets[j] - fitted[j])
        add_from_points(fitted, cells, offsets, own)
    else:
        strength = strength[:0]
    conjugate_gradients(pairs, preconditioner, strength, kappa, cells, offsets, limits, own, change, work[:5])


def _finish_set(
    number, pairs, geometry, relaxation, slacks, slopes, pieces, moments, sums, clipped, change, work
):  # pragma: no cover - compiled
    """The steps of the pieces, of w and of v of one piece set, and the sums over iterations."""
    starts, points, differences = pairs
    cells, offsets = geometry
    fitted, arriving = work[3], work[4]
    n_pieces, size = pieces.shape
    share = pieces.dtype.type(1 / len(change))
    sign = pieces.dtype.type(1 - 2 * number)
    for k in range(n_pieces):
        for a in range(size):
            pieces[k, a] += share * (change[0, k, a] + (sign * change[1, k, a] if len(change) == 2 else 0))
    fitted_values(pieces, cells, offsets, fitted)
    none = fitted[:0]
    pair_pass(starts, points, differences, pieces, fitted, none, slacks, relaxation, moments, arriving, 0, n_pieces)
    add_from_points(arriving, cells, offsets, moments)
    piece_sums, slack_sums = sums
    zero = slacks.dtype.type(0)
    for e in range(len(slacks)):
        slack_sums[e] += max(slacks[e], zero)
    for k in range(n_pieces):
        piece_sums[k, 0] += pieces[k, 0]
        for a in range(1, size):
            piece_sums[k, a] += clipped[k, a - 1]
            slopes[k, a - 1] += relaxation * (pieces[k, a] - clipped[k, a - 1])


fitted_values = compiled(_fitted_values)
add_from_points = compiled(_add_from_points)
product = compiled(_product)
find_heights = compiled(_find_heights)
clip_slopes = compiled(_clip_slopes)
image_of = compiled(_image)
preconditioned = compiled(_preconditioned)
conjugate_gradients = compiled(_conjugate_gradients)
start_set = compiled(_start_set)
solve_mode = compiled(_solve_mode)
finish_set = compiled(_finish_set)


def iterate(
    threads, pairs, geometry, data, penalty, kappa, relaxation, limits, preconditioners, state, moments, sums, n_steps
):
    """Iterations on the state (w, v, u and the heights of the prox), in place, each piece set on a thread.

    A thread solves block 1 of the sum or of the difference of the sets, waits for the other, and then takes the steps
    of one set.
    """
    slacks, slopes, pieces, heights = state
    clipped, residual, change = np.empty_like(slopes), np.empty_like(pieces), np.empty_like(pieces)
    works = [_workspace(pieces[0], data[0]) for _ in pieces]
    everyone = [(q, q + 1) for q in range(len(pieces))]

    def start(q, *_):
        start_set(penalty, kappa, slopes[q], pieces[q], heights[q], moments[q], clipped[q], residual[q])

    def solve(q, *_):
        solve_mode(q, pairs, geometry, data, kappa, limits, preconditioners[q], pieces, residual, change[q], works[q])

    def finish(q, *_):
        own = slacks[q], slopes[q], pieces[q], moments[q], (sums[0][q], sums[1][q]), clipped[q]
        finish_set(q, pairs, geometry, relaxation, *own, change, works[q])

    def finish_and_start(q, *_):
        finish(q)
        start(q)

    threads.run(start, everyone)
    for step in range(n_steps):
        threads.run(solve, everyone)
        threads.run(finish if step == n_steps - 1 else finish_and_start, everyone)


def _workspace(pieces, targets):
    """Memory for one piece set: three vectors of conjugate gradients, two at the points, a residual and a mixture."""
    vectors = [np.empty_like(pieces) for _ in range(5)]
    return *vectors[:3], np.empty_like(targets), np.empty_like(targets), *vectors[3:]
