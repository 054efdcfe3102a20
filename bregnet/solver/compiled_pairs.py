"""Compiled passes over working pairs, and over all pieces at all points, for the CPU.

Kept apart so that importing the package does not import numba. Every function handles the pieces (or points, where it
says so) from `begin` to `end`, so that several threads can share the work.
"""

from __future__ import annotations

import numpy as np

from bregnet._core.compiling import compiled
from bregnet.solver.compiled import add_products

SCAN_BLOCK = 256  # points whose coordinates and excesses stay in the first-level cache while pieces pass over them


def _pair_differences(starts, points, coordinates, centres, out, begin, end):  # pragma: no cover - compiled
    """x_j - m_k of every pair (k, j): for each piece a (d, pairs of the piece) block, one block after the other."""
    dimension = coordinates.shape[1]
    for k in range(begin, end):
        first, width = starts[k], starts[k + 1] - starts[k]
        for feature in range(dimension):
            at = first * dimension + feature * width
            for e in range(width):
                out[at + e] = coordinates[points[first + e], feature] - centres[k, feature]


def _pair_spread(starts, differences, out):  # pragma: no cover - compiled
    """Sums of squares of the differences of all pairs, by feature, and the number of pairs."""
    dimension = len(out) - 1
    for k in range(len(starts) - 1):
        first, width = starts[k], starts[k + 1] - starts[k]
        for feature in range(dimension):
            at = first * dimension + feature * width
            total = differences.dtype.type(0)
            for value in differences[at : at + width]:
                total += value * value
            out[feature] += total
        out[dimension] += width


def _row_slacks(slack, points, differences, piece, fitted):  # pragma: no cover - compiled
    """Slacks of the pairs of one piece: fitted_j - z_k - a_k.(x_j - m_k)."""
    width, dimension = len(slack), len(piece) - 1
    value = piece[0]
    for e in range(width):
        slack[e] = fitted[points[e]] - value
    feature = 0
    while feature + 4 <= dimension:
        at = feature * width
        a0, a1, a2, a3 = piece[feature + 1], piece[feature + 2], piece[feature + 3], piece[feature + 4]
        x0, x1 = differences[at : at + width], differences[at + width : at + 2 * width]
        x2, x3 = differences[at + 2 * width : at + 3 * width], differences[at + 3 * width : at + 4 * width]
        for e in range(width):
            slack[e] -= a0 * x0[e] + a1 * x1[e] + a2 * x2[e] + a3 * x3[e]
        feature += 4
    while feature < dimension:
        a0, x0 = piece[feature + 1], differences[feature * width : (feature + 1) * width]
        for e in range(width):
            slack[e] -= a0 * x0[e]
        feature += 1


def _row_adjoint(values, points, differences, row, arriving):  # pragma: no cover - compiled
    """What values on the pairs of one piece do to it, and to the fitted values of their points."""
    width, dimension = len(values), len(row) - 1
    total = values.dtype.type(0)
    for e in range(width):
        total += values[e]
    for e in range(width):
        arriving[points[e]] += values[e]
    row[0] = -total
    feature = 0
    while feature + 4 <= dimension:
        at = feature * width
        x0, x1 = differences[at : at + width], differences[at + width : at + 2 * width]
        x2, x3 = differences[at + 2 * width : at + 3 * width], differences[at + 3 * width : at + 4 * width]
        s0 = s1 = s2 = s3 = values.dtype.type(0)
        for e in range(width):
            value = values[e]
            s0 += value * x0[e]
            s1 += value * x1[e]
            s2 += value * x2[e]
            s3 += value * x3[e]
        row[feature + 1], row[feature + 2], row[feature + 3], row[feature + 4] = -s0, -s1, -s2, -s3
        feature += 4
    while feature < dimension:
        x0 = differences[feature * width : (feature + 1) * width]
        s0 = values.dtype.type(0)
        for e in range(width):
            s0 += values[e] * x0[e]
        row[feature + 1] = -s0
        feature += 1


def _most_pairs(starts, begin, end):  # pragma: no cover - compiled
    """The largest number of pairs of any of the pieces."""
    most = 0
    for k in range(begin, end):
        most = max(most, starts[k + 1] - starts[k])
    return most


def _advance_pairs(
    starts, points, differences, pieces, fitted, state, relaxation, rows, arriving, begin, end
):  # pragma: no cover - compiled
    """w += g (s - R u) with s = max(-w, 0), and R'(|w| - R u) of the new w."""
    dimension = pieces.shape[1] - 1
    zero = pieces.dtype.type(0)
    buffer = np.empty(most_pairs(starts, begin, end), pieces.dtype)
    arriving[:] = 0
    for k in range(begin, end):
        first, last = starts[k], starts[k + 1]
        slack, there = buffer[: last - first], points[first:last]
        block = differences[first * dimension : last * dimension]
        row_slacks(slack, there, block, pieces[k], fitted)
        w = state[first:last]
        for e in range(last - first):
            value = w[e]
            value += relaxation * (max(-value, zero) - slack[e])
            w[e] = value
            slack[e] = abs(value) - slack[e]
        row_adjoint(slack, there, block, rows[k], arriving)


