"""Convex generating functions: what all of them share, and their weighted sums."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array, ArrayT
from bregnet._core.chunks import cache, rows_at_once

registered: dict[str, type[Generator]] = {}  # the classes that files can name


class Generator(ABC):
    r"""A convex function f, and with it the divergence :math:`D(x, y) = f(x) - f(y) - \nabla f(y) \cdot (x - y)`.

    Generators add and scale: ``f + g`` and ``2.0 * f`` are generators, and their divergences add and scale alike.

    A subclass defines ``_values`` and ``_gradients`` for a tensor with a point in each row; everything else follows
    from these. It may override ``_paired`` and ``_block`` where a formula loses fewer digits, ``_check_domain`` where
    not every point is allowed, and ``_interior`` where fewer points are allowed as tangent points. Attributes that are
    tensors move with ``to``.

    :func:`bregnet.save` stores the arguments of the constructor under the name of the class and its module, or another
    name: ``class Exponential(Generator, saved_as="exponential")``. :func:`bregnet.load` finds classes that have been
    imported.

    Examples
    --------
    >>> from bregnet import BregmanDivergence, Generator
    >>> class Exponential(Generator):
    ...     def _values(self, x):
    ...         return x.exp().sum(1)
    ...
    ...     def _gradients(self, x):
    ...         return x.exp()
    >>> BregmanDivergence(Exponential()).paired([[1.0]], [[0.0]]).round(6)  # e - 1 - 1
    array([0.718282])
    """

    __array_ufunc__ = None  # numpy's numbers leave `2.0 * f` to the generator
    _n_features: int | None = None
    _dtype: torch.dtype | None = None  # None: that of the points
    _device: torch.device | None = None
    _shows_torch = False  # whether parameters are shown as tensors
    _stable = False  # whether `_paired` has all its digits, however small the divergence
    _saved_as: str  # the name of the class in files

    def __init_subclass__(cls, *, saved_as: str | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls._saved_as = saved_as or f"{cls.__module__}.{cls.__qualname__}"
        known = registered.setdefault(cls._saved_as, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"saved_as must be a name of its own, got {saved_as!r}, which is that of {known!r}")
        registered[cls._saved_as] = cls  # the last of those that a notebook has defined

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def n_features(self) -> int | None:
        """Number of features, None if any number is accepted."""
        return self._n_features

    def __call__(self, X: Array) -> Array:
        """Values at the rows of X, (n_points,); infinite where they are beyond the range of the precision."""
        return batched(self, X, self._values)

    def gradient(self, X: Array) -> Array:
        """Gradients at the rows of X, (n_points, n_features).

        Examples
        --------
        >>> from bregnet import SquaredEuclidean
        >>> SquaredEuclidean().gradient([[1.0, 2.0]])
        array([[2., 4.]])
        """
        return batched(self, X, self._gradients, tangent=True)

    def to(self, target: str | torch.device | torch.dtype) -> Self:
        """The same function on another device or in another precision, as torch tensors.

        Examples
        --------
        >>> import torch
        >>> from bregnet import Quadratic
        >>> Quadratic([[2.0]]).to("cpu").to(torch.float32).matrix
        tensor([[2.]])
        """
        moved = copy.copy(self)
        if isinstance(target, torch.dtype):
            if target not in (torch.float32, torch.float64):
                raise ValueError(f"target: a generator computes in torch.float32 or torch.float64, got {target}")
            moved._dtype = target
        else:
            moved._device = check.device_there("target", target, "torch.float32, torch.float64, ")
        moved._shows_torch = True
        parts = {name: part.to(target) for name, part in vars(self).items() if isinstance(part, Tensor | Generator)}
        vars(moved).update(parts)
        return moved

    def compose(self, matrix: Array, offset: float | Array = 0.0) -> Generator:
        """The generator g(x) = f(Wx + c), which takes points before an affine map.

        Its divergence is that of f after the map, D_g(x, y) = D_f(Wx + c, Wy + c). Max-affine and quadratic functions,
        and sums of these, give others of their kind.

        Parameters
        ----------
        matrix : array of shape (n_mapped, n_features)
            The matrix W; a row for each feature of f.
        offset : float or array of shape (n_mapped,), default=0.0
            The vector c.

        Returns
        -------
        generator : Generator

        Examples
        --------
        >>> from bregnet import KullbackLeibler, MaxAffine
        >>> MaxAffine([[1.0], [-1.0]], [0.0, 0.0]).compose([[3.0, 4.0]], offset=[1.0])([[1.0, 1.0]])  # |3 + 4 + 1|
        array([8.])
        >>> KullbackLeibler().compose([[1.0, 1.0], [0.0, 1.0]])
        KullbackLeibler() after a map of 2 features to 2
        """
        return Composed(self, *affine_map(matrix, offset, self.n_features))

    def __add__(self, other: Generator) -> GeneratorSum:
        return GeneratorSum([self, other])

    def __radd__(self, other: int) -> Generator:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # sum() starts at 0

    def __mul__(self, weight: float) -> GeneratorSum:
        return GeneratorSum([self], [weight])

    def __truediv__(self, number: float) -> GeneratorSum:
        return GeneratorSum([self], [1 / number])

    __rmul__ = __mul__

    @abstractmethod
    def _values(self, x: Tensor) -> Tensor:
        """f at each row, (n,)."""

    @abstractmethod
    def _gradients(self, x: Tensor) -> Tensor:
        """The gradient of f at each row, (n, d)."""

    def _planes(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The tangent plane at each row: slopes (m, d) and intercepts (m,)."""
        slopes = self._gradients(y)
        return slopes, self._values(y) - (slopes * y).sum(1)

    def _paired(self, x: Tensor, y: Tensor) -> Tensor:
        """D(x_i, y_i), (n,)."""
        return (self._values(x) - self._values(y) - (self._gradients(y) * (x - y)).sum(1)).clamp_min(0)

    def _rounding(self, x: Tensor, y: Tensor) -> Tensor:
        """The size of the terms that `_paired` adds up, (n,): its error is some units in the last place of this."""
        if self._stable:
            return self._paired(x, y)
        slopes = self._gradients(y)
        return self._values(x).abs() + self._values(y).abs() + (slopes * (x - y)).abs().sum(1)

    def _tangents(self, y: Tensor) -> Any:
        """What `_block` needs of the tangent points."""
        return self._planes(y)

    def _block(self, x: Tensor, tangents: Any) -> Tensor:
        """D(x_i, y_j), (n, m)."""
        slopes, intercepts = tangents
        return (self._values(x)[:, None] - intercepts - x @ slopes.T).clamp_min(0)

    def _interior(self, points: Tensor) -> Tensor:
        """The nearest points that are allowed as tangent points."""
        return points

    def _check_domain(self, name: str, points: Tensor, tangent: bool) -> None:  # noqa: B027
        """Raise an error for points where f, or its tangent, is not defined."""

    def _width(self, n_features: int) -> int:
        """Elements that an evaluation holds for a point."""
        return n_features

    def _saved_parameters(self) -> dict[str, Any]:
        """The arguments of the constructor; by default the attributes of their names.

        An attribute ``_name`` goes before ``name``. Values may be plain, arrays, tensors and other generators.
        """
        parameters = {}
        for name in inspect.signature(type(self)).parameters:
            if f"_{name}" not in vars(self) and not hasattr(self, name):
                raise TypeError(
                    f"{type(self).__name__} must have an attribute {name!r}, as its constructor has an argument, or a"
                    " method _saved_parameters, to be saved"
                )
            parameters[name] = vars(self)[f"_{name}"] if f"_{name}" in vars(self) else getattr(self, name)
        return parameters

    def _points(self, name: str, X: Array, *, tangent: bool = False, n_features: int | None = None) -> Tensor:
        """X checked, where and in the precision this generator computes."""
        n_features = n_features if self.n_features is None else self.n_features
        points = arrays.points(name, X, n_features, self._dtype, self._device)
        self._check_domain(name, points, tangent)
        return points

    def _batch_size(self, points: Tensor) -> int:
        """How many points to evaluate at once."""
        return rows_at_once(self._width(points.shape[1]), budget=cache(points.device))

    def _lives_with(self, parameter: Tensor, given: Array) -> None:
        """Use the device and the precision of `parameter`, and show it as the kind of array that was given."""
        self._dtype, self._device = parameter.dtype, parameter.device
        self._shows_torch = isinstance(given, Tensor)


