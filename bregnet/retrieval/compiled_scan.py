"""Compiled passes of scans over all items or lists; a module of its own, so that the package does not import numba."""

from __future__ import annotations

import numpy as np

from bregnet._core.compiling import compiled

UNSIGNED = np.uint64  # with indices that cannot be negative, and without views, a pass takes 0.6 of the time
STEPS = UNSIGNED(64), UNSIGNED(16)  # products that are compared at once, and then those of such a part


def _reached_by(k, values, n):  # pragma: no cover - compiled
    """A number that at least k of the first n values reach, and not many more: bisection, 32 times at most.

    To count takes some nanoseconds, while a heap of the k largest, kept up to date, waits for branches: of 200,000
    products the candidates for the 100 nearest are found in 0.6 of its time, those for the 1000 nearest in half of it.
    """
    (low, high), (zero, one) = (values[0], values[0]), (np.float32(0), np.float32(1))
    for i in range(n):
        low, high = min(low, values[i]), max(high, values[i])
    for _ in range(32):
        middle = low + np.float32(0.5) * (high - low)
        if not low < middle < high:
            break
        count = zero
        for i in range(n):
            count += one if values[i] >= middle else zero  # in single precision: more of them in a vector
        if count < k:
            high = middle
            continue
        low = middle
        if count <= k + k // 16:
            break
    return low


def _compact(bound, values, rows, count):  # pragma: no cover - compiled
    """Keep, of the first `count` candidates, those that reach the bound; return their number."""
    kept = 0
    for i in range(count):  # without branches
        reaches = values[i] >= bound
        values[kept], rows[kept] = values[i], rows[i]
        kept += reaches
    return kept


def _exact(value, row, limits, lost):  # pragma: no cover - compiled
    """What an item's exact product is at least, but for rounding."""
    _, _, relative, above = limits
    return value - relative * abs(value) - above[row, 0] - lost * above[row, 1] if len(above) else value


def _below(value, margin, relative):  # pragma: no cover - compiled
    """What the products of all items that may be among the k nearest reach, where k exact ones reach a value."""
    return np.float32(value - margin - relative * abs(value))


def _raised(bound, limits, margin, lost, values, rows, count):  # pragma: no cover - compiled
    """The bound by the first `count` candidates, at least k, and how many of these it leaves."""
    k, _, relative, _ = limits
    least = np.empty(count, np.float32)
    for i in range(count):
        least[i] = exact(values[i], rows[i], limits, lost)
    bound = max(bound, below(reached_by(k, least, count), margin, relative))
    return bound, compact(bound, values, rows, count)


def _any_reaches(bound, products, number, start, stop):  # pragma: no cover - compiled
    """Whether one of the products of a row reaches the bound."""
    some = False
    for i in range(start, stop):
        some |= products[number, i] >= bound
    return some


def _keep(
    products, numbers, first, skipped, limits, margins, lost, bounds, counts, values, rows
):  # pragma: no cover - compiled
    """Append the products that reach the bound of their query to its candidates, and raise the bound now and then.

    Parameters
    ----------
    products : (c, n)
        Of some of m queries and the items from row `first` on, in single precision.
    numbers : (c,)
        Which queries these are.
    first : int
    skipped : (n_items,) or (0,)
        Whether an item is left out; none is where it is empty.
    limits : (k, room, relative, above)
        How many are looked for; how many candidates there may be; and how far products may be above the exact ones: by
        a share, and by two numbers of each item, if any, the second times what the query has lost.
    margins : (m,)
        All items whose product is within the margin of what the k-th largest is at least are kept.
    lost : (m,)
        How far the queries are from the exact ones.
    bounds, counts : (m,)
        What candidates must reach, and how many there are. A bound becomes infinite where they do not fit.
    values, rows : (m, width)
        The candidates, in the first `room` columns.
    """
    k, room, relative, _ = limits
    n, (step, few), places = UNSIGNED(products.shape[1]), STEPS, np.empty(16, np.uint64)
    for number in range(UNSIGNED(len(numbers))):
        q = numbers[number]
        bound, count = bounds[q], counts[q]
        if bound == -np.inf and n >= k and not len(skipped):  # or the first products would all be candidates
            least = np.empty(n, np.float32)
            for i in range(n):
                least[i] = exact(products[number, i], first + np.int64(i), limits, lost[q])
            bound = below(reached_by(k, least, n), margins[q], relative)
        for start in range(UNSIGNED(0), n, step):
            if not any_reaches(bound, products, number, start, min(start + step, n)):
                continue
            for sub in range(start, min(start + step, n), few):
                stop, n_places = min(sub + few, n), UNSIGNED(0)
                if not any_reaches(bound, products, number, sub, stop):
                    continue
                for i in range(sub, stop):  # without branches
                    places[n_places] = i
                    n_places += UNSIGNED(products[number, i] >= bound)
                for place in range(n_places):
                    i = places[place]
                    value, row = products[number, i], first + np.int64(i)
                    if value >= bound and not (len(skipped) and skipped[row]):
                        values[q, count], rows[q, count] = value, row
                        count += 1
                        if count == room:
                            bound, count = raised(bound, limits, margins[q], lost[q], values[q], rows[q], count)
                            if 8 * count > 7 * room:  # too many are nearly equal
                                bound, count = np.float32(np.inf), 0
        if 2 * count > room + k:
            bound, count = raised(bound, limits, margins[q], lost[q], values[q], rows[q], count)
        bounds[q], counts[q] = bound, count


