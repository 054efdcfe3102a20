"""Whole iterations of ADMM on working pairs, compiled, with the pieces shared by a team of threads.

The same steps as those of :class:`bregnet.solver.working_pairs.WorkingPairs`, in the same order, without the time that
many calls on small arrays would take. Each thread has the pieces from `begin` to `end`, their pairs, and the points of
their cells. What it adds to points of other threads' pieces goes into an array of its own, which their threads add up
behind the next barrier.
"""

from __future__ import annotations

import numpy as np

from bregnet._core.compiling import compiled
from bregnet.solver.compiled import height_sums
from bregnet.solver.compiled_pairs import pair_pass, pair_slacks, pair_sums, precondition
from bregnet.solver.penalty import MOST_SWEEPS
from bregnet.solver.teams import add_up, new_team, releasing, wait


def _fitted_values(pieces, members, out, begin, end):  # pragma: no cover - compiled
    """The value each point's own piece takes there; no offsets: every point has a piece of its own."""
    starts, points, offsets = members
    for k in range(begin, end):
        piece = pieces[k]
        for at in range(starts[k], starts[k + 1]):
            j = points[at]
            total = piece[0]
            if len(offsets) > 0:
                for feature in range(offsets.shape[1]):
                    total += piece[feature + 1] * offsets[j, feature]
            out[j] = total


def _add_from_points(values, members, rows, begin, end):  # pragma: no cover - compiled
    """Add what values at the points, of one or of several threads (t, n), do to their own pieces."""
    starts, points, offsets = members
    for k in range(begin, end):
        row = rows[k]
        for at in range(starts[k], starts[k + 1]):
            j = points[at]
            value = values[0, j]
            for thread in range(1, len(values)):
                value += values[thread, j]
            row[0] += value
            if len(offsets) > 0:
                for feature in range(offsets.shape[1]):
                    row[feature + 1] += value * offsets[j, feature]


def _product(one, other, begin, end):  # pragma: no cover - compiled
    """The inner product of rows of two matrices, in double precision."""
    total = 0.0
    for k in range(begin, end):
        part = one.dtype.type(0)
        for a in range(one.shape[1]):
            part += one[k, a] * other[k, a]
        total += part
    return total


def _add_scaled(scale, given, mode, out, begin, end):  # pragma: no cover - compiled
    """Add scaled rows of one mode."""
    size = given.shape[2]
    added, total = given[mode].ravel()[begin * size : end * size], out[mode].ravel()[begin * size : end * size]
    for i in range(len(total)):
        total[i] += scale * added[i]


def _direction_after(scaled, ratio, mode, direction, begin, end):  # pragma: no cover - compiled
    """The next direction of conjugate gradients of one mode."""
    size = scaled.shape[2]
    added, total = scaled[mode].ravel()[begin * size : end * size], direction[mode].ravel()[begin * size : end * size]
    for i in range(len(total)):
        total[i] = added[i] + ratio * total[i]


def _clip_slopes(team, slopes, penalty, heights, clipped, begin, end):  # pragma: no cover - compiled
    """The prox of the penalty of all sets, by Newton's method of :func:`bregnet.solver.penalty.clip_heights`."""
    level, signs = penalty
    n_sets, _, dimension = slopes.shape
    sums = np.empty((n_sets, 2, dimension))
    for q in range(n_sets):
        for k in range(begin, end):
            for feature in range(dimension):
                value = slopes[q, k, feature]
                clipped[q, k, feature] = 0 if len(signs) > 0 and signs[feature] * value < 0 else value
    for _ in range(MOST_SWEEPS):
        for q in range(n_sets):
            height_sums(clipped[q, begin:end], heights[q], sums[q, 0], sums[q, 1])
        add_up(team, sums.ravel())
        moved = False
        for q in range(n_sets):
            for feature in range(dimension):
                above, count = sums[q, 0, feature], sums[q, 1, feature]
                after = max((above - level[feature]) / max(count, 1.0), 0.0) if count > 0 else 0.0
                moved |= abs(after - heights[q, feature]) > 1e-15 * abs(heights[q, feature])
                heights[q, feature] = after
        if not moved:
            break
    for q in range(n_sets):
        for k in range(begin, end):
            for feature in range(dimension):
                most = slopes.dtype.type(heights[q, feature])
                clipped[q, k, feature] = min(max(clipped[q, k, feature], -most), most)