def batched(
    generator: Generator, X: ArrayT, evaluate: Callable[[Tensor], Tensor], *, name: str = "X", tangent: bool = False
) -> ArrayT:
    """Evaluate a function of a generator at the rows of X, in batches."""
    points = generator._points(name, X, tangent=tangent)
    with arrays.gradients_for(X):
        parts = [evaluate(batch) for batch in points.split(generator._batch_size(points))]
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        arrays.refuse_overflow(name, out, points)
        return arrays.like(out, X)


def shown(generator: Generator, parameter: Tensor) -> Array:
    """A parameter as the kind of array that was given."""
    return parameter if generator._shows_torch else parameter.numpy()


class GeneratorSum(Generator, saved_as="GeneratorSum"):
    """A weighted sum of generators; ``2.0 * f + g`` builds one.

    Parameters
    ----------
    generators : sequence of Generator
        Sums among them are flattened.
    weights : sequence of float, default=None
        A weight of at least 0 for each; 1 by default.

    Attributes
    ----------
    generators : tuple of Generator
        The parts, none of them a sum, all of the same precision.
    weights : tuple of float

    Examples
    --------
    >>> from bregnet import MaxAffine, SquaredEuclidean
    >>> f = MaxAffine([[1.0], [-1.0]], [0.0, 0.0]) + 0.5 * SquaredEuclidean()
    >>> f
    MaxAffine(2 pieces, 1 features) + 0.5 * SquaredEuclidean()
    >>> f([[2.0]])
    array([4.])
    """

    def __init__(self, generators: Sequence[Generator], weights: Sequence[float] | None = None) -> None:
        if not isinstance(generators, Sequence) or len(generators) == 0:
            raise TypeError(f"generators must be a sequence of at least one generator, got {generators!r}")
        weights = [1.0] * len(generators) if weights is None else weights
        if isinstance(weights, str) or not isinstance(weights, Sequence | np.ndarray) or np.shape(weights) == ():
            raise TypeError(f"weights must be a sequence of numbers, got {weights!r}")
        if len(weights) != len(generators):
            raise ValueError(f"weights must have one entry for each of {len(generators)} parts, got {len(weights)}")
        terms = [term for f, weight in zip(generators, weights, strict=True) for term in _scaled_terms(f, weight)]
        self.weights, parts = zip(*terms, strict=True)
        self._n_features = _agreed("number of features", [f.n_features for f in parts])
        self._device = _agreed("device", [f._device for f in parts])
        dtypes = [f._dtype for f in parts if f._dtype is not None]
        self._dtype = reduce(torch.promote_types, dtypes) if dtypes else None
        self.generators = tuple(f if f._dtype in (None, self._dtype) else f.to(self._dtype) for f in parts)
        self._stable = all(f._stable for f in parts)

    def __repr__(self) -> str:
        terms = zip(self.weights, self.generators, strict=True)
        return " + ".join(repr(f) if weight == 1 else f"{weight:g} * {f!r}" for weight, f in terms)

    def to(self, target: str | torch.device | torch.dtype) -> Self:
        """The same sum on another device or in another precision.

        Examples
        --------
        >>> import torch
        >>> from bregnet import SquaredEuclidean
        >>> (2.0 * SquaredEuclidean()).to(torch.float32)([[1.0, 2.0]])
        array([10.], dtype=float32)
        """
        moved = super().to(target)
        moved.generators = tuple(f.to(target) for f in self.generators)
        return moved

    def compose(self, matrix: Array, offset: float | Array = 0.0) -> Generator:
        """The sum of the parts after an affine map: see :meth:`Generator.compose`.

        Examples
        --------
        >>> from bregnet import MaxAffine, SquaredEuclidean
        >>> (MaxAffine([[1.0]], [0.0]) + SquaredEuclidean()).compose([[2.0, 0.0]])
        MaxAffine(1 pieces, 2 features) + Quadratic(2 features)
        """
        return GeneratorSum([f.compose(matrix, offset) for f in self.generators], self.weights)

    def _total(self, parts: Iterable[Tensor]) -> Tensor:
        first, *others = (weight * part for weight, part in zip(self.weights, parts, strict=True))
        return sum(others, first)

    def _values(self, x: Tensor) -> Tensor:
        return self._total(f._values(x) for f in self.generators)

    def _gradients(self, x: Tensor) -> Tensor:
        return self._total(f._gradients(x) for f in self.generators)

    def _planes(self, y: Tensor) -> tuple[Tensor, Tensor]:
        slopes, intercepts = zip(*(f._planes(y) for f in self.generators), strict=True)
        return self._total(slopes), self._total(intercepts)

    def _paired(self, x: Tensor, y: Tensor) -> Tensor:
        return self._total(f._paired(x, y) for f in self.generators)

    def _rounding(self, x: Tensor, y: Tensor) -> Tensor:
        return self._total(f._rounding(x, y) for f in self.generators)

    def _tangents(self, y: Tensor) -> Any:
        return [f._tangents(y) for f in self.generators]

    def _block(self, x: Tensor, tangents: Any) -> Tensor:
        return self._total(f._block(x, prepared) for f, prepared in zip(self.generators, tangents, strict=True))

    def _interior(self, points: Tensor) -> Tensor:
        return reduce(lambda inside, f: f._interior(inside), self.generators, points)

    def _check_domain(self, name: str, points: Tensor, tangent: bool) -> None:
        for f in self.generators:
            f._check_domain(name, points, tangent)

    def _width(self, n_features: int) -> int:
        return max(f._width(n_features) for f in self.generators)


