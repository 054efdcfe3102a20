"""Learned functions: max-affine, smoothed or not, and differences of two."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet._core import arrays
from bregnet._core.arrays import Array
from bregnet.divergences.classical import SquaredEuclidean, exp_excess
from bregnet.divergences.generators import Generator, affine_map, batched, shown


class MaxAffine(Generator, saved_as="MaxAffine"):
    r"""A convex function, the largest of affine pieces.

    .. math:: f(x) = \max_k (a_k \cdot x + b_k) + \tfrac{1}{2} \sum_l \epsilon_l x_l^2

    With a temperature :math:`\tau > 0` the maximum is the soft one, :math:`\tau \log \sum_k \exp(\cdot / \tau)`.
    Without one the gradient where pieces tie is the slope of the first.

    Its divergence D(x, y) without a temperature is the value at x of the largest piece minus that of the piece active
    at y. With one it is tau times the Kullback-Leibler divergence from the softmax of the pieces at y to that at x.
    Strictness adds half the squared distance, weighted by eps_l. Gradients flow through torch tensors to the points,
    the slopes and the intercepts.

    Parameters
    ----------
    slopes : array of shape (n_pieces, n_features)
        The slopes a_k, one in each row.
    intercepts : array of shape (n_pieces,)
        The intercepts b_k.
    temperature : float, default=0.0
        Smoothing tau; 0 is the plain maximum.
    strictness : float or array of shape (n_features,), default=0.0
        Curvature eps of the quadratic that is added, for each feature or for all.

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet import MaxAffine
    >>> f = MaxAffine([[1.0], [-1.0]], [0.0, 0.0])  # |x|
    >>> f(np.array([[-2.0], [3.0]]))
    array([2., 3.])
    >>> f.gradient(np.array([[-2.0], [3.0]]))
    array([[-1.],
           [ 1.]])
    """

    def __init__(
        self, slopes: Array, intercepts: Array, *, temperature: float = 0.0, strictness: float | Array = 0.0
    ) -> None:
        self._slopes = arrays.parameter("slopes", slopes)
        self._intercepts = arrays.parameter("intercepts", intercepts, like=self._slopes)
        if self._slopes.ndim != 2 or len(self._slopes) == 0:
            raise ValueError(f"slopes must have shape (n_pieces, n_features), got {tuple(self._slopes.shape)}")
        if self._intercepts.shape != self._slopes.shape[:1]:
            raise ValueError(f"intercepts must have shape ({len(self._slopes)},), got {tuple(self._intercepts.shape)}")
        self.temperature = self._checked_temperature(temperature)
        self._stable = self.temperature > 0
        self._strictness = self._curvatures(strictness)
        self._paraboloid = (
            SquaredEuclidean(self._strictness.expand(self.n_features) / 2) if self._strictness.any() else None
        )
        self._lives_with(self._slopes, slopes if isinstance(slopes, Tensor) else intercepts)

    def _checked_temperature(self, given: float | Array) -> float:
        temperature = arrays.non_negative("temperature", given)
        if temperature.ndim:
            raise ValueError(f"temperature must be a number, got an array of shape {tuple(temperature.shape)}")
        least = math.sqrt(torch.finfo(self._slopes.dtype).tiny)  # or values of pieces overflow when divided by it
        if 0 < temperature < least:
            raise ValueError(f"temperature must be 0 or at least {least:.2g}, got {temperature.item():g}")
        return temperature.item()

    def _curvatures(self, strictness: float | Array) -> Tensor:
        curvatures = arrays.non_negative("strictness", strictness, like=self._slopes).detach()
        if curvatures.shape not in ((), (self.n_features,)):
            raise ValueError(
                f"strictness must be a number or have shape ({self.n_features},), got {tuple(curvatures.shape)}"
            )
        return curvatures

    def __repr__(self) -> str:
        smooth = f", temperature={self.temperature:g}" if self.temperature else ""
        level = "per feature" if self._strictness.ndim else f"{self._strictness.item():g}"
        strict = f", strictness={level}" if self._paraboloid else ""
        return f"MaxAffine({self.n_pieces} pieces, {self.n_features} features{smooth}{strict})"

    @property
    def slopes(self) -> Array:
        """The slopes, (n_pieces, n_features)."""
        return shown(self, self._slopes)

    @property
    def intercepts(self) -> Array:
        """The intercepts, (n_pieces,)."""
        return shown(self, self._intercepts)

    @property
    def strictness(self) -> float | Array:
        """The curvature that is added: a number, or one for each feature, (n_features,)."""
        return shown(self, self._strictness) if self._strictness.ndim else self._strictness.item()

    @property
    def n_pieces(self) -> int:
        """Number of affine pieces."""
        return self._slopes.shape[0]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self._slopes.shape[1]

    def active(self, X: Array) -> Array:
        """Number of the largest piece at the rows of X, (n_points,).

        Examples
        --------
        >>> from bregnet import MaxAffine
        >>> MaxAffine([[1.0], [-1.0]], [0.0, 0.0]).active([[-2.0], [3.0]])
        array([1, 0])
        """
        return batched(self, X, self._active)

    def compose(self, matrix: Array, offset: float | Array = 0.0) -> Generator:
        """The max-affine function f(Wx + c), with slopes W'a_k; strictness becomes a quadratic beside it.

        Examples
        --------
        >>> from bregnet import MaxAffine
        >>> f = MaxAffine([[1.0], [-1.0]], [0.0, 0.0], temperature=0.5).compose([[3.0, 4.0]], offset=1.0)
        >>> f, f.intercepts
        (MaxAffine(2 pieces, 2 features, temperature=0.5), array([ 1., -1.]))
        """
        weights, constant = affine_map(matrix, offset, self.n_features, like=self._slopes)
        pieces = MaxAffine(
            self._slopes @ weights, self._intercepts + self._slopes @ constant, temperature=self.temperature
        )
        pieces._shows_torch = self._shows_torch
        return pieces + self._paraboloid.compose(weights, constant) if self._paraboloid else pieces

    def _piece_values(self, x: Tensor) -> Tensor:
        return torch.addmm(self._intercepts, x, self._slopes.T)

    def _active(self, x: Tensor) -> Tensor:
        return self._piece_values(x).argmax(1)

    def _log_shares(self, x: Tensor) -> Tensor:
        """Logarithms of the softmax of the pieces, (n, K)."""
        return torch.log_softmax(self._piece_values(x) / self.temperature, dim=1)

    def _values(self, x: Tensor) -> Tensor:
        values = self._piece_values(x)
        if self.temperature:
            out = self.temperature * torch.logsumexp(values / self.temperature, dim=1)
        else:
            out = values.amax(1)
        return out + self._paraboloid._values(x) if self._paraboloid else out

    def _gradients(self, x: Tensor) -> Tensor:
        slopes = self._log_shares(x).exp() @ self._slopes if self.temperature else self._slopes[self._active(x)]
        return slopes + self._paraboloid._gradients(x) if self._paraboloid else slopes

    def _planes(self, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.temperature:
            log_shares = self._log_shares(y)
            shares = log_shares.exp()
            slopes = shares @ self._slopes
            intercepts = shares @ self._intercepts - self.temperature * (shares * log_shares).sum(1)
        else:
            active = self._active(y)
            slopes, intercepts = self._slopes[active], self._intercepts[active]
        if self._paraboloid:
            added_slopes, added_intercepts = self._paraboloid._planes(y)
            return slopes + added_slopes, intercepts + added_intercepts
        return slopes, intercepts

    def _paired(self, x: Tensor, y: Tensor) -> Tensor:
        out = self._soft_paired(x, y) if self.temperature else self._hard_paired(x, y)
        return out + self._paraboloid._paired(x, y) if self._paraboloid else out

    def _rounding(self, x: Tensor, y: Tensor) -> Tensor:
        if self.temperature:
            sizes = self._piece_values(y).abs().amax(1) / self.temperature  # of the logarithms of the shares
            out = self._soft_paired(x, y) * (1 + sizes)
        else:
            out = self._piece_values(x).abs().amax(1)
        return out + self._paraboloid._rounding(x, y) if self._paraboloid else out

    def _hard_paired(self, x: Tensor, y: Tensor) -> Tensor:
        """max_k p_k(x) - p_c(x), c the piece active at y."""
        values = self._piece_values(x)
        gaps = values.amax(1) - values.gather(1, self._active(y)[:, None])[:, 0]
        same = (x == y).all(1)  # a matrix product may round equal rows differently, and ties then break differently
        return torch.where(same, 0.0, gaps)

    def _soft_paired(self, x: Tensor, y: Tensor) -> Tensor:
        """tau log sum_k sigma_k exp(z_k): sigma the softmax at y, z = A(x - y) / tau centered under sigma.

        With the centering this is tau log1p sum_k sigma_k (exp(z_k) - 1 - z_k), where nothing cancels.
        """
        log_shares = self._log_shares(y)
        shares = log_shares.exp()
        z = (x - y) @ self._slopes.T / self.temperature
        z = z - (shares * z).sum(1, keepdim=True)
        most = 30.0  # beyond, exponentials are taken in logarithms
        if not (z.abs() > most).any():
            return self.temperature * torch.log1p((shares * exp_excess(z)).sum(1).clamp_min(0))
        grown = log_shares + z
        small = shares * exp_excess(z.clamp(-most, most))
        large = grown.clamp_max(most).exp() - shares * (1 + z)
        excess = torch.where(z.abs() <= most, small, large).sum(1).clamp_min(0)
        far = grown.amax(1) > most
        return self.temperature * torch.where(far, torch.logsumexp(grown, dim=1), torch.log1p(excess))

    def _tangents(self, y: Tensor) -> tuple[Any, Any]:
        paraboloid = self._paraboloid._tangents(y) if self._paraboloid else None
        if not self.temperature:
            return self._active(y), paraboloid
        log_shares = self._log_shares(y)
        shares = log_shares.exp()
        return (shares, (shares * log_shares).sum(1)), paraboloid

    def _block(self, x: Tensor, tangents: tuple[Any, Any]) -> Tensor:
        pieces, paraboloid = tangents
        if self.temperature:
            shares, negative_entropy = pieces
            out = self.temperature * (negative_entropy - self._log_shares(x) @ shares.T).clamp_min(0)
        else:
            values = self._piece_values(x)
            out = (values.amax(1, keepdim=True) - values)[:, pieces]
        return out + self._paraboloid._block(x, paraboloid) if self._paraboloid else out

    def _width(self, n_features: int) -> int:
        return max(self.n_pieces, n_features)


class DifferenceOfConvex:
    """The difference of two convex functions, ``convex(X) - concave(X)``.

    Parameters
    ----------
    convex, concave : Generator
        The function that is added and the one that is subtracted, such as :class:`MaxAffine` or sums of them.

    Examples
    --------
    >>> from bregnet import DifferenceOfConvex, MaxAffine
    >>> wedge = MaxAffine([[1.0], [-1.0]], [0.0, 0.0])
    >>> DifferenceOfConvex(MaxAffine([[0.0]], [1.0]), wedge)([[0.0], [0.5], [2.0]])  # 1 - |x|
    array([ 1. ,  0.5, -1. ])
    """

    def __init__(self, convex: Generator, concave: Generator) -> None:
        for name, part in (("convex", convex), ("concave", concave)):
            if not isinstance(part, Generator):
                raise TypeError(f"{name} must be a generator, such as MaxAffine, got {part!r}")
        if convex.n_features != concave.n_features:
            raise ValueError(
                f"convex and concave must have the same features, got {convex.n_features} and {concave.n_features}"
            )
        self.convex = convex
        self.concave = concave

    def __repr__(self) -> str:
        return f"DifferenceOfConvex({self.convex!r}, {self.concave!r})"

    @property
    def n_features(self) -> int | None:
        """Number of features."""
        return self.convex.n_features

    def __call__(self, X: Array) -> Array:
        """Values at the rows of X, (n_points,)."""
        return self._difference(self.convex(X), self.concave(X))

    def gradient(self, X: Array) -> Array:
        """Gradients at the rows of X, (n_points, n_features).

        Examples
        --------
        >>> from bregnet import DifferenceOfConvex, MaxAffine
        >>> wedge = MaxAffine([[1.0], [-1.0]], [0.0, 0.0])
        >>> DifferenceOfConvex(MaxAffine([[0.0]], [1.0]), wedge).gradient([[2.0]])
        array([[-1.]])
        """
        return self._difference(self.convex.gradient(X), self.concave.gradient(X))

    def _difference(self, added: Array, taken: Array) -> Array:
        with np.errstate(invalid="ignore"):
            out = added - taken
        if torch.isnan(torch.as_tensor(out)).any():
            raise ValueError("X must not be so large that both functions overflow")
        return out

    def to(self, target: str | torch.device | torch.dtype) -> DifferenceOfConvex:
        """The same function on another device or in another precision, as torch tensors.

        Examples
        --------
        >>> from bregnet import DifferenceOfConvex, MaxAffine
        >>> line = MaxAffine([[1.0]], [0.0])
        >>> DifferenceOfConvex(line, line).to("cpu").n_features
        1
        """
        return DifferenceOfConvex(self.convex.to(target), self.concave.to(target))
