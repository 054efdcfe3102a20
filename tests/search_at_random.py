"""Items, queries and divergences to search with, and what a right answer is."""

import numpy as np

from bregnet import (
    BregmanDivergence,
    ItakuraSaito,
    KullbackLeibler,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
)

SAME = 1e-13  # values that differ by less, as a share of the scale, tie; between these two either order is right
OTHER = 1e-11
SMALL, SMALL_OTHER = 1e-7, 1e-9


def max_affine(seed, n_features, n_pieces=12, **parameters):
    rng = np.random.default_rng(seed)
    return MaxAffine(rng.standard_normal((n_pieces, n_features)), rng.standard_normal(n_pieces), **parameters)


def divergences(n_features):
    """Divergences of every sort, by name; for points of positive features."""
    rng = np.random.default_rng(7)
    root = rng.standard_normal((n_features, n_features))
    sharp, smooth = (max_affine(3, n_features, temperature=temperature) for temperature in (0.0, 0.3))
    generators = {
        "sharp": sharp,
        "sharp scaled": 2.5 * sharp,
        "hardly strict": max_affine(3, n_features, strictness=1e-6),
        "strict": max_affine(3, n_features, strictness=0.5),
        "cold": max_affine(3, n_features, temperature=0.02),
        "smooth": smooth,
        "hot": max_affine(3, n_features, temperature=2.0),
        "sum": smooth + 0.3 * Quadratic(root @ root.T),
        "sharp sum": sharp + 0.1 * SquaredEuclidean(),
        "euclid": SquaredEuclidean(),
        "weighted": SquaredEuclidean(np.arange(n_features) * 1.0),
        "mahalanobis": Quadratic(root @ root.T),
        "kl": KullbackLeibler(),
        "itakura-saito": ItakuraSaito(),
    }
    return {name: BregmanDivergence(generator) for name, generator in generators.items()}


def points(seed, n, n_features, lattice=False):
    """Positive points; on a lattice many are duplicates, and many distances tie."""
    rng = np.random.default_rng(seed)
    found = rng.gamma(2.0, size=(n, n_features))
    return np.ceil(found) / 2 if lattice else found


def values_between(divergence, query, items, side):
    """D of one query and all items, pair by pair."""
    repeated = np.repeat(query[None], len(items), axis=0)
    return divergence.paired(*((repeated, items) if side == "right" else (items, repeated)))


def assert_nearest(divergence, side, items, ids, queries, found, k):
    """The k nearest of all items, by D, squared Euclidean distance and id, with true divergences."""
    found_values, found_ids = map(np.asarray, found)
    assert found_values.shape == found_ids.shape == (len(queries), k)
    assert (found_values >= 0).all()
    assert (np.diff(found_values, axis=1) >= 0).all()
    stable = divergence.generator._stable
    place = {number: row for row, number in enumerate(ids)}
    for query, returned, numbers in zip(queries, found_values, found_ids, strict=True):
        values = values_between(divergence, query, items, side)
        distances = np.round(np.square(items - query).sum(1), 9)
        scale = 1 + np.abs(divergence.generator(items)).max() + values.max()
        rows = np.array([place[number] for number in numbers])
        assert len(set(rows)) == k
        np.testing.assert_allclose(returned, values[rows], atol=OTHER * scale, rtol=1e-8)

        others = np.setdiff1d(np.arange(len(items)), rows)
        first = np.concatenate([rows[:-1], np.full(len(others), rows[-1])])
        second = np.concatenate([rows[1:], others])
        low, high = np.sort([values[first], values[second]], axis=0)
        nearer = np.where(
            distances[first] == distances[second], ids[first] < ids[second], distances[first] < distances[second]
        )
        small = stable & (high < SMALL * scale)  # these have all their digits
        either = high - low <= np.where(small, SMALL_OTHER * high, OTHER * scale)
        tied = high - low <= SAME * (high if stable else scale)
        assert np.where(tied, nearer, either | (values[first] <= values[second])).all()
