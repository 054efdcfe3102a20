"""Compiled passes over the state of all pairs, and sums over points, for the CPU.

Kept apart so that importing the package does not import numba.
"""

from __future__ import annotations

import numpy as np

from bregnet._core.compiling import compiled

POINT_BLOCK = 2048  # columns of the state handled while their points stay in the second-level cache


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


def _add_moments(out, amounts, points, start):  # pragma: no cover - compiled
    """Add sum_j amounts_j x_j over as many points, from `start` on, as there are amounts."""
    dimension, width = points.shape[0], len(amounts)
    stop = start + width
    zero = amounts.dtype.type(0)
    feature = 0
    while feature + 4 <= dimension:
        x0, x1 = points[feature, start:stop], points[feature + 1, start:stop]
        x2, x3 = points[feature + 2, start:stop], points[feature + 3, start:stop]
        s0 = s1 = s2 = s3 = zero
        for j in range(width):
            amount = amounts[j]
            s0 += amount * x0[j]
            s1 += amount * x1[j]
            s2 += amount * x2[j]
            s3 += amount * x3[j]
        out[feature] += s0
        out[feature + 1] += s1
        out[feature + 2] += s2
        out[feature + 3] += s3
        feature += 4
    while feature < dimension:
        x0, s0 = points[feature, start:stop], zero
        for j in range(width):
            s0 += amounts[j] * x0[j]
        out[feature] += s0
        feature += 1


def _advance(
    state, pieces, points, fitted, pull, push, bounds, relaxation, products, column_sums
):  # pragma: no cover - compiled
    """Update rows of w and accumulate W.xh and the column sums of W = w + 2 s while a block is in cache.

    w += g (r + s) with r_kj = u_k.xh_j - u_c(j).xh_j and s the prox of the loss at -w. Groups of points, with the
    same weights, lie together, so the weights are constants of the innermost loops.
    """
    n_rows, n_points = state.shape
    dimension = points.shape[0]
    zero, two = state.dtype.type(0), state.dtype.type(2)
    n_groups = len(bounds) - 1
    buffer = np.empty(POINT_BLOCK, state.dtype)
    column_sums[:] = 0
    products[:] = 0
    for start in range(0, n_points, POINT_BLOCK):
        width = min(POINT_BLOCK, n_points - start)
        stop = start + width
        anchor, totals, excess = fitted[start:stop], column_sums[start:stop], buffer[:width]
        for k in range(n_rows):
            row, piece = state[k, start:stop], pieces[k]
            intercept = piece[dimension]
            for j in range(width):
                excess[j] = intercept - anchor[j]
            add_products(excess, piece, points, start)
            total = zero
            for group in range(n_groups):
                first, last = max(bounds[group] - start, 0), min(bounds[group + 1] - start, width)
                if last <= first:
                    continue
                down, up = pull[k, group], push[k, group]
                entries, changes, sums = row[first:last], excess[first:last], totals[first:last]
                if up == zero:
                    for j in range(last - first):
                        value = entries[j]
                        value += relaxation * (changes[j] + max(-value - down, zero))
                        entries[j] = value
                        value += two * max(-value - down, zero)
                        changes[j] = value
                        sums[j] += value
                        total += value
                else:
                    for j in range(last - first):
                        value = entries[j]
                        aim = -value - down
                        value += relaxation * (changes[j] + max(max(aim, min(aim + up, two)), zero))
                        entries[j] = value
                        aim = -value - down
                        value += two * max(max(aim, min(aim + up, two)), zero)
                        changes[j] = value
                        sums[j] += value
                        total += value
            products[k, dimension] += total
            add_moments(products[k], excess, points, start)


def _pull(column_sums, lifted, products, kappa, wanted, out):  # pragma: no cover - compiled
    """sum_k W_kj xh_j - sum_j W_mj xh_j + kappa times the wanted slopes, a piece per point."""
    n, size = lifted.shape
    for k in range(n):
        for a in range(size - 1):
            out[k, a] = column_sums[k] * lifted[k, a] - products[k, a] + kappa * wanted[k, a]
        out[k, size - 1] = column_sums[k] * lifted[k, size - 1] - products[k, size - 1]


def _solve_rank_one(right, lifted, base, solved, shrink, left, coupling, out):  # pragma: no cover - compiled
    """Block 1 when every point has its own piece: in the terms of the factor in `normal`."""
    n, size = right.shape
    gathered = np.zeros(2 * size)
    for k in range(n):
        share = 0.0
        for a in range(size):
            share += right[k, a] * solved[k, a]
        share *= shrink[k]
        own = 0.0
        for a in range(size):
            value = -share * solved[k, a]
            for b in range(size):
                value += right[k, b] * base[b, a]
            out[k, a] = value
            own += value * lifted[k, a]
            gathered[size + a] += value
        for a in range(size):
            gathered[a] += own * lifted[k, a]
    shared = coupling @ gathered
    common = base @ shared[:size]
    for k in range(n):
        along, across = 0.0, 0.0
        for a in range(size):
            along += lifted[k, a] * shared[size + a]
            across += solved[k, a] * shared[a]
        along = left[k] * along - shrink[k] * across
        for a in range(size):
            out[k, a] += along * solved[k, a] + common[a]


