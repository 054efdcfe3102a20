"""Clusters under a Bregman divergence: k-means and mixtures."""

from bregnet.clustering.kmeans import BregmanKMeans
from bregnet.clustering.mixture import BregmanMixture

__all__ = ["BregmanKMeans", "BregmanMixture"]
