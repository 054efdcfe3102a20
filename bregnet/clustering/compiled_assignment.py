"""The compiled part of an assignment to centers; a module of its own, so that the package does not import numba.

A thread makes one call for all its points: in calls of less than some 0.1 ms threads wait for the interpreter lock one
after the other, so that products by a BLAS, tile by tile, took twice as long.
"""

from __future__ import annotations

import numpy as np

from bregnet._core.compiling import compiled


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


def _assign_all(
    start, stop, tiles, rough, rough_below, slack, planes, points, labels, gaps, sums, counts
):  # pragma: no cover - compiled
    """Assign the points of some tiles to the highest of k tangent planes, and add them up by label.

    Parameters
    ----------
    start, stop : int
        The tiles.
    tiles : (n_tiles, features, m)
        All points relative to the origin, scaled, in single precision; zeros where there are no more.
    rough, rough_below : (k, features) or (k + 1, features), (k,)
        Slopes, an even number of them, and depths at the origin, of the planes, scaled, in single precision.
    slack : (2,)
        Heights may be off by half of ``slack[0] * reach + slack[1]``. Planes within it of the highest are compared
        again in double precision.
    planes : origin (d,), slopes (k, d) and below (k,)
        In double precision.
    points : x (n, d), reach (n,), values (n,) and weights (n,) or (0,)
        The points, their scaled distances and their divergences from the origin; weights are 1 where there are none.
    labels, gaps : (n,)
        Replaced by the number of the plane, and by the divergence of each point from it.
    sums, counts : (k, d), (k,)
        Weighted points, and weights, of each label are added.

    Returns
    -------
    total : float
        Weighted sum of the gaps.
    changed : int
        How many labels are other ones than before.
    """
    origin, slopes, below = planes
    x, reach, values, weights = points
    k, m = len(rough_below), tiles.shape[2]
    heights, highest, second = np.empty((len(rough), m), np.float32), np.empty(m, np.float32), np.empty(m, np.float32)
    places = np.empty(m, np.float32)  # numbers that are exact up to 2**24
    total, changed = 0.0, 0
    for tile in range(start, stop):
        products(rough, tiles[tile], heights)
        two_highest(heights[:k], rough_below, highest, second, places)
        for i in range(min(m, len(x) - tile * m)):
            row, place = tile * m + i, int(places[i])
            margin = slack[0] * reach[row] + slack[1]
            height = height_at(x[row], origin, slopes[place], below[place])
            if not highest[i] - second[i] > margin:
                place = -1
                for c in range(k):
                    if not heights[c, i] - rough_below[c] < highest[i] - margin:
                        again = height_at(x[row], origin, slopes[c], below[c])
                        if place < 0 or again > height:
                            place, height = c, again
            gap, weight = values[row] - height, 1.0
            if gap < 0:
                gap = 0.0
            if len(weights):
                weight = np.float64(weights[row])
            changed += labels[row] != place
            labels[row], gaps[row] = place, gap
            total += weight * gap
            counts[place] += weight
            for f in range(x.shape[1]):
                sums[place, f] += weight * x[row, f]
    return total, changed


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


products = compiled(_products)
two_highest = compiled(_two_highest)
height_at = compiled(_height_at)
assign_all = compiled(_assign_all)
cut_into_tiles = compiled(_cut_into_tiles)