def _fitted(pieces, lifted, cells, out):  # pragma: no cover - compiled
    """The value each point's own piece takes there."""
    n, size = lifted.shape
    for j in range(n):
        piece, total = pieces[cells[j]], 0.0
        for a in range(size):
            total += piece[a] * lifted[j, a]
        out[j] = total


def _cell_moments(values, lifted, cells, out):  # pragma: no cover - compiled
    """Add values_j xh_j to the row of each point's cell."""
    n, size = lifted.shape
    for j in range(n):
        row, value = out[cells[j]], values[j]
        for a in range(size):
            row[a] += value * lifted[j, a]


def _cell_grams(weights, lifted, cells, out):  # pragma: no cover - compiled
    """Add weight_j xh_j xh_j' to the matrix of each point's cell."""
    n, size = lifted.shape
    for j in range(n):
        gram, weight, point = out[cells[j]], weights[j], lifted[j]
        for a in range(size):
            scaled = weight * point[a]
            row = gram[a]
            for b in range(size):
                row[b] += scaled * point[b]


def _pair_moments(rows, columns, flow, lifted, out):  # pragma: no cover - compiled
    """Add flow_kj xh_j to the row of each pair's piece."""
    size = lifted.shape[1]
    for e in range(len(rows)):
        row, point, value = out[rows[e]], lifted[columns[e]], flow[e]
        for a in range(size):
            row[a] += value * point[a]


def _height_sums(values, height, above, count):  # pragma: no cover - compiled
    """Number and sum of the absolute entries of every column that exceed its height."""
    n_rows, n_columns = values.shape
    above[:] = 0
    count[:] = 0
    for k in range(n_rows):
        for feature in range(n_columns):
            size = abs(values[k, feature])
            above[feature] += size if size > height[feature] else 0.0
            count[feature] += 1.0 if size > height[feature] else 0.0


def _drain(children, parents, surplus, flow):  # pragma: no cover - compiled
    """Hand what every child has on to its parent, the last child first."""
    for e in range(len(children) - 1, -1, -1):
        flow[e] = surplus[children[e]]
        surplus[parents[e]] += flow[e]


def _match(givers, receivers, surplus, amounts):  # pragma: no cover - compiled
    """Let givers fill up receivers, one pair after the other, as far as there is something left on both sides."""
    for e in range(len(givers)):
        amount = min(surplus[givers[e]], -surplus[receivers[e]])
        if amount > 0:
            surplus[givers[e]] -= amount
            surplus[receivers[e]] += amount
            amounts[e] = amount


def _exchange(keys, staying, violated, left, joined, kept, places, again, leaving):  # pragma: no cover - compiled
    """Merge violated keys into others, all sorted, of which only those that stay or are violated are kept.

    Parameters
    ----------
    keys : (E,)
    staying : (E,)
        Whether a key is kept though it may not be violated.
    violated : (V,)
        May have a key several times.
    left : (L,)
        Keys that have left before.
    joined : (E + V,), out
        Kept and new keys.
    kept, places : (E,), out
        Which of the keys are kept, and where they are among those joined.
    again : (V,), out
        Where new keys that have left before are among those joined.
    leaving : (E,), out

    Returns
    -------
    n_joined, n_kept, n_again, n_leaving : int
    """
    n_joined = n_kept = n_again = n_leaving = 0
    v = here = 0
    for e in range(len(keys) + 1):
        # new keys before this one
        while v < len(violated) and (e == len(keys) or violated[v] < keys[e]):
            key = violated[v]
            if v == 0 or key != violated[v - 1]:
                while here < len(left) and left[here] < key:
                    here += 1
                if here < len(left) and left[here] == key:
                    again[n_again] = n_joined
                    n_again += 1
                joined[n_joined] = key
                n_joined += 1
            v += 1
        if e == len(keys):
            break
        needed = staying[e]
        while v < len(violated) and violated[v] == keys[e]:
            needed = True
            v += 1
        if needed:
            kept[n_kept], places[n_kept], joined[n_joined] = e, n_joined, keys[e]
            n_kept += 1
            n_joined += 1
        else:
            leaving[n_leaving] = keys[e]
            n_leaving += 1
    return n_joined, n_kept, n_again, n_leaving


add_products = compiled(_add_products)
add_moments = compiled(_add_moments)
advance = compiled(_advance)
cell_grams = compiled(_cell_grams)
pair_moments = compiled(_pair_moments)
fitted = compiled(_fitted)
cell_moments = compiled(_cell_moments)
pull = compiled(_pull)
solve_rank_one = compiled(_solve_rank_one)
height_sums = compiled(_height_sums)
drain = compiled(_drain)
match = compiled(_match)
exchange = compiled(_exchange)