def from_one(generator: Generator, x: Tensor, y: Tensor) -> Tensor:
    """D(x_i, y), (n,), for the one row of y (1, d), all with the same tangent plane."""
    if isinstance(generator, GeneratorSum):
        return generator._total(from_one(f, x, y) for f in generator.generators)
    if generator._stable:
        return generator._paired(x, y.expand_as(x))
    # `_paired` may round equal rows of y differently, and ties between pieces at y then break differently
    return generator._block(x, generator._tangents(y))[:, 0]


class Composed(Generator, saved_as="Composed"):
    """A generator after an affine map, f(Wx + c), where :meth:`Generator.compose` knows no simpler form.

    Parameters
    ----------
    generator : Generator
        The function f.
    matrix : array of shape (n_mapped, n_features)
    offset : array of shape (n_mapped,)

    Examples
    --------
    >>> from bregnet import ItakuraSaito
    >>> ItakuraSaito().compose([[1.0, 1.0]]).gradient([[1.0, 3.0]])
    array([[-0.25, -0.25]])
    """

    def __init__(self, generator: Generator, matrix: Array, offset: Array) -> None:
        self._matrix, self._offset = affine_map(matrix, offset, generator.n_features)
        self._n_features = self._matrix.shape[1]
        self._lives_with(self._matrix, matrix)
        self.generator = generator.to(self._matrix.dtype).to(self._matrix.device)

    def __repr__(self) -> str:
        return f"{self.generator!r} after a map of {self.n_features} features to {len(self._matrix)}"

    def _mapped(self, x: Tensor) -> Tensor:
        return torch.addmm(self._offset, x, self._matrix.T)

    def _values(self, x: Tensor) -> Tensor:
        return self.generator._values(self._mapped(x))

    def _gradients(self, x: Tensor) -> Tensor:
        return self.generator._gradients(self._mapped(x)) @ self._matrix

    def _paired(self, x: Tensor, y: Tensor) -> Tensor:
        return self.generator._paired(self._mapped(x), self._mapped(y))

    def _rounding(self, x: Tensor, y: Tensor) -> Tensor:
        mapped = self._mapped(x), self._mapped(y)
        slopes = self.generator._gradients(mapped[1]).abs()
        sizes = torch.addmm(self._offset.abs(), x.abs() + y.abs(), self._matrix.abs().T)  # of what the map adds up
        return self.generator._rounding(*mapped) + (slopes * sizes).sum(1)

    def _tangents(self, y: Tensor) -> Any:
        return self.generator._tangents(self._mapped(y))

    def _block(self, x: Tensor, tangents: Any) -> Tensor:
        return self.generator._block(self._mapped(x), tangents)

    def _check_domain(self, name: str, points: Tensor, tangent: bool) -> None:
        here = self._mapped(points.to(self._matrix))
        self.generator._check_domain(f"{name} after the affine map", here, tangent)

    def _width(self, n_features: int) -> int:
        return max(n_features, self.generator._width(len(self._matrix)))


