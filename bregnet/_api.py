# ruff: noqa: F401
"""All public names; `bregnet` takes them from here when the first of them is asked for."""

from bregnet import datasets, distributed, metrics, nn, plotting
from bregnet._core.files import UnreadableFileError
from bregnet.clustering import BregmanKMeans, BregmanMixture
from bregnet.divergences import (
    BregmanDivergence,
    DifferenceOfConvex,
    Generator,
    GeneratorSum,
    ItakuraSaito,
    KullbackLeibler,
    Logistic,
    MappedDivergence,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
    divergence,
)
from bregnet.io import load, save, to_onnx
from bregnet.learners import PBDL, BregmanNCA, ConvexRegressor, DCRegressor, FeatureMap
from bregnet.reporting import Report, report
from bregnet.retrieval import (
    BregmanIndex,
    BregmanKNeighborsClassifier,
    BregmanKNeighborsRegressor,
    BregmanNearestNeighbors,
    BregmanRanker,
)
from bregnet.selection import PBDLCV, ConvexRegressorCV, DCRegressorCV
from bregnet.solver.checkpoints import Checkpoint
from bregnet.solver.result import Check, Result
