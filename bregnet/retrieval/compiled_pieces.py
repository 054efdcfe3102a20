"""The compiled search in lists of pieces; a module of its own, so that the package does not import numba."""

from __future__ import annotations

import numpy as np

from bregnet._core.compiling import compiled
from bregnet.retrieval.items import KEPT_BITS


def _squared_distances(query, points, start, stop, weights, out):  # pragma: no cover - compiled
    """Squared distances of a query and the points (d, n) from `start` to `stop`, weighted if there are weights.

    They are rounded to fewer bits. Features are rows, so that the inner loop runs along points, in vector instructions.
    """
    size = stop - start
    for i in range(size):
        out[i] = 0.0
    for f in range(len(query)):
        weight = weights[f] if len(weights) else 1.0
        at, row = query[f], points[f, start:stop]
        for i in range(size):
            difference = row[i] - at
            out[i] += weight * difference * difference
    bits, cut = out.view(np.int64), 53 - KEPT_BITS
    half = 1 << (cut - 1)
    for i in range(size):
        bits[i] = (bits[i] + half) >> cut << cut


def _comes_before(value, distance, item_id, other_value, other_distance, other_id):  # pragma: no cover - compiled
    if value != other_value:
        return value < other_value
    if distance != other_distance:
        return distance < other_distance
    return item_id < other_id


def _insert(count, value, distance, item_id, row, values, distances, ids, rows):  # pragma: no cover - compiled
    """Insert an item among the `count` nearest; where there are k of them, the last is dropped."""
    k = len(values)
    at = min(count, k - 1)
    while at > 0 and _comes_before(value, distance, item_id, values[at - 1], distances[at - 1], ids[at - 1]):
        values[at], distances[at], ids[at], rows[at] = values[at - 1], distances[at - 1], ids[at - 1], rows[at - 1]
        at -= 1
    values[at], distances[at], ids[at], rows[at] = value, distance, item_id, row
    return min(count + 1, k)


def _walk(  # pragma: no cover - compiled
    gaps, tolerance, queries, starts, members, points, ids, curvatures, values, rows, counts
):
    """The nearest items of each query by (gap of the list + paraboloid, squared distance, id).

    Lists are visited in the order of their gaps until no other can change the answer. A gap within `tolerance` of the
    one before it ties with it; paraboloid and squared distances are rounded to fewer bits, so that they tie, too.

    Parameters
    ----------
    gaps : (m, n_lists)
        Divergence of each list's items without the paraboloid; overwritten.
    tolerance : (m,)
    queries : (m, d)
    starts, members : (n_lists + 1,), (n_members,)
        Items of list l are ``members[starts[l]:starts[l + 1]]``.
    points : (d, n_members)
        Points of the members, in their order.
    ids : (n_members,)
    curvatures : (d,) or (0,)
        Weights of a squared distance that is part of the divergence.
    values, rows : (m, k)
        Where the answer goes.
    counts : (m,)
        How many were found.
    """
    n_queries = len(gaps)
    k = values.shape[1]
    longest = np.max(np.diff(starts))
    distances, found_ids = np.empty(k), np.empty(k, dtype=np.int64)
    squares, added = np.empty(longest), np.zeros(longest)
    no_weights = np.empty(0)
    for q in range(n_queries):
        query, count, level, last = queries[q], 0, -np.inf, -np.inf
        while True:
            nearest = np.argmin(gaps[q])
            gap = gaps[q, nearest]
            if gap == np.inf:
                break
            level = level if gap - last <= tolerance[q] else gap
            last = gap
            if count == k and level > values[q, k - 1]:
                break
            gaps[q, nearest] = np.inf
            start, stop = starts[nearest], starts[nearest + 1]
            _squared_distances(query, points, start, stop, no_weights, squares)
            if len(curvatures):
                _squared_distances(query, points, start, stop, curvatures, added)
            for i in range(stop - start):
                value, squared, item_id = level + added[i], squares[i], ids[start + i]
                if count < k or _comes_before(
                    value, squared, item_id, values[q, k - 1], distances[k - 1], found_ids[k - 1]
                ):
                    row = members[start + i]
                    count = _insert(count, value, squared, item_id, row, values[q], distances, found_ids, rows[q])
        counts[q] = count


_squared_distances = compiled(_squared_distances)
_comes_before = compiled(_comes_before)
_insert = compiled(_insert)
walk = compiled(_walk)
