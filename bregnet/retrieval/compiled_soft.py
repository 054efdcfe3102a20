"""Divergences of pairs under a smoothed maximum, compiled; a module of its own, so that the package imports no numba.

At a low temperature thousands of items are on the piece of a query, at divergences far below what inner products can
tell apart, and all of these pairs are computed one by one.
"""

from __future__ import annotations

import math

import numpy as np

from bregnet._core.compiling import compiled

MOST = 30.0  # beyond, exponentials are taken in logarithms
FACTORS = np.array([1 / math.factorial(n) for n in range(11, 1, -1)])


def _excess(s):  # pragma: no cover - compiled
    """exp(s) - 1 - s; a series where s is small, as in :func:`bregnet.divergences.classical.exp_excess`."""
    if abs(s) >= 1:
        return math.exp(s) - 1 - s  # a third of the time of expm1
    if abs(s) >= 0.1:
        return math.expm1(s) - s
    series = 0.0
    for factor in FACTORS:
        series = factor + series * s
    return s * s * series


def _soft_pairs(
    slopes, intercepts, temperature, firsts, first, seconds, second, values, sizes
):  # pragma: no cover - compiled
    """Write D(x, y) of pairs, as :meth:`bregnet.MaxAffine._soft_paired` has it, and the sizes of what is added up.

    Parameters
    ----------
    slopes, intercepts : (d, n_pieces), (n_pieces,)
    temperature : float
    firsts, first : (n_firsts, d), (n_pairs,)
        The points x, and the row of each pair's.
    seconds, second : (n_seconds, d), (n_pairs,)
        The points y.
    values, sizes : (n_pairs,)
    """
    n_features, n_pieces = slopes.shape
    heights, shares, z = np.empty(n_pieces), np.empty(n_pieces), np.empty(n_pieces)
    last, largest = -1, 0.0
    for pair in range(len(first)):
        x, y = firsts[first[pair]], seconds[second[pair]]
        if second[pair] != last:  # the softmax at y
            last = second[pair]
            heights[:] = intercepts
            for f in range(n_features):
                at, row = np.float64(y[f]), slopes[f]
                for k in range(n_pieces):
                    heights[k] += at * row[k]
            largest = np.max(np.abs(heights)) / temperature
            top = np.max(heights)
            for k in range(n_pieces):
                heights[k] = (heights[k] - top) / temperature
                shares[k] = math.exp(heights[k])
            total = np.sum(shares)
            heights -= math.log(total)  # logarithms of the shares from here on
            shares /= total
        z[:] = 0.0
        for f in range(n_features):
            apart, row = (np.float64(x[f]) - np.float64(y[f])) / temperature, slopes[f]
            for k in range(n_pieces):
                z[k] += apart * row[k]
        centre, most = 0.0, -np.inf
        for k in range(n_pieces):
            centre += shares[k] * z[k]
        excess = 0.0
        for k in range(n_pieces):
            apart = z[k] - centre
            z[k] = grown = heights[k] + apart
            most = max(most, grown)
            if abs(apart) <= MOST:
                excess += shares[k] * _excess(apart)
            else:
                excess += math.exp(min(grown, MOST)) - shares[k] * (1 + apart)
        if most > MOST:
            total = 0.0
            for k in range(n_pieces):
                total += math.exp(z[k] - most)
            values[pair] = temperature * (most + math.log(total))
        else:
            values[pair] = temperature * math.log1p(max(excess, 0.0))
        sizes[pair] = values[pair] * (1 + largest)


_excess = compiled(_excess)
soft_pairs = compiled(_soft_pairs)
