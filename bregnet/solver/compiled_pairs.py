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
EPSILON = (float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps))
BESIDE, MOST_BESIDE = 32, 50  # blocks that are inverted side by side, and up to which size that is faster
SCAN_BLOCK = 256  # points whose coordinates and excesses stay in the first-level cache while pieces pass over them


def _most_pairs(starts, begin, end):  # pragma: no cover - compiled
    """The largest number of pairs of any of the pieces."""
    most = 0
    for k in range(begin, end):
        most = max(most, starts[k + 1] - starts[k])
    return most


def _pair_differences(starts, points, coordinates, centers, out, begin, end):  # pragma: no cover - compiled
    """x_j - m_k of every pair (k, j): one (d, pairs of the piece) block after the other, flat."""
    dimension = coordinates.shape[1]
    for k in range(begin, end):
        first, width = starts[k], starts[k + 1] - starts[k]
        for feature in range(dimension):
            at = first * dimension + feature * width
            for e in range(width):
                out[at + e] = coordinates[points[first + e], feature] - centers[k, feature]


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


def _pair_spread(starts, points, differences, out, begin, end):  # pragma: no cover - compiled
    """Sums of squares of the differences of all pairs, by feature, and the number of pairs."""
    dimension = len(out) - 1
    block = np.empty((most_pairs(starts, begin, end), dimension), differences.dtype)
    for k in range(begin, end):
        width = starts[k + 1] - starts[k]
        row_differences(starts, points, differences, k, block)
        for e in range(width):
            for feature in range(dimension):
                out[feature] += block[e, feature] ** 2
        out[dimension] += width


def _space(starts, pieces, begin, end):  # pragma: no cover - compiled
    """What `slacks_of` and `sums_of` work in: sums, and slacks and points of a piece, with room for 3 more."""
    most, dimension, kind = most_pairs(starts, begin, end) + 3, pieces.shape[1] - 1, pieces.dtype
    return np.empty(dimension, kind), np.empty(most, kind), np.empty(most, np.uint64)


def _slacks_few(starts, points, differences, pieces, fitted, k, out):  # pragma: no cover - compiled
    """`slacks_of` for few features: the pairs of a piece are handled side by side.

    Indices are unsigned: numba need not ask of each whether it counts from the end, which takes a third of the time.
    """
    one, four, zero = UNSIGNED(1), UNSIGNED(4), pieces.dtype.type(0)
    dimension, first = UNSIGNED(pieces.shape[1] - 1), UNSIGNED(starts[k])
    width = UNSIGNED(starts[k + one]) - first
    base, value = first * dimension, pieces[k, UNSIGNED(0)]
    for e in range(width):
        out[first + e] = fitted[UNSIGNED(points[first + e])] - value
    feature = UNSIGNED(0)
    while feature + four <= dimension:
        x0 = base + feature * width
        x1, x2, x3 = x0 + width, x0 + width + width, x0 + width + width + width
        a0, a1 = pieces[k, feature + one], pieces[k, feature + one + one]
        a2, a3 = pieces[k, feature + four - one], pieces[k, feature + four]
        for e in range(width):
            left = a0 * differences[x0 + e] + a1 * differences[x1 + e]
            out[first + e] -= left + (a2 * differences[x2 + e] + a3 * differences[x3 + e])
        feature += four
    while feature < dimension:
        more = feature + one < dimension
        x0 = base + feature * width
        x1 = x0 + width if more else x0
        a0, a1 = pieces[k, feature + one], pieces[k, feature + one + one] if more else zero
        for e in range(width):
            out[first + e] -= a0 * differences[x0 + e] + a1 * differences[x1 + e]
        feature += one + one


