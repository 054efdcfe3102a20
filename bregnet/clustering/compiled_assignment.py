"""The compiled part of an assignment to centers; a module of its own, so that the package does not import numba.

A thread makes one call for all its points: in calls of less than some 0.1 ms threads wait for the interpreter lock one
after the other, so that products by a BLAS, tile by tile, took twice as long.
"""

from __future__ import annotations

import numpy as np

from bregnet._core.compiling import compiled

LINE = 64  # bytes


def _products(slopes, points, out):  # pragma: no cover - compiled
    """Products of slopes (k, d) and points (d, m), with an even k and d a multiple of 4, in single precision."""
    for first in range(0, len(slopes), 2):  # two slopes and four features: a sum is loaded and stored less often
        other = first + 1
        for f in range(0, len(points), 4):
            a0, a1, a2, a3 = slopes[first, f], slopes[first, f + 1], slopes[first, f + 2], slopes[first, f + 3]
            b0, b1, b2, b3 = slopes[other, f], slopes[other, f + 1], slopes[other, f + 2], slopes[other, f + 3]
            for i in range(out.shape[1]):
                p0, p1, p2, p3 = points[f, i], points[f + 1, i], points[f + 2, i], points[f + 3, i]
                a = a0 * p0 + a1 * p1 + a2 * p2 + a3 * p3
                b = b0 * p0 + b1 * p1 + b2 * p2 + b3 * p3
                out[first, i] = a if f == 0 else out[first, i] + a
                out[other, i] = b if f == 0 else out[other, i] + b


def _two_highest(heights, below, highest, second, places):  # pragma: no cover - compiled
    """The highest plane at each point, its number, and the second highest; parameters as in `_assign_all`."""
    k, m = heights.shape
    highest[:], second[:], places[:] = -np.inf, -np.inf, 0
    for c in range(k):
        lower, number = below[c], np.float32(c)
        for i in range(m):  # all points at once, so that it runs in vector instructions
            height, before, next_before, place = heights[c, i] - lower, highest[i], second[i], places[i]
            above = height > before
            lesser = before if above else height
            second[i] = lesser if lesser > next_before else next_before
            places[i] = number if above else place
            highest[i] = height if above else before


def _assign_all(start, stop, tiles, scales, steepness, planes, points, labels, gaps):  # pragma: no cover - compiled
    """Assign the points of some tiles to the highest of k tangent planes, and add them up by label.

    Parameters
    ----------
    start, stop : int
        The tiles.
    tiles : (n_tiles, features, m)
        All points relative to the origin, scaled, in single precision; zeros where there are no more.
    scales : tuple of float
        What the points of the tiles are scaled by, and what slopes are to be scaled by.
    steepness : float
        The length of the longest slope.
    planes : origin (d,), slopes (k, d) and below (k,)
        In double precision.
    points : x (n, d), reach (n,), values (n,) and weights (n,) or (0,)
        The points, their scaled distances and their divergences from the origin; weights are 1 where there are none.
    labels, gaps : (n,)
        Replaced by the number of the plane, and by the divergence of each point from it.

    Returns
    -------
    sums : (k, d)
        Weighted sum of the points of each label.
    counts : (k,)
        Weight of each label.
    total : float
        Weighted sum of the gaps.
    changed : int
        How many labels are other ones than before.
    """
    x, reach, values, weights = points
    k, m = len(planes[2]), tiles.shape[2]
    room = zeros_in_line(k + k % 2 + 3, m, np.float32)
    heights, highest, second, places = room[:-3], room[-3], room[-2], room[-1]  # places are exact up to 2**24
    sums, counts = zeros_in_line(k, x.shape[1], np.float64), np.zeros(k)
    rough, rough_below, slack = in_single(planes, scales, steepness, len(heights), tiles.shape[1])
    total, changed = 0.0, 0
    for tile in range(start, stop):
        first, last = tile * m, min(tile * m + m, len(x))
        some, own = x[first:last], labels[first:last]
        products(rough, tiles[tile], heights)
        two_highest(heights[:k], rough_below, highest, second, places)
        settle(heights, rough_below, slack, planes, some, reach[first:last], highest, second, places)
        changed += relabel(places, own)
        total += add_up(some, own, values[first:last], weights[first:last], planes, gaps[first:last], sums, counts)
    return sums, counts, total, changed