def _keep_of_lists(
    asked, probes, vectors, starts, tile, skipped, limits, margins, lost, bounds, counts, values, rows
):  # pragma: no cover - compiled
    """The same for items in lists, each looked at with all queries that probe it; products are made here.

    With a call from Python for each list, threads wait for the interpreter: twice as long with 16 features.

    Parameters
    ----------
    asked : (m, width)
    probes : (m, n_probes)
        The lists that each query probes.
    vectors : (n_items, width)
        In single precision like `asked`, one list after the other.
    starts : (n_lists + 1,)
        Where each list begins.
    tile : (2,)
        Queries whose products are made at once, and items if there are as many queries.
    skipped, limits, margins, lost, bounds, counts, values, rows
        As for `keep`.
    """
    ends = np.zeros(len(starts), np.int64)
    for probe in probes.flat:
        ends[probe] += 1
    ends = np.cumsum(ends)
    numbers = np.empty(probes.size, np.int64)  # queries in the order of the lists that they probe
    for q in range(len(probes) - 1, -1, -1):
        for probe in probes[q]:
            ends[probe] -= 1
            numbers[ends[probe]] = q
    mine, products = np.empty((tile[0], asked.shape[1]), np.float32), np.empty(tile[0] * tile[1], np.float32)
    for number in range(len(starts) - 1):
        for first in range(ends[number], ends[number + 1], tile[0]):
            those = numbers[first : min(first + tile[0], ends[number + 1])]
            for i in range(len(those)):
                mine[i] = asked[those[i]]
            at_once = len(products) // len(those)
            for start in range(starts[number], starts[number + 1], at_once):
                some = vectors[start : min(start + at_once, starts[number + 1])]
                out = products[: len(those) * len(some)].reshape((len(those), len(some)))
                np.dot(mine[: len(those)], some.T, out)
                keep(out, those, start, skipped, limits, margins, lost, bounds, counts, values, rows)


def _keep_alone(
    query, tiles, first, stop, skipped, limits, margins, lost, bounds, counts, values, rows
):  # pragma: no cover - compiled
    """The same for one query and some items, whose products are made here, as fast as the items come from memory.

    Parameters
    ----------
    query : (width,)
        Numbers of half precision, as those of single precision.
    tiles : (n_tiles, width, size), uint16
        Items in half precision, a column for each: the upper 16 bits of numbers of single precision.
    first, stop : int
        The items to look at, from the first of a tile on.
    skipped, limits, margins, lost, bounds, counts, values, rows
        As for `keep`, of a single query.
    """
    width, size = UNSIGNED(tiles.shape[1]), UNSIGNED(tiles.shape[2])
    products, number, one = np.empty((1, size), np.float32), np.zeros(1, np.int64), UNSIGNED(1)
    for start in range(first, stop, size):
        tile, row = UNSIGNED(start) // size, UNSIGNED(0)
        products[0] = 0
        while row + UNSIGNED(4) <= width:  # products are read and written once for four features
            q0, q1, q2, q3 = query[row], query[row + one], query[row + one + one], query[row + one + one + one]
            for i in range(size):
                left = q0 * as_single(tiles, tile, row, i) + q1 * as_single(tiles, tile, row + one, i)
                right = q2 * as_single(tiles, tile, row + one + one, i)
                products[0, i] += left + (right + q3 * as_single(tiles, tile, row + one + one + one, i))
            row += UNSIGNED(4)
        while row < width:
            for i in range(size):
                products[0, i] += query[row] * as_single(tiles, tile, row, i)
            row += one
        out = products[:, : min(np.int64(size), stop - start)]
        keep(out, number, start, skipped, limits, margins, lost, bounds, counts, values, rows)


def _as_single(tiles, tile, row, column):  # pragma: no cover - compiled
    """A number of half precision, of which the upper 16 bits are given."""
    return np.uint32(np.uint32(tiles[tile, row, column]) << np.uint32(16)).view(np.float32)


