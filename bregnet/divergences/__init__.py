"""Generators (convex functions) and their Bregman divergences, and the divergence that an object has."""

from bregnet.divergences.bregman_divergence import BregmanDivergence, divergence
from bregnet.divergences.classical import ItakuraSaito, KullbackLeibler, Logistic, Quadratic, SquaredEuclidean
from bregnet.divergences.generators import Generator, GeneratorSum
from bregnet.divergences.mapped import MappedDivergence
from bregnet.divergences.max_affine import DifferenceOfConvex, MaxAffine

__all__ = [
    "BregmanDivergence",
    "MappedDivergence",
    "divergence",
    "Generator",
    "GeneratorSum",
    "MaxAffine",
    "DifferenceOfConvex",
    "Quadratic",
    "SquaredEuclidean",
    "KullbackLeibler",
    "ItakuraSaito",
    "Logistic",
]
