"""Average precision where items tie, one place at a time and in exact fractions."""

from fractions import Fraction

import numpy as np


def expected_average_precision(relevant, scores):
    """As scikit-learn's ``average_precision_score``, but with tied items in random order: the expected value."""
    relevant, scores = np.asarray(relevant, dtype=bool), np.asarray(scores)
    total, before, hits_before = Fraction(0), 0, 0
    for score in np.unique(scores)[::-1]:
        tied = relevant[scores == score]
        size, hits = len(tied), int(tied.sum())
        if hits:
            other = Fraction(hits - 1, max(size - 1, 1))
            places = (Fraction(hits_before + 1 + i * other) / (before + i + 1) for i in range(size))
            total += Fraction(hits, size) * _sum(places)
        before, hits_before = before + size, hits_before + hits
    return float(total / hits_before)


def _sum(fractions):
    """A sum by halves: denominators stay small for longer."""
    parts = list(fractions)
    while len(parts) > 1:
        parts = [sum(parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0]