def _sums_few(starts, points, differences, values, k, rows, arriving):  # pragma: no cover - compiled
    """`sums_of` for few features."""
    zero, one, four = values.dtype.type(0), UNSIGNED(1), UNSIGNED(4)
    dimension, first = UNSIGNED(rows.shape[1] - 1), UNSIGNED(starts[k])
    width, total = UNSIGNED(starts[k + one]) - first, zero
    base = first * dimension
    for e in range(width):
        total += values[first + e]
    for e in range(width):
        arriving[UNSIGNED(points[first + e])] += values[first + e]
    rows[k, UNSIGNED(0)] = -total
    feature = UNSIGNED(0)
    while feature + four <= dimension:
        x0 = base + feature * width
        x1, x2, x3 = x0 + width, x0 + width + width, x0 + width + width + width
        s0 = s1 = s2 = s3 = zero
        for e in range(width):
            value = values[first + e]
            s0 += value * differences[x0 + e]
            s1 += value * differences[x1 + e]
            s2 += value * differences[x2 + e]
            s3 += value * differences[x3 + e]
        rows[k, feature + one], rows[k, feature + one + one] = -s0, -s1
        rows[k, feature + four - one], rows[k, feature + four] = -s2, -s3
        feature += four
    while feature < dimension:
        last = feature + one == dimension
        x0 = base + feature * width
        x1 = x0 if last else x0 + width
        s0 = s1 = zero
        for e in range(width):
            value = values[first + e]
            s0 += value * differences[x0 + e]
            s1 += value * differences[x1 + e]
        rows[k, dimension if last else feature + one + one] = -s1
        rows[k, feature + one] = -s0
        feature += one + one


def _slacks_many(starts, points, coordinates, pieces, fitted, k, out, space):  # pragma: no cover - compiled
    """`slacks_of` for many features: those of a pair are handled side by side.

    `coordinates` are the points themselves, (n, d), each with a piece of its own: they stay in cache, differences of
    pairs would not. The point of the piece is subtracted once for all its pairs, of which four are handled at a time:
    this takes two thirds of the time with 101 features.
    """
    _, slack, here = space
    zero, one, two, three = pieces.dtype.type(0), UNSIGNED(1), UNSIGNED(2), UNSIGNED(3)
    dimension, first, value = UNSIGNED(pieces.shape[1] - 1), UNSIGNED(starts[k]), pieces[k, UNSIGNED(0)]
    width = UNSIGNED(starts[k + one]) - first
    for e in range(width):
        here[e] = points[first + e]
    for e in range(width, width + three):
        here[e] = k  # without a slack, so that there are four at a time
    for feature in range(dimension):
        value -= pieces[k, one + feature] * coordinates[k, feature]
    # loops of their own: with a store in it, whether a sum is vectorized, and so rounds, depends on addresses
    for e in range(UNSIGNED(0), width, UNSIGNED(4)):
        p0, p1, p2, p3 = here[e], here[e + one], here[e + two], here[e + three]
        s0 = s1 = s2 = s3 = zero
        for feature in range(dimension):
            slope = pieces[k, one + feature]
            s0 += slope * coordinates[p0, feature]
            s1 += slope * coordinates[p1, feature]
            s2 += slope * coordinates[p2, feature]
            s3 += slope * coordinates[p3, feature]
        slack[e], slack[e + one], slack[e + two], slack[e + three] = s0, s1, s2, s3
    for e in range(width):
        out[first + e] = fitted[here[e]] - value - slack[e]


def _sums_many(starts, points, coordinates, values, k, rows, arriving, space):  # pragma: no cover - compiled
    """`sums_of` for many features, without copies of points and values: to read what was just written takes time."""
    sums, total, one = space[0], values.dtype.type(0), UNSIGNED(1)
    dimension, first, stop = UNSIGNED(rows.shape[1] - 1), UNSIGNED(starts[k]), UNSIGNED(starts[k + one])
    whole = stop - (stop - first) % UNSIGNED(4)
    for e in range(first, stop):
        total += values[e]
    for e in range(first, stop):
        arriving[UNSIGNED(points[e])] += values[e]
    for feature in range(dimension):
        sums[feature] = -total * coordinates[k, feature]
    for e in range(first, whole, UNSIGNED(4)):
        e1, e2, e3 = e + one, e + UNSIGNED(2), e + UNSIGNED(3)
        p0, p1, p2, p3 = UNSIGNED(points[e]), UNSIGNED(points[e1]), UNSIGNED(points[e2]), UNSIGNED(points[e3])
        s0, s1, s2, s3 = values[e], values[e1], values[e2], values[e3]
        for feature in range(dimension):
            left = s0 * coordinates[p0, feature] + s1 * coordinates[p1, feature]
            sums[feature] += left + (s2 * coordinates[p2, feature] + s3 * coordinates[p3, feature])
    for e in range(whole, stop):
        value, point = values[e], UNSIGNED(points[e])
        for feature in range(dimension):
            sums[feature] += value * coordinates[point, feature]
    rows[k, UNSIGNED(0)] = -total
    for feature in range(dimension):
        rows[k, one + feature] = -sums[feature]


