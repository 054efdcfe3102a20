"""Compiled passes over working pairs, and over all pieces at all points, for the CPU.

Kept apart so that importing the package does not import numba. Every function handles the pieces (or points, where it
says so) from `begin` to `end`, so that several threads can share the work.
"""

from __future__ import annotations

import numpy as np

from bregnet._core.compiling import compiled
from bregnet.solver.compiled import add_products

UNSIGNED = np.uintp
MANY_FEATURES = 12  # from which the features of a pair are handled side by side, not the pairs of a piece
SCAN_BLOCK = 256  # points whose coordinates and excesses stay in the first-level cache while pieces pass over them


def _most_pairs(starts, begin, end):  # pragma: no cover - compiled
    """The largest number of pairs of any of the pieces."""
    most = 0
    for k in range(begin, end):
        most = max(most, starts[k + 1] - starts[k])
    return most


def _pair_differences(starts, points, coordinates, centres, out, begin, end):  # pragma: no cover - compiled
    """x_j - m_k of every pair (k, j): one (d, pairs of the piece) block after the other, flat."""
    dimension = coordinates.shape[1]
    for k in range(begin, end):
        first, width = starts[k], starts[k + 1] - starts[k]
        for feature in range(dimension):
            at = first * dimension + feature * width
            for e in range(width):
                out[at + e] = coordinates[points[first + e], feature] - centres[k, feature]


def _row_differences(starts, points, differences, k, out):  # pragma: no cover - compiled
    """x_j - m_k of the pairs of one piece, (pairs of the piece, d), from blocks or from the points themselves."""
    dimension = UNSIGNED(out.shape[1])
    first = UNSIGNED(starts[k])
    width = UNSIGNED(starts[k + 1]) - first
    for e in range(width):
        for feature in range(dimension):
            if differences.ndim == 2:
                here = differences[UNSIGNED(points[first + e]), feature]
                out[e, feature] = here - differences[UNSIGNED(k), feature]
            else:
                out[e, feature] = differences[first * dimension + feature * width + e]


def _pair_spread(starts, points, differences, out):  # pragma: no cover - compiled
    """Sums of squares of the differences of all pairs, by feature, and the number of pairs."""
    dimension = len(out) - 1
    block = np.empty((most_pairs(starts, 0, len(starts) - 1), dimension), differences.dtype)
    for k in range(len(starts) - 1):
        width = starts[k + 1] - starts[k]
        row_differences(starts, points, differences, k, block)
        for e in range(width):
            for feature in range(dimension):
                out[feature] += block[e, feature] ** 2
        out[dimension] += width


def _pass_few(
    starts, points, differences, pieces, fitted, weights, state, relaxation, rows, arriving, begin, end
):  # pragma: no cover - compiled
    """`pair_pass` for few features: the pairs of a piece are handled side by side.

    Indices are unsigned: numba need not ask of each whether it counts from the end, which takes a third of the time.
    """
    zero, one, four = pieces.dtype.type(0), UNSIGNED(1), UNSIGNED(4)
    dimension = UNSIGNED(pieces.shape[1] - 1)
    slack = np.empty(most_pairs(starts, begin, end), pieces.dtype)
    for k in range(UNSIGNED(begin), UNSIGNED(end)):
        first = UNSIGNED(starts[k])
        width = UNSIGNED(starts[k + one]) - first
        base, value = first * dimension, pieces[k, UNSIGNED(0)]
        for e in range(width):
            slack[e] = fitted[UNSIGNED(points[first + e])] - value
        feature = UNSIGNED(0)
        while feature + four <= dimension:
            x0 = base + feature * width
            x1, x2, x3 = x0 + width, x0 + width + width, x0 + width + width + width
            a0, a1 = pieces[k, feature + one], pieces[k, feature + one + one]
            a2, a3 = pieces[k, feature + four - one], pieces[k, feature + four]
            for e in range(width):
                slack[e] -= a0 * differences[x0 + e] + a1 * differences[x1 + e]
                slack[e] -= a2 * differences[x2 + e] + a3 * differences[x3 + e]
            feature += four
        while feature < dimension:
            a0, x0 = pieces[k, feature + one], base + feature * width
            for e in range(width):
                slack[e] -= a0 * differences[x0 + e]
            feature += one
        if len(state) > 0:
            for e in range(width):
                w = state[first + e]
                w += relaxation * (max(-w, zero) - slack[e])
                state[first + e] = w
                slack[e] = abs(w) - slack[e]
        elif len(weights) > 0:
            for e in range(width):
                slack[e] *= weights[first + e]
        total = zero
        for e in range(width):
            total += slack[e]
            arriving[UNSIGNED(points[first + e])] += slack[e]
        rows[k, UNSIGNED(0)] = -total
        feature = UNSIGNED(0)
        while feature + four <= dimension:
            x0 = base + feature * width
            x1, x2, x3 = x0 + width, x0 + width + width, x0 + width + width + width
            s0 = s1 = s2 = s3 = zero
            for e in range(width):
                value = slack[e]
                s0 += value * differences[x0 + e]
                s1 += value * differences[x1 + e]
                s2 += value * differences[x2 + e]
                s3 += value * differences[x3 + e]
            rows[k, feature + one], rows[k, feature + one + one] = -s0, -s1
            rows[k, feature + four - one], rows[k, feature + four] = -s2, -s3
            feature += four
        while feature < dimension:
            x0, s0 = base + feature * width, zero
            for e in range(width):
                s0 += slack[e] * differences[x0 + e]
            rows[k, feature + one] = -s0
            feature += one


