import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from bregnet._core.chunks import at_most
from bregnet.solver import partition
from bregnet.solver.points import Points, Standardization


@pytest.mark.parametrize("few", [20_000, 0])
def test_duplicates_are_merged_with_counts(few, monkeypatch):
    monkeypatch.setattr(partition, "FEW_POINTS", few)
    X = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [-0.0, 0.0], [3.0, 0.0]])
    merged = partition.merge_duplicates(X)
    assert X[merged.first].tolist() == ([[0, 0], [1, 2], [3, 0]] if few else [[1, 2], [0, 0], [3, 0]])
    assert merged.counts.tolist() == [2, 2, 1]
    np.testing.assert_array_equal(X[merged.first][merged.inverse], X)


@given(st.lists(st.lists(st.sampled_from([0.0, -0.0, 1.0, 1e-300, -3.5]), min_size=3, max_size=3), min_size=1))
@settings(max_examples=200, deadline=None)
def test_rows_have_the_same_key_if_they_are_equal(rows):
    X = np.array(rows)
    keys = partition.row_keys(X)
    np.testing.assert_array_equal(keys[:, None] == keys, (X[:, None] == X).all(2))


def test_many_rows_have_many_keys():
    grid = np.stack(np.meshgrid(*[np.arange(40.0)] * 3), -1).reshape(-1, 3)
    assert len(np.unique(partition.row_keys(grid))) == len(grid)
    assert len(np.unique(partition.row_keys(grid)["high"])) == len(grid)
    assert len(np.unique(partition.row_keys(grid)["low"])) == len(grid)


def test_cells_are_numbered_without_gaps():
    X = np.random.default_rng(0).standard_normal((300, 2))
    cells = partition.kmeans_cells(X, 20, np.ones(300), 0)
    assert sorted(set(cells)) == list(range(cells.max() + 1))
    assert 15 <= cells.max() + 1 <= 20
    assert_compact(X, cells)


def assert_compact(X, cells):
    centres = np.array([X[cells == k].mean(0) for k in range(cells.max() + 1)])
    own = np.linalg.norm(X - centres[cells], axis=1).mean()
    other = np.linalg.norm(X - centres[np.roll(cells, 1)], axis=1).mean()
    assert own < other / 3


@pytest.mark.parametrize("n_classes", [1, 3, 30])
@at_most(100)
def test_many_points_are_cut_by_a_sample_of_them(n_classes, monkeypatch):
    monkeypatch.setattr(partition, "FEW_POINTS", 50)
    X, classes = clustered(2000, n_classes)
    units = Standardization.from_rows(X)
    points = Points(X, units, partition.merge_duplicates(X, units.points), torch.device("cpu"))
    lifted = points.lifted()
    labels = None if n_classes == 1 else classes[points.merged.first]
    cells, n_cells = points.cut(lifted, 24, labels, 0)
    assert sorted(set(cells.tolist())) == list(range(n_cells))
    assert 18 <= n_cells <= 24
    if n_classes == 3:
        for cell in range(n_cells):
            assert len(set(labels[cells.numpy() == cell])) == 1
    assert_compact(lifted[:, :-1].numpy(), cells.numpy())


def clustered(n=200, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.arange(n) % n_classes)
    return rng.standard_normal((n, 2)), classes


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.data())
@settings(max_examples=200, deadline=None)
def test_shares_add_up_and_follow_the_sizes(sizes, data):
    sizes = np.array(sizes)
    total = data.draw(st.integers(len(sizes), sizes.sum()))
    shares = partition._shares(sizes, total)
    assert shares.sum() == total
    assert ((shares >= 1) & (shares <= sizes)).all()
    order = np.argsort(sizes, kind="stable")
    assert (np.diff(shares[order]) >= -1).all()  # a larger class is at most one cell short of a smaller one
    exact = total * sizes / sizes.sum()
    if (exact >= 2).all():
        assert (np.abs(shares - exact) < 1).all()
    if total >= 2 * len(sizes):
        assert (shares >= np.minimum(sizes, 2)).all()


@given(seed=st.integers(0, 100), n_classes=st.integers(1, 5), each=st.integers(2, 8))
@settings(max_examples=20, deadline=None)
def test_no_cell_mixes_classes_where_there_are_enough(seed, n_classes, each):
    X, classes = clustered(120, n_classes, seed)
    cells = partition.class_cells(X, classes, each * n_classes, np.ones(120), seed)
    assert sorted(set(cells)) == list(range(each * n_classes))
    for cell in range(cells.max() + 1):
        assert len(set(classes[cells == cell])) == 1


def test_cells_of_a_class_are_compact():
    X, classes = clustered(300, 3)
    cells = partition.class_cells(X, classes, 30, np.ones(300), 0)
    assert [len(set(cells[classes == label])) for label in range(3)] == [10, 10, 10]
    spread = np.mean([np.square(X[cells == k] - X[cells == k].mean(0)).sum() for k in range(30)])
    inside = classes == 0
    alone = KMeans(10, n_init=1, random_state=0).fit(X[inside]).inertia_ / 10
    assert spread == pytest.approx(alone, rel=0.3)


def test_more_classes_than_cells_are_cut_by_plain_k_means():
    X, classes = clustered(60, 20)
    cells = partition.class_cells(X, classes, 15, np.ones(60), 0)
    np.testing.assert_array_equal(cells, partition.kmeans_cells(X, 15, np.ones(60), 0))


def test_weights_draw_the_cells():
    X = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    light, heavy = np.ones(6), np.array([1.0, 1.0, 1.0, 1e4, 1e4, 1e4])
    assert len(set(partition.class_cells(X, np.zeros(6, int), 2, light, 0)[:3])) == 1
    assert len(set(partition.class_cells(X, np.zeros(6, int), 3, heavy, 0)[3:])) > 1
