"""LanceDB, a real vector store, finds what the index finds."""

import runpy
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
import pytest

from bregnet import BregmanIndex, MaxAffine, divergence

EXAMPLE = Path(__file__).parents[2] / "examples" / "vector_store.py"
K = 10


def points(n, seed):
    return np.random.default_rng(seed).uniform(0.2, 3.0, (n, 6))


def learned():
    """Planes that touch a parabola, smoothed."""
    there = points(50, seed=0)
    return divergence(MaxAffine(there, -0.5 * np.square(there).sum(1), temperature=0.3))


DIVERGENCES = {"learned": learned(), "kl": divergence("kl")}


def stored(folder, index, symmetric=False, **metadata):
    form = index.to_inner_product(symmetric=symmetric)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(form.items.ravel()), form.width)
    rows = pa.table({"id": form.ids, "vector": vectors, **metadata})
    return form, lancedb.connect(folder).create_table("items", rows)


def searched(table, form, Q, distance="dot", where=None):
    search = table.search(form.encode(Q)).distance_type(distance).limit(K)
    found = (search if where is None else search.where(where, prefilter=True)).to_arrow()
    found = found.sort_by([("query_index", "ascending"), ("_distance", "ascending")])
    return tuple(found[name].to_numpy().reshape(len(Q), K) for name in ("_distance", "id"))


def assert_same_neighbours(index, Q, ids):
    """The ids of the index; for those that single precision cannot tell apart any order will do."""
    divergences, wanted = index.search(Q, K + 1)
    scale = index.divergence.pairwise(Q, Q).max()
    gaps = np.diff(divergences, axis=1, prepend=-np.inf) > 1e-5 * scale
    clear = gaps[:, :K] & gaps[:, 1:]  # far from the one before and the one after
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(ids[clear], wanted[:, :K][clear])


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_store_finds_the_neighbours_of_the_index(name, side, tmp_path):
    index, Q = BregmanIndex(DIVERGENCES[name], side=side), points(50, seed=2)
    index.add(points(800, seed=1), ids=np.random.default_rng(3).permutation(10_000)[:800])
    form, table = stored(tmp_path, index)
    distances, ids = searched(table, form, Q)
    assert_same_neighbours(index, Q, ids)
    wanted, _ = index.search(Q, K)
    found = form.divergences(Q, 1.0 - distances.astype(float))
    np.testing.assert_allclose(found, wanted, atol=1e-5 * DIVERGENCES[name].pairwise(Q, Q).max())


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_filter_of_the_store_searches_some_items_only(side, tmp_path):
    index, Q = BregmanIndex(DIVERGENCES["learned"], side=side), points(50, seed=2)
    index.add(points(800, seed=1))
    colours = np.array(["red", "green", "blue"])[np.arange(800) % 3]
    form, table = stored(tmp_path, index, colour=colours.tolist())
    _, ids = searched(table, form, Q, where="colour = 'green'")
    index.remove(index.ids[colours != "green"])
    assert_same_neighbours(index, Q, ids)


@pytest.mark.parametrize("distance", ["dot", "l2", "cosine"])
def test_symmetric_vectors_serve_every_distance_of_the_store(distance, tmp_path):
    index, Q = BregmanIndex(DIVERGENCES["learned"], side="left"), points(50, seed=2)
    index.add(points(800, seed=1))
    form, table = stored(tmp_path, index, symmetric=True)
    _, ids = searched(table, form, Q, distance)
    assert_same_neighbours(index, Q, ids)


def test_example_shows_the_ids_of_the_index(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("D(")]
    assert len(rows) == 4
    for row in rows:
        by_store, again, error, _ = row.split()[-4:]
        assert again == "100.00%"
        assert float(by_store.rstrip("%")) > 98
        assert float(error) < 1e-5
