"""Metric learning and retrieval with Bregman divergences, and convex regression on the same solver."""

from bregnet import datasets, distributed, metrics, nn, plotting
from bregnet._files import UnreadableFileError
from bregnet._report import Report, report
from bregnet._version import __version__
from bregnet.admm.result import Check, Result
from bregnet.checkpoints import Checkpoint
from bregnet.classical import ItakuraSaito, KullbackLeibler, Logistic, Quadratic, SquaredEuclidean
from bregnet.clustering import BregmanKMeans
from bregnet.divergences import BregmanDivergence, divergence
from bregnet.functions import DifferenceOfConvex, MaxAffine
from bregnet.generators import Generator, GeneratorSum
from bregnet.index import BregmanIndex
from bregnet.metric_learning import PBDL
from bregnet.mixture import BregmanMixture
from bregnet.model_selection import PBDLCV, ConvexRegressorCV, DCRegressorCV
from bregnet.neighbors import BregmanKNeighborsClassifier, BregmanKNeighborsRegressor, BregmanNearestNeighbors
from bregnet.persistence import load, save
from bregnet.ranking import BregmanRanker
from bregnet.regression import ConvexRegressor, DCRegressor

__all__ = [
    "PBDL",
    "ConvexRegressor",
    "DCRegressor",
    "PBDLCV",
    "ConvexRegressorCV",
    "DCRegressorCV",
    "Check",
    "Result",
    "Checkpoint",
    "BregmanDivergence",
    "divergence",
    "BregmanIndex",
    "BregmanNearestNeighbors",
    "BregmanKNeighborsClassifier",
    "BregmanKNeighborsRegressor",
    "BregmanRanker",
    "BregmanKMeans",
    "BregmanMixture",
    "Generator",
    "GeneratorSum",
    "MaxAffine",
    "DifferenceOfConvex",
    "Quadratic",
    "SquaredEuclidean",
    "KullbackLeibler",
    "ItakuraSaito",
    "Logistic",
    "save",
    "load",
    "UnreadableFileError",
    "report",
    "Report",
    "datasets",
    "distributed",
    "metrics",
    "nn",
    "plotting",
    "__version__",
]