def _normal_pairs(
    starts, points, differences, pieces, fitted, weights, rows, arriving, begin, end
):  # pragma: no cover - compiled
    """R' diag(weights) R u; no weights are weights of 1."""
    dimension = pieces.shape[1] - 1
    buffer = np.empty(most_pairs(starts, begin, end), pieces.dtype)
    arriving[:] = 0
    for k in range(begin, end):
        first, last = starts[k], starts[k + 1]
        slack, there = buffer[: last - first], points[first:last]
        block = differences[first * dimension : last * dimension]
        row_slacks(slack, there, block, pieces[k], fitted)
        if len(weights) > 0:
            weight = weights[first:last]
            for e in range(last - first):
                slack[e] *= weight[e]
        row_adjoint(slack, there, block, rows[k], arriving)


def _pair_slacks(starts, points, differences, pieces, fitted, out, begin, end):  # pragma: no cover - compiled
    """R u, the slacks of all pairs."""
    dimension = pieces.shape[1] - 1
    for k in range(begin, end):
        first, last = starts[k], starts[k + 1]
        block = differences[first * dimension : last * dimension]
        row_slacks(out[first:last], points[first:last], block, pieces[k], fitted)


def _pair_grams(starts, differences, weights, chosen, out, begin, end):  # pragma: no cover - compiled
    """sum_j weight_kj (1, x_j - m_k)(1, x_j - m_k)' over the pairs of each chosen piece."""
    dimension = out.shape[1] - 1
    for number in range(begin, end):
        k, gram = chosen[number], out[number]
        first, width = starts[k], starts[k + 1] - starts[k]
        weight = weights[first : first + width]
        total = 0.0
        for e in range(width):
            total += weight[e]
        gram[0, 0] = total
        for p in range(dimension):
            at = first * dimension + p * width
            one = differences[at : at + width]
            total = 0.0
            for e in range(width):
                total += weight[e] * one[e]
            gram[0, p + 1] = gram[p + 1, 0] = total
            for q in range(p + 1):
                at = first * dimension + q * width
                other = differences[at : at + width]
                total = 0.0
                for e in range(width):
                    total += weight[e] * one[e] * other[e]
                gram[p + 1, q + 1] = gram[q + 1, p + 1] = total


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


def _invert_pairs(starts, differences, kappa, own, factors, offsets, begin, end):  # pragma: no cover - compiled
    """(I + A D^-1 A')^-1 of each piece, with the rows (1, x_j - m_k) of its pairs in A, and D = (own, kappa)."""
    dimension = len(kappa)
    for k in range(begin, end):
        first, width = starts[k], starts[k + 1] - starts[k]
        gram = np.full((width, width), 1 / own[k])
        for feature in range(dimension):
            at = first * dimension + feature * width
            row, weight = differences[at : at + width], 1 / kappa[feature]
            for e in range(width):
                value = weight * row[e]
                for f in range(width):
                    gram[e, f] += value * row[f]
        for e in range(width):
            gram[e, e] += 1
        invert_in_place(gram)
        factors[offsets[k] : offsets[k + 1]] = gram.ravel()


def _precondition_pairs(
    starts, differences, kappa, own, factors, offsets, residual, out, begin, end
):  # pragma: no cover - compiled
    """D^-1 r - D^-1 A' C A D^-1 r of each piece, C being its factor."""
    dimension = len(kappa)
    most = most_pairs(starts, begin, end)
    buffer, other = np.empty(most, residual.dtype), np.empty(most, residual.dtype)
    for k in range(begin, end):
        first, width = starts[k], starts[k + 1] - starts[k]
        block, row = differences[first * dimension : (first + width) * dimension], out[k]
        row[0] = residual[k, 0] / own[k]
        for feature in range(dimension):
            row[feature + 1] = residual[k, feature + 1] / kappa[feature]
        images, scaled = buffer[:width], other[:width]
        images[:] = row[0]
        for feature in range(dimension):
            value, line = row[feature + 1], block[feature * width : (feature + 1) * width]
            for e in range(width):
                images[e] += value * line[e]
        scaled[:] = 0
        factor = factors[offsets[k] : offsets[k + 1]]
        for e in range(width):
            value, line = images[e], factor[e * width : (e + 1) * width]
            for f in range(width):
                scaled[f] += value * line[f]
        total = residual.dtype.type(0)
        for e in range(width):
            total += scaled[e]
        row[0] -= total / own[k]
        for feature in range(dimension):
            line = block[feature * width : (feature + 1) * width]
            total = residual.dtype.type(0)
            for e in range(width):
                total += scaled[e] * line[e]
            row[feature + 1] -= total / kappa[feature]


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
row_slacks = compiled(_row_slacks)
row_adjoint = compiled(_row_adjoint)
insert = compiled(_insert)
pair_differences = compiled(_pair_differences)
pair_spread = compiled(_pair_spread)
advance_pairs = compiled(_advance_pairs)
normal_pairs = compiled(_normal_pairs)
pair_slacks = compiled(_pair_slacks)
pair_grams = compiled(_pair_grams)
precondition = compiled(_precondition)
invert_in_place = compiled(_invert_in_place)
invert_pairs = compiled(_invert_pairs)
precondition_pairs = compiled(_precondition_pairs)
scan = compiled(_scan)
largest = compiled(_largest)