def _residuals(
    pieces, slopes, clipped, moments, members, data, kappa, fitted, out, begin, end
):  # pragma: no cover - compiled
    """What block 1 has to make up for, of one piece set, or of the sum and the difference of two."""
    n_sets, _, size = pieces.shape
    targets, strength = data
    starts, points, _ = members
    for q in range(n_sets):
        for k in range(begin, end):
            out[q, k, 0] = moments[q, k, 0]
            for a in range(1, size):
                wanted = 2 * clipped[q, k, a - 1] - slopes[q, k, a - 1]
                out[q, k, a] = moments[q, k, a] + kappa[a - 1] * (wanted - pieces[q, k, a])
    values = fitted[n_sets - 1]
    fitted_values(pieces[0], members, values, begin, end)
    if n_sets == 2:
        mix(out, pieces.dtype.type(1), begin, end)
        fitted_values(pieces[1], members, fitted[0], begin, end)
    for at in range(starts[begin], starts[end]):
        j = points[at]
        of_all = values[j] - (fitted[0, j] if n_sets == 2 else 0)
        values[j] = strength[j] * (targets[j] - of_all)
    add_from_points(fitted[n_sets - 1 :], members, out[n_sets - 1], begin, end)


def _mix(sets, scale, begin, end):  # pragma: no cover - compiled
    """Put sum and difference in place of two sets, times a scale."""
    size = sets[0].size // max(1, sets.shape[1])
    one, other = sets[0].ravel()[begin * size : end * size], sets[1].ravel()[begin * size : end * size]
    for i in range(len(one)):
        total = one[i] + other[i]
        one[i], other[i] = scale * total, scale * (one[i] - other[i])


def _image(
    mode, pairs, members, strength, kappa_rows, fitted, pieces, slack, arriving, last, out, begin, end
):  # pragma: no cover - compiled
    """The part of a thread in the quadratic form of the matrix of block 1 with pieces, and their slacks.

    Unless this step is the last, also its part in the product of the matrix with the pieces. Sums have loops of their
    own: with a store in it, whether a loop is vectorized, and so rounds, depends on addresses.
    """
    starts, points, differences = pairs
    number, of_threads = arriving
    none, total = fitted[0, :0], 0.0
    if last:
        pair_slacks(starts, points, differences, pieces, fitted[mode], slack, begin, end)
    else:
        given = pieces, fitted[mode], none, slack, out, of_threads[mode, number]
        pair_pass(starts, points, differences, *given, begin, end)
    size, slacks = pieces.shape[1], slack[starts[begin] : starts[end]]
    for e in range(len(slacks)):
        total += slacks[e] * slacks[e]
    if mode == len(of_threads) - 1:
        for at in range(members[0][begin], members[0][end]):
            j = members[1][at]
            if not last:
                of_threads[mode, number, j] += strength[j] * fitted[mode, j]
        for at in range(members[0][begin], members[0][end]):
            j = members[1][at]
            total += strength[j] * fitted[mode, j] * fitted[mode, j]
    here = slice(begin * size, end * size)
    weights, values, products = kappa_rows.ravel()[here], pieces.ravel()[here], out.ravel()[here]
    if not last:
        for i in range(len(values)):
            products[i] += weights[i] * values[i]
    for i in range(len(values)):
        total += weights[i] * values[i] * values[i]
    return total


def _add_linear(team, linear, residual, out, begin, end):  # pragma: no cover - compiled
    """Add the linear function that is best for a residual of the sum of two piece sets, (K, d + 1)."""
    centers, weights = linear
    moments = np.zeros(len(weights))
    for feature in range(len(weights)):
        for k in range(begin, end):
            moments[feature] += centers[k, feature] * residual[k, 0] + residual[k, feature + 1]
    add_up(team, moments)
    slopes = (weights * moments).astype(residual.dtype)
    for k in range(begin, end):
        total = out[k, 0]
        for feature in range(len(slopes)):
            total += slopes[feature] * centers[k, feature]
        out[k, 0] = total
        for feature in range(len(slopes)):
            out[k, feature + 1] += slopes[feature]


