"""Neighbours of points, nearly all of the nearest ones, quickly."""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

TREE_DIMENSION = 20  # features up to which a tree is faster than a matrix product
TREE_SLACK = 0.5  # distances may be this much too long: 98% of the neighbours in a third of the time (30,000 x 10)


def nearest(points: np.ndarray, queries: np.ndarray, n_neighbors: int) -> np.ndarray:
    """Numbers of the points nearest to each query, (m, n_neighbors)."""
    if points.shape[1] <= TREE_DIMENSION:
        _, found = cKDTree(points).query(queries, n_neighbors, eps=TREE_SLACK, workers=torch.get_num_threads())
        return found.reshape(len(queries), n_neighbors)
    search = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(points.astype(np.float32))
    return search.kneighbors(queries.astype(np.float32), return_distance=False)
