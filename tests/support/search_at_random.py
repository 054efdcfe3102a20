"""Items, queries and divergences to search with, and what a right answer is."""

import numpy as np
import torch

from bregnet import (
    BregmanDivergence,
    ItakuraSaito,
    KullbackLeibler,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
)

# values that differ by less, as a share of what was added up to them, tie; between the two either order is right
SAME, OTHER = 2e-16, 1e-11


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


def sizes_between(divergence, query, items, side):
    """What is added up to these."""
    repeated, items = torch.as_tensor(query).expand(len(items), -1), torch.as_tensor(items)
    pair = (repeated, items) if side == "right" else (items, repeated)
    return divergence.generator._rounding(*pair).numpy()


def assert_nearest(divergence, side, items, ids, queries, found, k):
    """The k nearest of all items, by D, squared Euclidean distance and id, with true divergences."""
    found_values, found_ids = map(np.asarray, found)
    assert found_values.shape == found_ids.shape == (len(queries), k)
    assert (found_values >= 0).all()
    assert (np.diff(found_values, axis=1) >= 0).all()
    place = {number: row for row, number in enumerate(ids)}
    for query, returned, numbers in zip(queries, found_values, found_ids, strict=True):
        values = values_between(divergence, query, items, side)
        sizes = sizes_between(divergence, query, items, side)
        distances = np.square(items - query).sum(1)
        distances = np.array([float(f"{distance:.11e}") for distance in distances])  # what differs by rounding ties
        rows = np.array([place[number] for number in numbers])
        assert len(set(rows)) == k
        assert (np.abs(returned - values[rows]) <= 1e-9 * values[rows] + OTHER * sizes[rows]).all()

        others = np.setdiff1d(np.arange(len(items)), rows)
        first = np.concatenate([rows[:-1], np.full(len(others), rows[-1])])
        second = np.concatenate([rows[1:], others])
        low, high = np.sort([values[first], values[second]], axis=0)
        nearer = np.where(
            distances[first] == distances[second], ids[first] < ids[second], distances[first] < distances[second]
        )
        size = np.minimum(sizes[first], sizes[second])
        either = high - low <= OTHER * np.maximum(sizes[first], sizes[second])
        assert np.where(high - low <= SAME * size, nearer, either | (values[first] <= values[second])).all()


def learned(temperature=0.0, d=3, n_pieces=6, seed=0):
    """A divergence such as PBDL learns, with few pieces: at temperature 0 most items tie with others."""
    return BregmanDivergence(max_affine(seed, d, n_pieces, temperature=temperature))


def exact(D, Q, X, side):
    """Divergences of all pairs, one at a time and with all digits."""
    pairs = np.repeat(Q, len(X), 0), np.tile(X, (len(Q), 1))
    return D.paired(*(pairs if side == "right" else pairs[::-1])).reshape(len(Q), len(X))


def brute_order(values, Q, X):
    """Items by divergence, squared Euclidean distance and number; divergences that rounding explains are ties."""
    squares = np.square(Q[:, None] - X).sum(2)
    number = np.broadcast_to(np.arange(len(X)), values.shape)
    return np.lexsort([number, squares.round(9), values.round(10)], axis=1)