def _pass_many(
    starts, points, differences, pieces, fitted, weights, state, relaxation, rows, arriving, begin, end
):  # pragma: no cover - compiled
    """`pair_pass` for many features: those of a pair are handled side by side.

    `differences` has the points themselves, (n, d), each with a piece of its own: they stay in cache, pairs would not.
    """
    zero, one = pieces.dtype.type(0), UNSIGNED(1)
    dimension = UNSIGNED(pieces.shape[1] - 1)
    slopes, sums = np.empty(dimension, pieces.dtype), np.empty(dimension, pieces.dtype)
    apart = np.empty(dimension, pieces.dtype)
    for k in range(UNSIGNED(begin), UNSIGNED(end)):
        value, total = pieces[k, UNSIGNED(0)], zero
        for feature in range(dimension):
            slopes[feature], sums[feature] = pieces[k, one + feature], zero
        for e in range(UNSIGNED(starts[k]), UNSIGNED(starts[k + one])):
            point, slack = UNSIGNED(points[e]), zero
            for feature in range(dimension):
                apart[feature] = differences[point, feature] - differences[k, feature]
            # a loop of its own: with a store in it, whether it is vectorized, and how it rounds, depends on addresses
            for feature in range(dimension):
                slack += slopes[feature] * apart[feature]
            slack = fitted[point] - value - slack
            if len(state) > 0:
                w = state[e]
                w += relaxation * (max(-w, zero) - slack)
                state[e] = w
                slack = abs(w) - slack
            elif len(weights) > 0:
                slack *= weights[e]
            total += slack
            arriving[point] += slack
            for feature in range(dimension):
                sums[feature] += slack * apart[feature]
        rows[k, UNSIGNED(0)] = -total
        for feature in range(dimension):
            rows[k, one + feature] = -sums[feature]


def _pair_pass(
    starts, points, differences, pieces, fitted, weights, state, relaxation, rows, arriving, begin, end
):  # pragma: no cover - compiled
    """R't, for t = weights * R u (no weights: R u), or where there is a state w, for t = |w| - R u after a step.

    The step is w += g (s - R u) with s = max(-w, 0). R't comes in two parts: by the pairs' pieces, and by their points.
    """
    arriving[:] = 0
    if differences.ndim == 2:
        pass_many(starts, points, differences, pieces, fitted, weights, state, relaxation, rows, arriving, begin, end)
    else:
        pass_few(starts, points, differences, pieces, fitted, weights, state, relaxation, rows, arriving, begin, end)


def _pair_slacks(starts, points, differences, pieces, fitted, out, begin, end):  # pragma: no cover - compiled
    """R u, the slacks of all pairs."""
    dimension = pieces.shape[1] - 1
    block = np.empty((most_pairs(starts, begin, end), dimension), differences.dtype)
    for k in range(begin, end):
        row_differences(starts, points, differences, k, block)
        for e in range(starts[k + 1] - starts[k]):
            slack = fitted[points[starts[k] + e]] - pieces[k, 0]
            for feature in range(dimension):
                slack -= pieces[k, feature + 1] * block[e, feature]
            out[starts[k] + e] = slack