def _slacks_of(starts, points, differences, pieces, fitted, k, out, space):  # pragma: no cover - compiled
    """R u of the pairs of one piece, into their places in `out` (E,)."""
    if differences.ndim == 2:
        slacks_many(starts, points, differences, pieces, fitted, k, out, space)
    else:
        slacks_few(starts, points, differences, pieces, fitted, k, out)


def _sums_of(starts, points, differences, values, k, rows, arriving, space):  # pragma: no cover - compiled
    """What values (E,) of the pairs of one piece add to R't: its row, and what arrives at their points."""
    if differences.ndim == 2:
        sums_many(starts, points, differences, values, k, rows, arriving, space)
    else:
        sums_few(starts, points, differences, values, k, rows, arriving)


def _pair_slacks(starts, points, differences, pieces, fitted, out, begin, end):  # pragma: no cover - compiled
    """R u, the slacks of all pairs."""
    space = space_of(starts, pieces, begin, end)
    for k in range(UNSIGNED(begin), UNSIGNED(end)):
        slacks_of(starts, points, differences, pieces, fitted, k, out, space)


def _pair_sums(starts, points, differences, values, rows, arriving, begin, end):  # pragma: no cover - compiled
    """R't, in two parts: by the pairs' pieces, and by their points."""
    arriving[:] = 0
    space = space_of(starts, rows, begin, end)
    for k in range(UNSIGNED(begin), UNSIGNED(end)):
        sums_of(starts, points, differences, values, k, rows, arriving, space)


def _pair_pass(
    starts, points, differences, pieces, fitted, weights, slack, rows, arriving, begin, end
):  # pragma: no cover - compiled
    """R't as in `pair_sums`, for t = weights * R u (no weights: R u), which `slack` (E,) is left with."""
    arriving[:] = 0
    space = space_of(starts, pieces, begin, end)
    for k in range(UNSIGNED(begin), UNSIGNED(end)):
        slacks_of(starts, points, differences, pieces, fitted, k, slack, space)
        if len(weights) > 0:
            for e in range(UNSIGNED(starts[k]), UNSIGNED(starts[k + UNSIGNED(1)])):
                slack[e] *= weights[e]
        sums_of(starts, points, differences, slack, k, rows, arriving, space)


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


def _invert_in_place(matrix):  # pragma: no cover - compiled
    """Inverse of a positive definite matrix whose lower half is given, by sweeps of Gauss-Jordan on that half."""
    size, one = UNSIGNED(len(matrix)), UNSIGNED(1)
    row = np.empty(len(matrix), matrix.dtype)
    for p in range(size):
        for b in range(p):
            row[b] = matrix[p, b]
        for b in range(p, size):
            row[b] = matrix[b, p]
        inverse = 1 / row[p]
        for a in range(size):
            factor = row[a] * inverse
            for b in range(a + one):
                matrix[a, b] -= factor * row[b]
        for b in range(p):
            matrix[p, b] = row[b] * inverse
        for a in range(p + one, size):
            matrix[a, p] = row[a] * inverse
        matrix[p, p] = -inverse
    for a in range(size):
        for b in range(a + one):
            matrix[a, b] = matrix[b, a] = -matrix[a, b]


def _pair_matrix(block, kappa, own, matrix):  # pragma: no cover - compiled
    """I + A D^-1 A' of the rows (1, x_j - m_k) of A, with D = (own, kappa)."""
    dimension = block.shape[1]
    for e in range(len(matrix)):
        for feature in range(dimension):
            block[e, feature] /= np.sqrt(kappa[feature])
    for e in range(len(matrix)):
        for f in range(e + 1):
            total = 1 / own
            for feature in range(dimension):
                total += block[e, feature] * block[f, feature]
            matrix[e, f] = total
        matrix[e, e] += 1


def _add_outer(row, weight, matrix):  # pragma: no cover - compiled
    """Add the lower half of weight (1, row)(1, row)'."""
    matrix[0, 0] += weight
    for p in range(len(row)):
        value, line = weight * row[p], matrix[p + 1]
        line[0] += value
        for q in range(p + 1):
            line[q + 1] += value * row[q]


