"""Real vector stores find what the index finds, by the recipes of the example."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from bregnet import BregmanIndex, MaxAffine, divergence

EXAMPLE = Path(__file__).parents[2] / "examples" / "vector_store.py"
recipes = runpy.run_path(str(EXAMPLE))
STORES = {store.__name__: store for store in recipes["STORES"]}
K = 10


def points(n, seed):
    return np.random.default_rng(seed).uniform(0.2, 3.0, (n, 6))


def learned():
    """Planes that touch a parabola, smoothed."""
    there = points(50, seed=0)
    return divergence(MaxAffine(there, -0.5 * np.square(there).sum(1), temperature=0.3))


DIVERGENCES = {"learned": learned(), "kl": divergence("kl")}


def assert_same_neighbors(index, Q, ids):
    """The ids of the index; for those that single precision cannot tell apart any order will do."""
    divergences, wanted = index.search(Q, K + 1)
    scale = index.divergence.pairwise(Q, Q).max()
    gaps = np.diff(divergences, axis=1, prepend=-np.inf) > 1e-5 * scale
    clear = gaps[:, :K] & gaps[:, 1:]  # far from the one before and the one after
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(ids[clear], wanted[:, :K][clear])


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("store", STORES)
def test_a_store_finds_the_neighbors_of_the_index(store, name, side):
    D, X, Q = DIVERGENCES[name], points(800, seed=1), points(50, seed=2)
    index, numbers = BregmanIndex(D, side=side), np.random.default_rng(3).permutation(10_000)[:800]
    index.add(X, ids=numbers)
    form = index.to_inner_product()
    scores, ids = STORES[store](form, np.zeros(800)).search(form.encode(Q), 2 * K, 0)
    assert_same_neighbors(index, Q, ids[:, :K])
    wanted_divergences, wanted = index.search(Q, K)
    atol = 1e-5 * D.pairwise(Q, Q).max()
    np.testing.assert_allclose(form.divergences(Q, scores)[:, :K], wanted_divergences, atol=atol)
    rows = np.searchsorted(numbers, ids, sorter=np.argsort(numbers))
    again = recipes["ranked_again"](D, side, X, Q, np.argsort(numbers)[rows], K)
    np.testing.assert_array_equal(numbers[again], wanted)


@pytest.mark.parametrize("store", STORES)
def test_a_filter_of_the_store_searches_some_items_only(store):
    index, Q, years = BregmanIndex(DIVERGENCES["learned"]), points(50, seed=2), np.arange(800) % 3
    index.add(points(800, seed=1))
    form = index.to_inner_product()
    _, ids = STORES[store](form, years).search(form.encode(Q), K, 2)
    index.remove(index.ids[years < 2])
    assert_same_neighbors(index, Q, ids)


@pytest.mark.parametrize("distance", ["dot", "l2", "cosine"])
def test_symmetric_vectors_serve_every_distance_of_the_store(distance):
    index, Q = BregmanIndex(DIVERGENCES["learned"], side="left"), points(50, seed=2)
    index.add(points(800, seed=1))
    form = index.to_inner_product(symmetric=True)
    _, ids = STORES["LanceDB"](form, np.zeros(800)).search(form.encode(Q), K, 0, distance)
    assert_same_neighbors(index, Q, ids)


def test_example_shows_the_ids_of_the_index(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    rows = [line for line in capsys.readouterr().out.splitlines() if " D(" in line]
    assert len(rows) == 4 * len(STORES)
    for row in rows:
        by_store, again, places, error, _ = row.split()[-5:]
        assert again == places == "100.00%"
        assert float(by_store.rstrip("%")) > 98
        assert float(error) < 1e-5