def _zeros_in_line(n_rows, n_columns, precision):  # pragma: no cover - compiled
    """Zeros that begin at a cache line, from where vectors are read and written in one piece."""
    size, room = n_rows * n_columns, np.zeros(n_rows * n_columns + LINE, precision)
    first = -room.ctypes.data % LINE // room.itemsize
    return room[first : first + size].reshape(n_rows, n_columns)


def _in_single(planes, scales, steepness, n_rows, n_columns):  # pragma: no cover - compiled
    """Slopes (n_rows, n_columns), zeros beyond those of the planes, depths (k,), both scaled, and the slack (2,).

    Heights may be off by half of ``slack[0] * reach + slack[1]``.
    """
    _, slopes, below = planes
    (k, d), (scale, unit) = slopes.shape, scales
    rough, rough_below = np.zeros((n_rows, n_columns), np.float32), np.empty(k, np.float32)
    for c in range(k):
        rough_below[c] = below[c] * unit * scale
        for f in range(d):
            rough[c, f] = slopes[c, f] * unit
    # Twice what rounding of the factors, the sum and the depth may add up to; the last term is for underflow.
    terms = (d + 4) * steepness * unit, 2 * np.float64(rough_below.max()) + 2.0**-80
    return rough, rough_below, (2.0**-23 * terms[0], 2.0**-23 * terms[1])


def _settle(heights, below, slack, planes, x, reach, highest, second, places):  # pragma: no cover - compiled
    """Compare planes again, in double precision, where single precision cannot tell the highest."""
    origin, slopes, exact_below = planes
    doubtful = 0
    for i in range(len(x)):  # all points at once, so that it runs in vector instructions; there are seldom any
        doubtful += not highest[i] - second[i] > slack[0] * reach[i] + slack[1]
    if doubtful == 0:
        return
    for i in range(len(x)):
        margin = slack[0] * reach[i] + slack[1]
        if highest[i] - second[i] > margin:
            continue
        place, height = -1, 0.0
        for c in range(len(below)):
            if not heights[c, i] - below[c] < highest[i] - margin:
                again = height_at(x[i], origin, slopes[c], exact_below[c])
                if place < 0 or again > height:
                    place, height = c, again
        places[i] = place


def _relabel(places, labels):  # pragma: no cover - compiled
    """Replace labels; returns how many were other ones."""
    changed = 0
    for i in range(len(labels)):
        place = int(places[i])
        changed += labels[i] != place
        labels[i] = place
    return changed


def _add_up(x, labels, values, weights, planes, gaps, sums, counts):  # pragma: no cover - compiled
    """Set gaps, add points to the sums of their labels, and return the weighted sum of the gaps."""
    origin, slopes, below = planes
    for i in range(len(x)):
        weight = np.float64(weights[i]) if len(weights) else 1.0
        point, slope, into = x[i], slopes[labels[i]], sums[labels[i]]
        height = 0.0
        for f in range(len(point)):  # a point is read once for both
            height += (point[f] - origin[f]) * slope[f]
            into[f] += weight * point[f]
        gaps[i] = height - below[labels[i]]
        counts[labels[i]] += weight
    total = 0.0
    for i in range(len(x)):
        gap = values[i] - gaps[i]
        gaps[i] = 0.0 if gap < 0 else gap
        total += np.float64(weights[i]) * gaps[i] if len(weights) else gaps[i]
    return total


def _height_at(x, origin, slope, below):  # pragma: no cover - compiled
    """Height of a plane at a point, both relative to the origin."""
    total = 0.0
    for f in range(len(x)):
        total += (x[f] - origin[f]) * slope[f]
    return total - below


def _cut_into_tiles(x, origin, scale, tiles):  # pragma: no cover - compiled
    """Write points relative to the origin and scaled to tiles, feature by feature; parameters as in `_assign_all`."""
    m = tiles.shape[2]
    for row in range(len(x)):
        for f in range(x.shape[1]):
            tiles[row // m, f, row % m] = (x[row, f] - origin[f]) * scale


zeros_in_line = compiled(_zeros_in_line)
products = compiled(_products)
two_highest = compiled(_two_highest)
height_at = compiled(_height_at)
in_single = compiled(_in_single)
settle = compiled(_settle)
relabel = compiled(_relabel)
add_up = compiled(_add_up)
assign_all = compiled(_assign_all)
cut_into_tiles = compiled(_cut_into_tiles)
