import numpy as np
import pytest

from bregnet import partition


def test_duplicates_are_merged_with_counts():
    X = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [-0.0, 0.0]])
    merged = partition.merge_duplicates(X)
    assert merged.points.tolist() == [[0.0, 0.0], [1.0, 2.0]]
    assert merged.counts.tolist() == [2, 2]
    np.testing.assert_array_equal(merged.points[merged.inverse], X)


@pytest.mark.parametrize("mini_batch", [False, True])
def test_cells_are_numbered_without_gaps(mini_batch, monkeypatch):
    if mini_batch:
        monkeypatch.setattr(partition, "MINI_BATCH_POINTS", 10)
    X = np.random.default_rng(0).standard_normal((300, 2))
    cells = partition.kmeans_cells(X, 20, np.ones(300), 0)
    assert sorted(set(cells)) == list(range(cells.max() + 1))
    assert 15 <= cells.max() + 1 <= 20
    centres = np.array([X[cells == k].mean(0) for k in range(cells.max() + 1)])
    own = np.linalg.norm(X - centres[cells], axis=1).mean()
    other = np.linalg.norm(X - centres[np.roll(cells, 1)], axis=1).mean()
    assert own < other / 3