def _conjugate_gradients(
    team, pairs, members, preconditioner, linear, strength, kappa, limits, residual, change, gain, work, begin, end
):  # pragma: no cover - compiled
    """Some steps for one piece set, or for the sum and the difference of two; `residual` is overwritten.

    `gain` (M, E) is what slacks change by. That it is summed up from those of the directions, and that the last step
    takes no product, saves a third of the passes over pairs.
    """
    least, most, reduction = limits
    direction, image, scaled, kappa_rows, fitted, slack, arriving = work
    n_modes, here = len(residual), slice(pairs[0][begin], pairs[0][end])
    going, last = np.ones(n_modes, np.bool_), np.zeros(n_modes, np.bool_)
    energy, curvature = np.zeros(n_modes), np.zeros(n_modes)
    precondition(0, pairs, preconditioner, kappa, residual, direction, begin, end)
    if n_modes == 2:
        add_linear(team, linear, residual[0], direction[0], begin, end)
    for mode in range(n_modes):
        change[mode, begin:end] = 0
        gain[mode, here] = 0
        fitted_values(direction[mode], members, fitted[mode], begin, end)
        energy[mode] = product(residual[mode], direction[mode], begin, end)
    add_up(team, energy)
    first, before = energy.copy(), energy.copy()
    for step in range(1, most + 1):
        for mode in range(n_modes):
            if going[mode]:
                # enough if this step reduces the energy as much as the one before
                enough = energy[mode] * energy[mode] <= reduction * first[mode] * before[mode]
                last[mode] = step == most or (step >= least and enough)
                given = fitted, direction[mode], slack[mode], (team[0], arriving), last[mode], image[mode]
                curvature[mode] = image_of(mode, pairs, members, strength, kappa_rows, *given, begin, end)
        add_up(team, curvature)
        for mode in range(n_modes):
            going[mode] &= energy[mode] > 0 and curvature[mode] > 0
            if not going[mode]:
                continue
            length = residual.dtype.type(energy[mode] / curvature[mode])
            add_scaled(length, direction, mode, change, begin, end)
            gained, gaining = gain[mode, here], slack[mode, here]
            for e in range(len(gained)):
                gained[e] += length * gaining[e]
            going[mode] = not last[mode]
            if going[mode]:
                add_from_points(arriving[mode], members, image[mode], begin, end)
                add_scaled(-length, image, mode, residual, begin, end)
        if not going.any():
            break
        first_going, end_going = (0 if going[0] else 1), (n_modes if going[n_modes - 1] else 1)
        these = slice(first_going, end_going)
        precondition(first_going, pairs, preconditioner, kappa, residual[these], scaled[these], begin, end)
        if n_modes == 2 and going[0]:
            add_linear(team, linear, residual[0], scaled[0], begin, end)
        for mode in range(n_modes):
            before[mode] = energy[mode]
            energy[mode] = product(residual[mode], scaled[mode], begin, end) if going[mode] else 0.0
        add_up(team, energy)
        for mode in range(n_modes):
            if going[mode]:
                ratio = residual.dtype.type(energy[mode] / before[mode])
                direction_after(scaled, ratio, mode, direction, begin, end)
                fitted_values(direction[mode], members, fitted[mode], begin, end)
        wait(team)


def _advance_slacks(state, change, slack, total, relaxation):  # pragma: no cover - compiled
    """The step w += g (s - R u), |w| - R u in place of the change of R u, and the sum of max(w, 0)."""
    zero = state.dtype.type(0)
    for e in range(len(state)):
        now = slack[e] + change[e]
        moved = state[e] + relaxation * (max(-state[e], zero) - now)
        state[e], slack[e], change[e] = moved, now, abs(moved) - now
    for e in range(len(state)):
        total[e] += max(state[e], zero)


