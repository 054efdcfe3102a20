"""Searching by a Bregman divergence: the index and its engines, and estimators of neighbors and rankings on it."""

from bregnet.retrieval.index import BregmanIndex
from bregnet.retrieval.neighbors import (
    BregmanKNeighborsClassifier,
    BregmanKNeighborsRegressor,
    BregmanNearestNeighbors,
)
from bregnet.retrieval.ranking import BregmanRanker

__all__ = [
    "BregmanIndex",
    "BregmanNearestNeighbors",
    "BregmanKNeighborsClassifier",
    "BregmanKNeighborsRegressor",
    "BregmanRanker",
]
