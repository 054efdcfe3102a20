"""Where the relevant items of queries stand in rankings with ties, and the scores that follow from it.

Items at the same divergence of a query come in random order, and a score is its expected value over these orders
(McSherry and Najork, "Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores",
ECIR 2008). No score looks at more than the ranks, so that whatever finds them is free to do without all divergences.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class TiedRanks(NamedTuple):
    """Ties of items with a relevant one among them; query by query, the nearest first in each.

    Most ties are of one item.
    """

    query: np.ndarray  # that a tie belongs to, (n_ties,)
    before: np.ndarray  # items that are nearer, (n_ties,)
    size: np.ndarray  # items in the tie, (n_ties,)
    hits_before: np.ndarray  # relevant items that are nearer, (n_ties,)
    hits: np.ndarray  # relevant items in the tie, (n_ties,)
    n_items: np.ndarray  # items that count for a query, (n_queries,)
    n_hits: np.ndarray  # relevant items among them, (n_queries,)

    @classmethod
    def from_divergences(cls, values: np.ndarray, hits: np.ndarray) -> TiedRanks:
        """Of divergences (n_queries, n_items), infinite where an item does not count, and whether it is relevant.

        A sort of whole numbers that carry relevance in their last bit is faster than argsort.
        """
        n_hits, n_items = hits.sum(1), max(1, values.shape[1])
        keys = _order_keys(values)
        keys <<= 1
        keys |= hits
        keys.sort(axis=1)
        items = keys.ravel()  # from here on, all queries in one row
        is_hit = (items & 1).astype(bool)
        is_first = np.ones(len(items), dtype=bool)  # of its tie: more than the last bit is new
        np.greater(items[1:] ^ items[:-1], 1, out=is_first[1:])
        is_first[::n_items] = True
        is_last = np.ones_like(is_first)
        is_last[:-1] = is_first[1:]
        edges = np.append(np.flatnonzero(is_first), len(items))
        kept = np.flatnonzero(is_hit[is_last])  # ties with a hit: hits are the last in a tie
        first, end = edges[kept], edges[kept + 1]
        found = np.flatnonzero(is_last[np.flatnonzero(is_hit)]) + 1  # hits up to its end, of queries above included
        own_hits = np.diff(found, prepend=0)
        query = first // n_items
        found_above = np.append(0, np.cumsum(n_hits))[query]
        return cls(
            query,
            before=first - query * n_items,
            size=end - first,
            hits_before=found - own_hits - found_above,
            hits=own_hits,
            n_items=np.isfinite(values).sum(1),
            n_hits=n_hits,
        )

    def share_of_hits(self, terms: np.ndarray) -> np.ndarray:
        """A sum over the ties of each query, by its number of relevant items; NaN where it has none."""
        with np.errstate(invalid="ignore"):
            return np.bincount(self.query, terms, len(self.n_hits)) / self.n_hits


def average_precision(ranks: TiedRanks) -> np.ndarray:
    """Expected mean over the relevant items of the share of relevant items up to their place, (n_queries,)."""
    return ranks.share_of_hits(_precisions(ranks, ranks.before + ranks.size))


def map_at_r(ranks: TiedRanks) -> np.ndarray:
    """The same over the R nearest items, R being the number of relevant ones, (n_queries,)."""
    places = ranks.n_hits[ranks.query]
    return ranks.share_of_hits(_precisions(ranks, np.clip(places, ranks.before, ranks.before + ranks.size)))


def _precisions(ranks: TiedRanks, last: np.ndarray) -> np.ndarray:
    """Expected sum of the precisions at the relevant items of each tie, up to the place `last`, (n_ties,).

    In a tie of t items with h hits, after s items with a hits, place i = s + 1, ..., s + t holds a hit with probability
    h / t, and then each of the i - s - 1 places of the tie before it holds one with probability q = (h - 1) / (t - 1):
    E[P(i) rel(i)] = h / t * (a + 1 + (i - s - 1) q) / i = h / t * (q + (a + 1 - (s + 1) q) / i), whose sum over places
    is one of harmonic numbers. They are added up in extended precision, for they are multiplied by s.
    """
    before, size, hits = ranks.before, ranks.size, ranks.hits
    single = np.where(last > before, (ranks.hits_before + 1) / (before + 1), 0.0)
    if (size == 1).all():
        return single
    harmonic = np.append(0, np.cumsum(1 / np.arange(1, last.max() + 1, dtype=np.longdouble)))
    inverse_places = (harmonic[last] - harmonic[before]).astype(np.float64)
    other_is_hit = (hits - 1) / np.maximum(size - 1, 1)
    coefficient = ranks.hits_before + 1 - (before + 1) * other_is_hit
    several = hits / size * ((last - before) * other_is_hit + coefficient * inverse_places)
    return np.where(size == 1, single, several)


def r_precision(ranks: TiedRanks) -> np.ndarray:
    """Expected share of relevant items among the R nearest, (n_queries,)."""
    return ranks.share_of_hits(_hits_among(ranks, ranks.n_hits[ranks.query]))


def recall_at(ranks: TiedRanks, k: int) -> np.ndarray:
    """Expected share of the relevant items that are among the k nearest, (n_queries,)."""
    return ranks.share_of_hits(_hits_among(ranks, k))


def precision_at(ranks: TiedRanks, k: int) -> np.ndarray:
    """Expected share of relevant items among the k nearest, (n_queries,)."""
    found = np.bincount(ranks.query, _hits_among(ranks, k), len(ranks.n_hits))
    return np.where(ranks.n_hits > 0, found / k, np.nan)


def _hits_among(ranks: TiedRanks, k: int | np.ndarray) -> np.ndarray:
    """Expected number of relevant items of each tie among the k nearest, one k for all or one each, (n_ties,)."""
    return ranks.hits * np.clip(k - ranks.before, 0, ranks.size) / ranks.size


def auc(ranks: TiedRanks) -> np.ndarray:
    """Probability that a relevant item is nearer than another, (n_queries,); NaN where there are not both kinds."""
    others_before, others_tied = ranks.before - ranks.hits_before, ranks.size - ranks.hits
    misplaced = ranks.share_of_hits(ranks.hits * (others_before + others_tied / 2))
    n_others = ranks.n_items - ranks.n_hits
    return np.where(n_others > 0, 1 - misplaced / np.maximum(n_others, 1), np.nan)


def interpolated_precision(ranks: TiedRanks, levels: np.ndarray) -> np.ndarray:
    """The highest precision at a recall of each level or more, (n_queries, n_levels); NaN without a relevant item.

    A threshold takes all items of a tie or none, so the order within it does not matter.
    """
    found = ranks.hits_before + ranks.hits
    precisions, recalls = found / (ranks.before + ranks.size), found / ranks.n_hits[ranks.query]
    out = np.full((len(ranks.n_hits), len(levels)), np.nan)
    queries, starts = np.unique(ranks.query, return_index=True)
    if len(queries):
        reached = recalls[:, None] >= levels - 1e-9  # 0.3 * 10 relevant items are 3 of them
        out[queries] = np.maximum.reduceat(np.where(reached, precisions[:, None], 0.0), starts)
    return out


def _order_keys(values: np.ndarray) -> np.ndarray:
    """Whole numbers below 2**63 in the order of the values, and equal where they are."""
    if (values >= 0).all():  # the bits of such floats are in their order; adding 0 makes -0 the same as 0
        return np.add(values, 0.0, dtype=np.float64).view(np.uint64)
    return np.unique(values, return_inverse=True)[1].astype(np.uint64).reshape(values.shape)