def _scale_block(matrix, scale):  # pragma: no cover - compiled
    """Scale a positive definite matrix whose lower half is given, so that its diagonal is 1 and a little more."""
    size = len(matrix)
    for p in range(size):
        scale[p] = 1 / np.sqrt(matrix[p, p]) if matrix[p, p] > 0 else 1
    for p in range(size):
        for q in range(p):
            matrix[p, q] *= scale[p] * scale[q]
        matrix[p, p] = 1 + 10 * size * EPSILON[matrix.itemsize // 8]  # rounding


def _unscale_block(matrices, number, scale, out):  # pragma: no cover - compiled
    """The inverse of the matrix that was scaled, from one of those that `invert_beside` leaves."""
    for p in range(len(out)):
        for q in range(p + 1):
            out[p, q] = out[q, p] = -matrices[p, q, number] * scale[p] * scale[q]


def _add_gram(block, width, matrix):  # pragma: no cover - compiled
    """Add the lower half of the sum of (1, row)(1, row)' over rows, four at a time; there is room for 3 more."""
    dimension = block.shape[1]
    block[width : width + 3] = 0
    matrix[0, 0] += width
    for e in range(0, width, 4):
        r0, r1, r2, r3 = block[e], block[e + 1], block[e + 2], block[e + 3]
        for p in range(dimension):
            v0, v1, v2, v3, line = r0[p], r1[p], r2[p], r3[p], matrix[p + 1]
            line[0] += v0 + v1 + v2 + v3
            for q in range(p + 1):
                line[q + 1] += v0 * r0[q] + v1 * r1[q] + (v2 * r2[q] + v3 * r3[q])


def _invert_beside(matrices, row, factor):  # pragma: no cover - compiled
    """Minus the inverses of positive definite matrices (m, m, b) side by side, whose lower halves are given.

    The sweeps of `invert_in_place`, in a sixth of the time with 33 rows: loops are long enough for vectors.
    """
    size, beside = matrices.shape[0], matrices.shape[2]
    for p in range(size):
        for a in range(size):
            given = matrices[p, a] if a < p else matrices[a, p]
            for b in range(beside):
                row[a, b] = given[b]
        for b in range(beside):
            factor[size, b] = 1 / row[p, b]
        for a in range(size):
            for b in range(beside):
                factor[a, b] = row[a, b] * factor[size, b]
        for a in range(size):
            for c in range(a + 1):
                line, one, other = matrices[a, c], factor[a], row[c]
                for b in range(beside):
                    line[b] -= one[b] * other[b]
        for a in range(size):
            swept, found = matrices[p, a] if a < p else matrices[a, p], factor[a]
            for b in range(beside):
                swept[b] = found[b]
        for b in range(beside):
            matrices[p, p, b] = -factor[size, b]


def _invert(
    pairs, members, kappa, at_points, by_pairs, starts_of, own, out, columns, begin, end
):  # pragma: no cover - compiled
    """Of each piece the inverse of its diagonal block D + A'A, or C of :mod:`bregnet.solver.preconditioner`.

    Where `columns` are wanted, they are the first ones of the inverses.
    """
    starts, points, differences = pairs
    cell_starts, cell_points, offsets = members
    dimension, kind = len(kappa), differences.dtype
    most = most_pairs(starts, begin, end)
    block, nothing = np.empty((most + 3, dimension), kind), np.zeros(dimension, kind)
    size, beside = dimension + 1, BESIDE if dimension < MOST_BESIDE else 1
    matrix, scale = np.empty((size, size), kind), np.empty((beside, size), kind)
    matrices, row = np.zeros((size, size, beside), kind), np.empty((size, beside), kind)
    scaled_row, numbers, count = np.empty((size + 1, beside), kind), np.empty(beside, np.int64), 0
    for p in range(size):
        matrices[p, p] = 1  # also those that are not used at the end have an inverse
    work, inverse = space_by_pairs(most, kappa), 1 / kappa
    unit, column = np.zeros((1, 1, dimension + 1), kind), np.empty((1, 1, dimension + 1), kind)
    unit[0, 0, 0] = 1
    for k in range(begin, end):
        width = starts[k + 1] - starts[k]
        row_differences(starts, points, differences, k, block)
        if by_pairs[k]:
            own[k] = max(at_points[cell_points[cell_starts[k]]], kind.type(1))
            factor = out[starts_of[k] : starts_of[k + 1]]
            pair_matrix(block, kappa, own[k], factor.reshape((width, width)))
            invert_in_place(factor.reshape((width, width)))
            if len(columns) > 0:
                nought = UNSIGNED(0)
                divide_by_pairs(*pairs, UNSIGNED(k), inverse, own[k], factor, nought, unit, column, nought, work)
                columns[k] = column[0, 0]
        else:
            matrix[:] = 0
            for feature in range(dimension):
                matrix[feature + 1, feature + 1] = kappa[feature]
            add_gram(block, width, matrix)
            for at in range(cell_starts[k], cell_starts[k + 1]):
                j = cell_points[at]
                add_outer(nothing if len(offsets) == 0 else offsets[j], at_points[j], matrix)
            scale_block(matrix, scale[count])
            if beside == 1:
                invert_in_place(matrix)
            for p in range(size):
                for q in range(p + 1):
                    matrices[p, q, count] = -matrix[p, q] if beside == 1 else matrix[p, q]
            numbers[count] = k
            count += 1
        if count < beside and k < end - 1:
            continue
        if count > 0 and beside > 1:
            invert_beside(matrices, row, scaled_row)
        for number in range(count):
            m = numbers[number]
            found = out[starts_of[m] : starts_of[m + 1]].reshape((size, size))
            unscale_block(matrices, number, scale[number], found)
            if len(columns) > 0:
                columns[m] = found[0]
        count = 0


def _space_by_pairs(most, kappa):  # pragma: no cover - compiled
    """What `precondition_by_pairs` works in, for pieces with so many pairs."""
    kind = kappa.dtype
    return np.empty(most + 3, kind), np.empty(most + 3, kind), np.empty(len(kappa), kind), np.empty(most + 3, np.uint64)


def _precondition_by_pairs(
    starts, points, coordinates, k, inverse, own, factors, at, given, out, number, work
):  # pragma: no cover - compiled
    """D^-1 r - D^-1 A' C A D^-1 r of one piece, for row `number` of each mode (M, ., d + 1), by arrays without views.

    `inverse` is that of kappa, and C starts at `at`.
    As in `slacks_many`, from the points themselves, four at a time.
    """
    images, scaled, row, here = work
    n_modes, dimension, zero = UNSIGNED(len(given)), UNSIGNED(len(inverse)), UNSIGNED(0)
    one, two, three = UNSIGNED(1), UNSIGNED(2), UNSIGNED(3)
    first = UNSIGNED(starts[k])
    width = UNSIGNED(starts[k + 1]) - first
    for e in range(width):
        here[e] = points[first + e]
    for e in range(width, width + three):
        here[e], scaled[e] = k, 0
    for mode in range(n_modes):
        base = given[mode, number, zero] / own
        for feature in range(dimension):
            row[feature] = given[mode, number, feature + one] * inverse[feature]
        for feature in range(dimension):
            base -= row[feature] * coordinates[k, feature]
        for e in range(zero, width, UNSIGNED(4)):
            p0, p1, p2, p3 = here[e], here[e + one], here[e + two], here[e + three]
            s0 = s1 = s2 = s3 = base
            for feature in range(dimension):
                value = row[feature]
                s0 += value * coordinates[p0, feature]
                s1 += value * coordinates[p1, feature]
                s2 += value * coordinates[p2, feature]
                s3 += value * coordinates[p3, feature]
            images[e], images[e + one], images[e + two], images[e + three] = s0, s1, s2, s3
        for e in range(width):
            scaled[e] = 0
        for e in range(width, width + three):
            images[e] = 0
        for e in range(zero, width, UNSIGNED(4)):
            s0, s1, s2, s3 = images[e], images[e + one], images[e + two], images[e + three]
            a0, a1 = at + e * width, at + min(e + one, width - one) * width
            a2, a3 = at + min(e + two, width - one) * width, at + min(e + three, width - one) * width
            for f in range(width):
                left = s0 * factors[a0 + f] + s1 * factors[a1 + f]
                scaled[f] += left + (s2 * factors[a2 + f] + s3 * factors[a3 + f])
        total = images.dtype.type(0)
        for e in range(width):
            total += scaled[e]
        for feature in range(dimension):
            row[feature] = given[mode, number, feature + one] + total * coordinates[k, feature]
        for e in range(zero, width, UNSIGNED(4)):
            p0, p1, p2, p3 = here[e], here[e + one], here[e + two], here[e + three]
            s0, s1, s2, s3 = scaled[e], scaled[e + one], scaled[e + two], scaled[e + three]
            for feature in range(dimension):
                left = s0 * coordinates[p0, feature] + s1 * coordinates[p1, feature]
                row[feature] -= left + (s2 * coordinates[p2, feature] + s3 * coordinates[p3, feature])
        out[mode, number, zero] = (given[mode, number, zero] - total) / own
        for feature in range(dimension):
            out[mode, number, feature + one] = row[feature] * inverse[feature]


def _divide_by_pairs(starts, points, differences, *given):  # pragma: no cover - compiled
    """`precondition_by_pairs` where there are the points themselves: no piece goes by its pairs otherwise."""
    if differences.ndim == 2:
        precondition_by_pairs(starts, points, differences, *given)


def _multiply(factors, at, residual, out, mode, k):  # pragma: no cover - compiled
    """The product of a symmetric matrix, which starts at `at`, with row k of one mode, by arrays without views."""
    size = UNSIGNED(residual.shape[2])
    for a in range(size):
        total, line = residual.dtype.type(0), at + a * size
        for b in range(size):
            total += factors[line + b] * residual[mode, k, b]
        out[mode, k, a] = total


def _multiply_both(factors, at, residual, out, k):  # pragma: no cover - compiled
    """The same with the rows of two modes at once: reading the matrix takes the time."""
    size, zero, one = UNSIGNED(residual.shape[2]), UNSIGNED(0), UNSIGNED(1)
    for a in range(size):
        total = second = residual.dtype.type(0)
        line = at + a * size
        for b in range(size):
            total += factors[line + b] * residual[zero, k, b]
            second += factors[line + b] * residual[one, k, b]
        out[zero, k, a], out[one, k, a] = total, second


def _precondition(first, pairs, preconditioner, kappa, residual, out, begin, end):  # pragma: no cover - compiled
    """Products of the inverse of each piece's block with its row, for one or two modes (M, K, d + 1) from `first` on.

    Two modes may share their matrices, but for a weight of the data on the first entry of the last mode.
    """
    starts, _, _ = pairs
    own, factors, starts_of, by_pairs, columns, weights = preconditioner
    n_modes, _, size = residual.shape
    last = UNSIGNED(n_modes - 1)
    most = most_pairs(starts, begin, end)
    work, inverse = space_by_pairs(most, kappa), 1 / kappa
    shared = len(factors) == 1
    for k in range(UNSIGNED(begin), UNSIGNED(end)):
        at = UNSIGNED(starts_of[k])
        if by_pairs[k]:
            divide_by_pairs(*pairs, k, inverse, own[k], factors[0], at, residual, out, k, work)
        elif shared and n_modes == 2:
            multiply_both(factors[0], at, residual, out, k)
        else:
            for mode in range(UNSIGNED(n_modes)):
                multiply(factors[0 if shared else first + mode], at, residual, out, mode, k)
        if len(columns) > 0 and first + n_modes == 2:
            value = out[last, k, UNSIGNED(0)] / (1 + weights[k] * columns[k, UNSIGNED(0)])
            factor_of_column = weights[k] * value
            for a in range(UNSIGNED(size)):
                out[last, k, a] -= factor_of_column * columns[k, a]
            out[last, k, UNSIGNED(0)] = value


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
    they are counted first, which vectorizes, and looked for where there are any.
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
space_of = compiled(_space)
slacks_few = compiled(_slacks_few)
sums_few = compiled(_sums_few)
slacks_many = compiled(_slacks_many)
sums_many = compiled(_sums_many)
slacks_of = compiled(_slacks_of)
sums_of = compiled(_sums_of)
pair_slacks = compiled(_pair_slacks)
pair_sums = compiled(_pair_sums)
pair_pass = compiled(_pair_pass)
pair_grams = compiled(_pair_grams)
invert_in_place = compiled(_invert_in_place)
pair_matrix = compiled(_pair_matrix)
add_outer = compiled(_add_outer)
scale_block = compiled(_scale_block)
unscale_block = compiled(_unscale_block)
add_gram = compiled(_add_gram)
invert_beside = compiled(_invert_beside)
invert = compiled(_invert)
space_by_pairs = compiled(_space_by_pairs)
precondition_by_pairs = compiled(_precondition_by_pairs)
divide_by_pairs = compiled(_divide_by_pairs)
multiply = compiled(_multiply)
multiply_both = compiled(_multiply_both)
precondition = compiled(_precondition)
scan = compiled(_scan)
largest = compiled(_largest)
