"""What a learnable function can start from: one max-affine part, a quadratic one, and the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bregnet.divergences import (
    Generator,
    GeneratorSum,
    MappedDivergence,
    MaxAffine,
    Quadratic,
    SquaredEuclidean,
)
from bregnet.divergences.resolve import best_of, divergence_of


def generator_of(source: Any) -> Generator:
    """The generator of a divergence or of a fitted estimator, such as PBDL, or of the best one of a search."""
    best = best_of(source)
    function = source if isinstance(source, Generator) else getattr(best, "function_", None)
    if isinstance(function, Generator) and not hasattr(best, "divergence_"):
        return function
    try:
        found = divergence_of(None if isinstance(source, str) else source, "source")
        if isinstance(found, MappedDivergence):
            raise ValueError(f"source must have no feature map but an affine one, got {found!r}; map points first")
        return found.generator
    except TypeError:
        accepted = "a MaxAffine, a sum with one among its parts, a divergence of these, or a fitted estimator with one"
        raise TypeError(f"source must be {accepted}, got {source!r}") from None


@dataclass
class Parts:
    """A generator taken apart; the weight of the max-affine part is in the first three."""

    slopes: Tensor
    intercepts: Tensor
    temperature: float
    factor: Tensor | None  # W of the quadratic part |x W|^2: (d, r), or (d,) for a diagonal; None without such a part
    others: Generator | None  # all that has no parameters to learn

    @classmethod
    def from_generator(cls, generator: Generator) -> Parts:
        """Weights times parts, one of which is max-affine."""
        terms = GeneratorSum([generator])
        found: list[tuple[float, MaxAffine]] = []
        curvature: Tensor | None = None
        others: list[tuple[float, Generator]] = []
        for weight, term in zip(terms.weights, terms.generators, strict=True):
            if weight == 0:
                continue
            if isinstance(term, MaxAffine):
                found.append((weight, term))
                curvature = _added(curvature, weight * term._strictness.expand(term.n_features) / 2)
            elif isinstance(term, SquaredEuclidean) and term._weights is not None:
                curvature = _added(curvature, weight * term._weights)
            elif isinstance(term, SquaredEuclidean) and terms.n_features is not None:
                same = torch.full((terms.n_features,), weight, dtype=terms._dtype, device=terms._device)
                curvature = _added(curvature, same)
            elif isinstance(term, Quadratic):
                curvature = _added(curvature, weight * (term._matrix + term._matrix.T) / 2)
            else:
                others.append((weight, term))
        if len(found) != 1:
            raise ValueError(f"source must have one MaxAffine among its parts, got {len(found)} in {generator!r}")
        weight, term = found[0]
        rest = [GeneratorSum([part], [factor]) for factor, part in others]
        return cls(
            (weight * term._slopes).detach(),
            (weight * term._intercepts).detach(),
            weight * term.temperature,
            _factor(curvature),
            GeneratorSum(rest) if rest else None,
        )


def _added(curvature: Tensor | None, more: Tensor) -> Tensor:
    """The sum of two matrices, diagonals among them as vectors."""
    if curvature is None:
        return more
    if curvature.ndim == more.ndim:
        return curvature + more.to(curvature)
    full, diagonal = (curvature, more) if curvature.ndim == 2 else (more, curvature)
    return full + torch.diag(diagonal.to(full))


def _factor(curvature: Tensor | None) -> Tensor | None:
    """W with W W' the matrix of curvature, without columns that are 0; None where all of it is."""
    if curvature is None or not curvature.any():
        return None
    curvature = curvature.detach()
    if curvature.ndim == 1:
        return curvature.sqrt()
    eigenvalues, directions = torch.linalg.eigh(curvature)
    large = eigenvalues > len(curvature) * torch.finfo(curvature.dtype).eps * eigenvalues[-1]
    return directions[:, large] * eigenvalues[large].sqrt()