def _finish(
    team, pairs, members, relaxation, state, moments, sums, clipped, change, gain, arriving, begin, end
):  # pragma: no cover - compiled
    """The steps of the pieces, of w and of v, and the sums over iterations."""
    slacks, now, slopes, pieces = state
    piece_sums, slack_sums = sums
    starts, points, differences = pairs
    n_sets, _, size = pieces.shape
    here = slice(starts[begin], starts[end])
    if n_sets == 2:
        half = pieces.dtype.type(0.5)
        mix(change, half, begin, end)
        mix(gain, half, starts[begin], starts[end])
    for q in range(n_sets):
        advance_slacks(slacks[q, here], gain[q, here], now[q, here], slack_sums[q, here], relaxation)
        pair_sums(starts, points, differences, gain[q], moments[q], arriving[q, team[0]], begin, end)
    wait(team)
    for q in range(n_sets):
        add_from_points(arriving[q], members, moments[q], begin, end)
        for k in range(begin, end):
            piece_sums[q, k, 0] += pieces[q, k, 0] + change[q, k, 0]
            for a in range(size):
                pieces[q, k, a] += change[q, k, a]
            for a in range(1, size):
                piece_sums[q, k, a] += clipped[q, k, a - 1]
                slopes[q, k, a - 1] += relaxation * (pieces[q, k, a] - clipped[q, k, a - 1])


def _iterate_share(
    team, pairs, members, data, penalty, kappa, relaxation, limits, preconditioner, linear, state, heights, moments,
    sums, work, n_steps, begin, end
):  # pragma: no cover - compiled  # fmt: skip
    """What one thread does in some iterations; heights are its own copy."""
    _, _, slopes, pieces = state
    clipped, residual, change, gain, direction, image, scaled, kappa_rows, fitted, slack, arriving = work
    for_gradients = direction, image, scaled, kappa_rows, fitted, slack, arriving
    for _ in range(n_steps):
        clip_slopes(team, slopes, penalty, heights, clipped, begin, end)
        residuals(pieces, slopes, clipped, moments, members, data, kappa, fitted, residual, begin, end)
        given = preconditioner, linear, data[1], kappa, limits, residual, change, gain, for_gradients
        conjugate_gradients(team, pairs, members, *given, begin, end)
        rest = relaxation, state, moments, sums, clipped, change, gain, arriving
        finish(team, pairs, members, *rest, begin, end)


fitted_values = compiled(_fitted_values)
add_from_points = compiled(_add_from_points)
product = compiled(_product)
add_scaled = compiled(_add_scaled)
direction_after = compiled(_direction_after)
clip_slopes = compiled(_clip_slopes)
mix = compiled(_mix)
residuals = compiled(_residuals)
image_of = compiled(_image)
add_linear = compiled(_add_linear)
conjugate_gradients = compiled(_conjugate_gradients)
advance_slacks = compiled(_advance_slacks)
finish = compiled(_finish)
iterate_share = compiled(_iterate_share)


def iterate(threads, chunks, pairs, members, data, penalty, kappa, relaxation, limits, preconditioner, linear, state,
            moments, sums, n_steps):  # fmt: skip
    """Iterations on the state (w, R u, v, u and the heights of the prox), in place, a thread for each chunk."""
    *state, heights = state
    slacks, _, slopes, pieces = state
    n_sets, n_points, kind = len(pieces), len(data[0]), pieces.dtype
    team = new_team(len(chunks), 2 * heights.size)
    residual, change, direction, image, scaled = (np.empty_like(pieces) for _ in range(5))
    gain, slack = np.empty_like(slacks), np.empty_like(slacks)
    kappa_rows = np.zeros_like(pieces[0])
    kappa_rows[:, 1:] = kappa
    at_points = np.empty((n_sets, n_points), kind), slack, np.empty((n_sets, len(chunks), n_points), kind)
    work = np.empty_like(slopes), residual, change, gain, direction, image, scaled, kappa_rows, *at_points
    own_heights = [heights.copy() for _ in chunks]

    def share(number, begin, end):
        given = data, penalty, kappa, relaxation, limits, preconditioner, linear, tuple(state), own_heights[number]
        with releasing(team):
            iterate_share(team[number], pairs, members, *given, moments, sums, work, n_steps, begin, end)

    with releasing(team):
        threads.run(share, chunks)
    heights[:] = own_heights[0]
