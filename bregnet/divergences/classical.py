"""The classical generators: squared Euclidean, Mahalanobis, Kullback-Leibler, Itakura-Saito and logistic."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from bregnet._core import arrays
from bregnet._core.arrays import Array
from bregnet.divergences.generators import Generator, affine_map, shown


class _QuadraticForm(Generator):
    """f(x) = x'Mx, with M given by its products. Blocks are centered first: D does not change under translation."""

    _stable = True

    @abstractmethod
    def _times(self, x: Tensor) -> Tensor:
        """M x for each row."""

    @abstractmethod
    def _sizes(self, x: Tensor) -> Tensor:
        """|M| x for each row, |M| the matrix of absolute values."""

    def compose(self, matrix: Array, offset: float | Array = 0.0) -> Generator:
        """The Mahalanobis generator of W'MW, and an affine function where there is an offset.

        Examples
        --------
        >>> from bregnet import SquaredEuclidean
        >>> SquaredEuclidean().compose([[3.0, 4.0]]).matrix
        array([[ 9., 12.],
               [12., 16.]])
        """
        like = getattr(self, "_matrix", getattr(self, "_weights", None))
        weights, constant = affine_map(matrix, offset, self.n_features, like)
        form = self if self._dtype is None else self.to(weights.dtype)
        product = form._times(weights.T).T  # M W, symmetric M
        quadratic = Quadratic(weights.T @ product)
        quadratic._shows_torch = self._shows_torch
        if not constant.any():
            return quadratic
        slope, level = 2 * constant @ product, form._values(constant[None])[0]
        if not (torch.isfinite(slope).all() and torch.isfinite(level)):
            raise ValueError(
                f"offset must not be so large that its square overflows, got up to {constant.abs().max():g}"
            )
        return quadratic + Affine(slope, level)

    def _values(self, x: Tensor) -> Tensor:
        return (self._times(x) * x).sum(1)

    def _gradients(self, x: Tensor) -> Tensor:
        return 2 * self._times(x)

    def _paired(self, x: Tensor, y: Tensor) -> Tensor:
        return self._values(x - y).clamp_min(0)

    def _rounding(self, x: Tensor, y: Tensor) -> Tensor:
        return ((x - y).abs() * self._sizes((x - y).abs())).sum(1)

    def _tangents(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        center = y.mean(0)
        return center, 2 * self._times(y - center), self._values(y - center)

    def _block(self, x: Tensor, tangents: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        center, slopes, values = tangents
        return (self._values(x - center)[:, None] + values - (x - center) @ slopes.T).clamp_min(0)


class SquaredEuclidean(_QuadraticForm, saved_as="SquaredEuclidean"):
    """Generator of the squared Euclidean distance: f(x) = sum_l w_l x_l^2, D(x, y) = sum_l w_l (x_l - y_l)^2.

    Parameters
    ----------
    weights : array of shape (n_features,), default=None
        The weights w_l, at least 0; 1 by default.

    Examples
    --------
    >>> from bregnet import BregmanDivergence, SquaredEuclidean
    >>> BregmanDivergence(SquaredEuclidean()).pairwise([[0.0, 0.0]], [[3.0, 4.0]])
    array([[25.]])
    """

    def __init__(self, weights: Array | None = None) -> None:
        self._weights = None if weights is None else arrays.non_negative("weights", weights)
        if self._weights is not None and weights is not None:
            if self._weights.ndim != 1:
                raise ValueError(f"weights must have shape (n_features,), got {tuple(self._weights.shape)}")
            self._n_features = len(self._weights)
            self._lives_with(self._weights, weights)

    def __repr__(self) -> str:
        return f"SquaredEuclidean({'' if self._weights is None else f'{self.n_features} weights'})"

    @property
    def weights(self) -> Array | None:
        """The weight of each feature, (n_features,), or None."""
        return None if self._weights is None else shown(self, self._weights)

    def _times(self, x: Tensor) -> Tensor:
        return x if self._weights is None else x * self._weights

    _sizes = _times


class Quadratic(_QuadraticForm, saved_as="Quadratic"):
    """Generator of Mahalanobis distances: f(x) = x'Mx, D(x, y) = (x - y)'M(x - y).

    Parameters
    ----------
    matrix : array of shape (n_features, n_features)
        The matrix M, symmetric and positive semi-definite.

    Examples
    --------
    >>> from bregnet import BregmanDivergence, Quadratic
    >>> BregmanDivergence(Quadratic([[2.0, 0.0], [0.0, 1.0]])).paired([[1.0, 1.0]], [[0.0, 3.0]])
    array([6.])
    """

    def __init__(self, matrix: Array) -> None:
        self._matrix = arrays.parameter("matrix", matrix)
        _check_semidefinite(self._matrix.detach())
        self._n_features = len(self._matrix)
        self._lives_with(self._matrix, matrix)

    def __repr__(self) -> str:
        return f"Quadratic({self.n_features} features)"

    @property
    def matrix(self) -> Array:
        """The matrix, (n_features, n_features)."""
        return shown(self, self._matrix)

    def _times(self, x: Tensor) -> Tensor:
        return x @ ((self._matrix + self._matrix.T) / 2)

    def _sizes(self, x: Tensor) -> Tensor:
        return x @ self._matrix.abs()


class Affine(Generator, saved_as="Affine"):
    """An affine function: its divergence is 0, and adding it to another generator changes no divergence.

    Parameters
    ----------
    slope : array of shape (n_features,)
    intercept : float

    Examples
    --------
    >>> from bregnet.divergences.classical import Affine
    >>> Affine([2.0, 1.0], 3.0)([[1.0, 1.0]])
    array([6.])
    """

    _stable = True

    def __init__(self, slope: Array, intercept: float | Array) -> None:
        self._slope = arrays.parameter("slope", slope)
        self._intercept = arrays.parameter("intercept", intercept, like=self._slope)
        if self._slope.ndim != 1 or self._intercept.ndim:
            found = f"shapes {tuple(self._slope.shape)} and {tuple(self._intercept.shape)}"
            raise ValueError(f"slope must have shape (n_features,) and intercept be a number, got {found}")
        self._n_features = len(self._slope)
        self._lives_with(self._slope, slope)

    def __repr__(self) -> str:
        return f"Affine({self.n_features} features)"

    def compose(self, matrix: Array, offset: float | Array = 0.0) -> Generator:
        """The affine function of the points before the map.

        Examples
        --------
        >>> from bregnet.divergences.classical import Affine
        >>> Affine([2.0], 3.0).compose([[1.0, 5.0]])([[1.0, 1.0]])
        array([15.])
        """
        weights, constant = affine_map(matrix, offset, self.n_features, like=self._slope)
        return Affine(self._slope @ weights, self._slope @ constant + self._intercept)

    def _values(self, x: Tensor) -> Tensor:
        return x @ self._slope + self._intercept

    def _gradients(self, x: Tensor) -> Tensor:
        return self._slope.expand(x.shape)

    def _paired(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(len(x))

    def _tangents(self, y: Tensor) -> int:
        return len(y)

    def _block(self, x: Tensor, tangents: int) -> Tensor:
        return x.new_zeros(len(x), tangents)


class KullbackLeibler(Generator, saved_as="KullbackLeibler"):
    """Generator of the (generalized) Kullback-Leibler divergence: f(x) = sum x log x - x.

    D(x, y) = sum x log(x / y) - x + y, for x of at least 0 and positive y.

    Examples
    --------
    >>> from bregnet import BregmanDivergence, KullbackLeibler
    >>> BregmanDivergence(KullbackLeibler()).paired([[1.0, 0.0]], [[0.5, 0.5]]).round(6)  # log 2
    array([0.693147])
    """

    _stable = True

    def _values(self, x: Tensor) -> Tensor:
        return (torch.xlogy(x, x) - x).sum(1)

    def _gradients(self, x: Tensor) -> Tensor:
        return x.log()

    def _paired(self, x: Tensor, y: Tensor) -> Tensor:
        return _relative_entropy(x, y, x - y).sum(1)

    def _interior(self, points: Tensor) -> Tensor:
        return points.clamp_min(_nearest_to_zero(points.dtype))

    def _check_domain(self, name: str, points: Tensor, tangent: bool) -> None:
        if tangent:
            arrays.check_entries(name, points, points > 0, "positive at the tangent points of KullbackLeibler")
        else:
            arrays.check_entries(name, points, points >= 0, "at least 0 for KullbackLeibler")


class ItakuraSaito(Generator, saved_as="ItakuraSaito"):
    """Generator of the Itakura-Saito divergence: f(x) = -sum log x, for positive x.

    D(x, y) = sum x / y - log(x / y) - 1.

    Examples
    --------
    >>> from bregnet import BregmanDivergence, ItakuraSaito
    >>> BregmanDivergence(ItakuraSaito()).paired([[2.0]], [[1.0]]).round(6)  # 1 - log 2
    array([0.306853])
    """

    _stable = True

    def _values(self, x: Tensor) -> Tensor:
        return -x.log().sum(1)

    def _gradients(self, x: Tensor) -> Tensor:
        return -1 / x

    def _paired(self, x: Tensor, y: Tensor) -> Tensor:
        near, log_ratio = _near_log_ratio(y, x - y)
        far = x / y - 1 - x.log() + y.log()
        return torch.where(near, exp_excess(log_ratio), far).sum(1)

    def _check_domain(self, name: str, points: Tensor, tangent: bool) -> None:
        arrays.check_entries(name, points, points > 0, "positive for ItakuraSaito")


class Logistic(Generator, saved_as="Logistic"):
    """Generator of the logistic divergence: f(x) = sum x log x + (1 - x) log(1 - x).

    D(x, y) = sum x log(x / y) + (1 - x) log((1 - x) / (1 - y)), for x between 0 and 1 and y strictly between.

    Examples
    --------
    >>> from bregnet import BregmanDivergence, Logistic
    >>> BregmanDivergence(Logistic()).paired([[1.0]], [[0.5]]).round(6)  # log 2
    array([0.693147])
    """

    _stable = True

    def _values(self, x: Tensor) -> Tensor:
        return (torch.xlogy(x, x) + torch.special.xlog1py(1 - x, -x)).sum(1)

    def _gradients(self, x: Tensor) -> Tensor:
        return torch.logit(x)

    def _paired(self, x: Tensor, y: Tensor) -> Tensor:
        return (_relative_entropy(x, y, x - y) + _relative_entropy(1 - x, 1 - y, y - x)).sum(1)

    def _interior(self, points: Tensor) -> Tensor:
        return points.clamp(_nearest_to_zero(points.dtype), 1 - torch.finfo(points.dtype).eps)

    def _check_domain(self, name: str, points: Tensor, tangent: bool) -> None:
        if tangent:
            inside = (points > 0) & (points < 1)
            arrays.check_entries(name, points, inside, "strictly between 0 and 1 at the tangent points of Logistic")
        else:
            arrays.check_entries(name, points, (points >= 0) & (points <= 1), "between 0 and 1 for Logistic")


def exp_excess(s: Tensor) -> Tensor:
    """exp(s) - 1 - s, to full relative precision also where s is small.

    Examples
    --------
    >>> import torch
    >>> from bregnet.divergences.classical import exp_excess
    >>> exp_excess(torch.tensor([1e-10, 1.0], dtype=torch.float64))
    tensor([5.0000e-21, 7.1828e-01], dtype=torch.float64)
    """
    small = s.abs() < 0.1  # here ten terms of the series are exact in double precision
    t = torch.where(small, s, 0.0)
    series = torch.zeros_like(s)
    for coefficient in s.new_tensor([1 / math.factorial(n) for n in range(11, 1, -1)]):
        series = torch.addcmul(coefficient, series, t)
    return torch.where(small, t * t * series, torch.expm1(s) - s)


def _nearest_to_zero(dtype: torch.dtype) -> float:
    """A positive number in place of 0, which has no logarithm; large enough that its fractions do not underflow."""
    return 1e8 * torch.finfo(dtype).tiny


def _near_log_ratio(y: Tensor, difference: Tensor) -> tuple[Tensor, Tensor]:
    """Whether x is within half of y, and log(x / y) where it is; the difference x - y is exact there."""
    near = difference.abs() <= y / 2
    return near, torch.log1p(torch.where(near, difference, 0.0) / y)


def _relative_entropy(x: Tensor, y: Tensor, difference: Tensor) -> Tensor:
    """Elements x log(x / y) - x + y; they are x times exp_excess(log(y / x))."""
    near, log_ratio = _near_log_ratio(y, difference)
    far = x * (x.clamp_min(torch.finfo(x.dtype).tiny).log() - y.log()) - x + y
    return torch.where(near, x * exp_excess(-log_ratio), far)


def _check_semidefinite(matrix: Tensor) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) == 0:
        raise ValueError(f"matrix must have shape (n_features, n_features), got {tuple(matrix.shape)}")
    tolerance = math.sqrt(torch.finfo(matrix.dtype).eps)
    asymmetry = (matrix - matrix.T).abs().max().item()
    if asymmetry > tolerance * matrix.abs().max().item():
        raise ValueError(f"matrix must be symmetric, got entries that differ by {asymmetry:g} across the diagonal")
    eigenvalues = torch.linalg.eigvalsh((matrix + matrix.T) / 2)
    if eigenvalues[0] < -tolerance * eigenvalues.abs().max():
        raise ValueError(f"matrix must be positive semi-definite, got the eigenvalue {eigenvalues[0]:g}")
