# ruff: noqa: F401
"""All public names; `bregnet` takes them from here when the first of them is asked for."""

from bregnet import datasets, distributed, metrics, nn, plotting
from bregnet._files import UnreadableFileError
from bregnet._report import Report, report
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
from bregnet.solver.checkpoints import Checkpoint
from bregnet.solver.result import Check, Result