def affine_map(
    matrix: Array, offset: float | Array, n_mapped: int | None, like: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The matrix and the vector of an affine map to so many features, checked; with the precision of `like`."""
    weights = arrays.parameter("matrix", matrix, like)
    if weights.ndim != 2 or 0 in weights.shape or n_mapped not in (None, len(weights)):
        expected = "n_mapped" if n_mapped is None else n_mapped
        raise ValueError(f"matrix must have shape ({expected}, n_features), got {tuple(weights.shape)}")
    constant = arrays.parameter("offset", offset, like=weights)
    if constant.shape not in ((), weights.shape[:1]):
        raise ValueError(f"offset must be a number or have shape ({len(weights)},), got {tuple(constant.shape)}")
    return weights, constant.expand(len(weights)).contiguous()


def _scaled_terms(generator: Any, weight: Any) -> list[tuple[float, Generator]]:
    if not isinstance(generator, Generator):
        raise TypeError(f"a generator adds to another generator, got {generator!r}")
    number = check.at_least_zero("the weight of a generator", weight)
    if isinstance(generator, GeneratorSum):
        return [(number * inner, part) for inner, part in zip(generator.weights, generator.generators, strict=True)]
    return [(number, generator)]


def _agreed(what: str, found: Sequence[Any]) -> Any:
    """The one value that is not None, or None."""
    distinct = list(dict.fromkeys(value for value in found if value is not None))
    if len(distinct) > 1:
        raise ValueError(f"the parts of a sum must have the same {what}, got {' and '.join(map(str, distinct))}")
    return distinct[0] if distinct else None