def _pair_grams(starts, points, differences, weights, chosen, out, begin, end):  # pragma: no cover - compiled
    """sum_j weight_kj (1, x_j - m_k)(1, x_j - m_k)' over the pairs of each chosen piece."""
    dimension = out.shape[1] - 1
    block = np.empty((most_pairs(starts, 0, len(starts) - 1), dimension), differences.dtype)
    row = np.ones(dimension + 1)
    for number in range(begin, end):
        k, gram = chosen[number], out[number]
        row_differences(starts, points, differences, k, block)
        gram[:] = 0
        for e in range(starts[k + 1] - starts[k]):
            for feature in range(dimension):
                row[feature + 1] = block[e, feature]
            for p in range(dimension + 1):
                value, line = weights[starts[k] + e] * row[p], gram[p]
                for q in range(p + 1):
                    line[q] += value * row[q]
        for p in range(dimension + 1):
            for q in range(p):
                gram[q, p] = gram[p, q]


def _precondition(inverse, residual, out, begin, end):  # pragma: no cover - compiled
    """The product of each piece's symmetric matrix with its row."""
    size = residual.shape[1]
    for k in range(begin, end):
        row, given, matrix = out[k], residual[k], inverse[k]
        for a in range(size):
            row[a] = 0
        for a in range(size):
            value, line = given[a], matrix[a]
            for b in range(size):
                row[b] += value * line[b]


def _invert_in_place(matrix):  # pragma: no cover - compiled
    """Gauss-Jordan elimination without pivoting, for positive definite matrices."""
    size = len(matrix)
    for p in range(size):
        row = matrix[p]
        inverse = 1 / row[p]
        row[p] = 1
        for b in range(size):
            row[b] *= inverse
        for a in range(size):
            if a != p:
                factor, line = matrix[a, p], matrix[a]
                line[p] = 0
                for b in range(size):
                    line[b] -= factor * row[b]


def _invert_pairs(starts, points, differences, kappa, own, factors, offsets, begin, end):  # pragma: no cover - compiled
    """(I + A D^-1 A')^-1 of each piece, with the rows (1, x_j - m_k) of its pairs in A, and D = (own, kappa)."""
    dimension = len(kappa)
    block = np.empty((most_pairs(starts, begin, end), dimension), differences.dtype)
    weights = (1 / np.sqrt(kappa)).astype(differences.dtype)
    for k in range(begin, end):
        width = starts[k + 1] - starts[k]
        row_differences(starts, points, differences, k, block)
        gram = np.empty((width, width))
        for e in range(width):
            for feature in range(dimension):
                block[e, feature] *= weights[feature]
            for f in range(e + 1):
                total = differences.dtype.type(0)
                for feature in range(dimension):
                    total += block[e, feature] * block[f, feature]
                gram[e, f] = gram[f, e] = 1 / own[k] + total
            gram[e, e] += 1
        invert_in_place(gram)
        factors[offsets[k] : offsets[k + 1]] = gram.ravel()


def _precondition_pairs(
    starts, points, differences, kappa, own, factors, offsets, residual, out, begin, end
):  # pragma: no cover - compiled
    """D^-1 r - D^-1 A' C A D^-1 r of each piece, C being its factor."""
    dimension, most = UNSIGNED(len(kappa)), most_pairs(starts, begin, end)
    images, scaled = np.empty(most, residual.dtype), np.empty(most, residual.dtype)
    block, row = np.empty((most, len(kappa)), residual.dtype), np.empty(len(kappa), residual.dtype)
    for k in range(begin, end):
        width, value, one = UNSIGNED(starts[k + 1] - starts[k]), residual[k, 0] / own[k], UNSIGNED(1)
        given, out_row, at = residual[k], out[k], UNSIGNED(offsets[k])
        row_differences(starts, points, differences, k, block)
        for feature in range(dimension):
            row[feature] = given[feature + one] / kappa[feature]
        for e in range(width):
            total = value
            for feature in range(dimension):
                total += row[feature] * block[e, feature]
            images[e], scaled[e] = total, 0
        for e in range(width):
            for f in range(width):
                scaled[f] += images[e] * factors[at + e * width + f]
        for feature in range(dimension):
            row[feature] = given[feature + one]
        for e in range(width):
            value -= scaled[e] / own[k]
            for feature in range(dimension):
                row[feature] -= scaled[e] * block[e, feature]
        out_row[0] = value
        for feature in range(dimension):
            out_row[feature + one] = row[feature] / kappa[feature]


