"""Generators and their Bregman divergences: classical ones, max-affine ones, sums; and which one an object has."""

from bregnet.divergences.bregman_divergence import BregmanDivergence, divergence
from bregnet.divergences.classical import ItakuraSaito, KullbackLeibler, Logistic, Quadratic, SquaredEuclidean
from bregnet.divergences.generators import Generator, GeneratorSum
from bregnet.divergences.max_affine import DifferenceOfConvex, MaxAffine

__all__ = [
    "BregmanDivergence",
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