def _take(counts, values, rows, more_counts, more_values, more_rows):  # pragma: no cover - compiled
    """Add the candidates of other items."""
    for q in range(len(counts)):
        for c in range(more_counts[q]):
            values[q, counts[q]], rows[q, counts[q]] = more_values[q, c], more_rows[q, c]
            counts[q] += 1


def _rank(
    limits,
    margins,
    lost,
    bounds,
    counts,
    values,
    rows,
    skipped,
    always,
    names,
    coarse,
    fine,
    vectors,
    terms,
    near_enough,
    ranked,
    found,
    doubtful,
):  # pragma: no cover - compiled
    """Divergences of the candidates in double precision, in order.

    Parameters
    ----------
    limits, margins, lost, bounds, counts, values, rows, skipped
        As `keep` left them. The bounds are raised for the last time.
    always : (n_always,)
    names : (n_items,) or (0,)
        What the rows that `keep` wrote stand for, where it was given lists.
    coarse, fine : (n_items, width)
    vectors : (m, width)
    terms : (m, 5)
        The offset and the reach of each query, below which divergence and below which difference to the next it must be
        computed again, and by how much it may be off for that.
    near_enough : (m,) or (0,)
        The margins of products in single precision, where those that were kept are in half precision.
    ranked, found : (m, width)
        Where the candidates and those that are `always` ranked go, nearest first, and their divergences; -1 and
        infinite where there are no more. If there are more than that, the bound becomes infinite.
    doubtful : (m,)
        Whether one of those that may belong to the answer must be computed again.
    """
    k = limits[0]
    for q in range(len(counts)):
        offset, reach, small, near, among = terms[q]
        count = counts[q]
        if count >= k:
            bounds[q], count = raised(bounds[q], limits, margins[q], lost[q], values[q], rows[q], count)
        if len(near_enough):  # most candidates leave here, for a third of what ranking them takes
            query = vectors[q].astype(np.float32)
            for c in range(count):
                row, total = UNSIGNED(rows[q, c]), np.float32(0.0)
                for f in range(UNSIGNED(vectors.shape[1])):
                    total += coarse[row, f] * query[f]
                values[q, c] = total
            if count >= k:
                least = below(reached_by(k, values[q], count), near_enough[q], np.float32(0.0))
                count = compact(least, values[q], rows[q], count)
        if count + len(always) > ranked.shape[1]:
            bounds[q], count = np.inf, 0
        for c in range(count):
            ranked[q, c] = names[rows[q, c]] if len(names) else rows[q, c]
        for row in always:
            ranked[q, count] = row
            count += 1
        for c in range(0, count, 4):  # four at a time: 0.7 of the time with 768 features
            places = c, min(c + 1, count - 1), min(c + 2, count - 1), min(c + 3, count - 1)
            r0, r1 = UNSIGNED(ranked[q, places[0]]), UNSIGNED(ranked[q, places[1]])
            r2, r3 = UNSIGNED(ranked[q, places[2]]), UNSIGNED(ranked[q, places[3]])
            t0 = t1 = t2 = t3 = 0.0
            for f in range(UNSIGNED(vectors.shape[1])):
                entry = vectors[q, f]
                t0 += (np.float64(coarse[r0, f]) + np.float64(fine[r0, f])) * entry
                t1 += (np.float64(coarse[r1, f]) + np.float64(fine[r1, f])) * entry
                t2 += (np.float64(coarse[r2, f]) + np.float64(fine[r2, f])) * entry
                t3 += (np.float64(coarse[r3, f]) + np.float64(fine[r3, f])) * entry
            totals = t0, t1, t2, t3
            for i in range(4):
                found[q, places[i]] = max(offset - reach * totals[i], 0.0)
        order = np.argsort(found[q, :count])
        found[q, :count], ranked[q, :count] = found[q, :count][order], ranked[q, :count][order]
        found[q, count:], ranked[q, count:] = np.inf, -1
        doubtful[q] = False
        for c in range(count):
            value = found[q, c]
            unclear = value <= small or (c > 0 and value - found[q, c - 1] <= near)
            unclear |= c + 1 < count and found[q, c + 1] - value <= near
            doubtful[q] |= unclear and (value <= found[q, k - 1] + among or (len(skipped) and skipped[ranked[q, c]]))


reached_by = compiled(_reached_by)
compact = compiled(_compact)
exact = compiled(_exact)
below = compiled(_below)
raised = compiled(_raised)
any_reaches = compiled(_any_reaches)
keep = compiled(_keep)
keep_of_lists = compiled(_keep_of_lists)
as_single = compiled(_as_single)
keep_alone = compiled(_keep_alone)
take = compiled(_take)
rank = compiled(_rank)