def _add_products(out, piece, points, start):  # pragma: no cover - compiled
    """Add a.x_j for as many points, from `start` on, as `out` has entries."""
    dimension, width = points.shape[0], len(out)
    stop = start + width
    feature = 0
    while feature + 4 <= dimension:
        a0, a1, a2, a3 = piece[feature], piece[feature + 1], piece[feature + 2], piece[feature + 3]
        x0, x1 = points[feature, start:stop], points[feature + 1, start:stop]
        x2, x3 = points[feature + 2, start:stop], points[feature + 3, start:stop]
        for j in range(width):
            out[j] += a0 * x0[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j]
        feature += 4
    while feature < dimension:
        a0, x0 = piece[feature], points[feature, start:stop]
        for j in range(width):
            out[j] += a0 * x0[j]
        feature += 1


def _insert(values, numbers, value, number):  # pragma: no cover - compiled
    """Put a value in its place in a descending list, whose last entry is dropped and whose new last is returned."""
    at = len(values) - 1
    while at > 0 and values[at - 1] < value:
        values[at], numbers[at] = values[at - 1], numbers[at - 1]
        at -= 1
    values[at], numbers[at] = value, number
    return values[-1]


def _scan(
    pieces, points, fitted, cells, level, worst_pieces, of_pieces, worst_points, of_points, begin, end
):  # pragma: no cover - compiled
    """How far pieces exceed the fitted values, and where most: u_k.(x_j, 1) - fitted_j for all pieces and points.

    `worst_pieces` (n, m) are the largest positive excesses at every point, in descending order, and `of_pieces` the
    pieces they belong to; `worst_points` (K, m) those of every piece that are above `level`, and `of_points` their
    points. A block of points stays in cache while pieces pass over it. Few entries exceed what was found before, so
    they are counted first, which vectorises, and looked for where there are any.
    """
    dimension, n_points = points.shape
    n_kept, n_kept_points = worst_pieces.shape[1], worst_points.shape[1]
    zero, one = points.dtype.type(0), points.dtype.type(1)
    buffer, least = np.empty(SCAN_BLOCK, points.dtype), np.empty(SCAN_BLOCK, points.dtype)
    for start in range(0, n_points, SCAN_BLOCK):
        width = min(SCAN_BLOCK, n_points - start)
        stop = start + width
        excess, bar, anchor = buffer[:width], least[:width], fitted[start:stop]
        for j in range(width):
            bar[j] = worst_pieces[start + j, n_kept - 1]
        for k in range(begin, end):
            piece = pieces[k]
            intercept = piece[dimension]
            for j in range(width):
                excess[j] = intercept - anchor[j]
            add_products(excess, piece, points, start)
            own_bar = max(worst_points[k, n_kept_points - 1], level)
            count = zero
            for j in range(width):
                count += one if excess[j] > min(bar[j], own_bar) else zero
            if count == zero:
                continue
            for j in range(width):
                value = excess[j]
                if value > bar[j] and cells[start + j] != k:
                    bar[j] = insert(worst_pieces[start + j], of_pieces[start + j], value, k)
                if value > own_bar and cells[start + j] != k:
                    own_bar = max(insert(worst_points[k], of_points[k], value, start + j), level)


def _largest(pieces, points, values, index, begin, end):  # pragma: no cover - compiled
    """The largest piece at each of a range of points, and its value; of equal ones the first."""
    dimension = points.shape[0]
    zero, one = points.dtype.type(0), points.dtype.type(1)
    buffer = np.empty(SCAN_BLOCK, points.dtype)
    for start in range(begin, end, SCAN_BLOCK):
        width = min(SCAN_BLOCK, end - start)
        stop = start + width
        found, best, which = buffer[:width], values[start:stop], index[start:stop]
        for k in range(len(pieces)):
            piece = pieces[k]
            for j in range(width):
                found[j] = piece[dimension]
            add_products(found, piece, points, start)
            if k == 0:
                for j in range(width):
                    best[j], which[j] = found[j], 0
                continue
            count = zero
            for j in range(width):
                count += one if found[j] > best[j] else zero
            if count > zero:
                for j in range(width):
                    if found[j] > best[j]:
                        best[j], which[j] = found[j], k


most_pairs = compiled(_most_pairs)
insert = compiled(_insert)
pair_differences = compiled(_pair_differences)
row_differences = compiled(_row_differences)
pair_spread = compiled(_pair_spread)
pass_few = compiled(_pass_few)
pass_many = compiled(_pass_many)
pair_pass = compiled(_pair_pass)
pair_slacks = compiled(_pair_slacks)
pair_grams = compiled(_pair_grams)
precondition = compiled(_precondition)
invert_in_place = compiled(_invert_in_place)
invert_pairs = compiled(_invert_pairs)
precondition_pairs = compiled(_precondition_pairs)
scan = compiled(_scan)
largest = compiled(_largest)
