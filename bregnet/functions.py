"""Generating functions: max-affine, smoothed or not, and differences of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = "np.ndarray | Tensor"

BATCH_ELEMENTS = 1 << 22  # piece values held at once


def _to_torch(values: Array) -> Tensor:
    """A tensor, sharing memory where torch allows it (it does not for read-only arrays)."""
    if not isinstance(values, Tensor):
        values = np.asarray(values)
        if not values.flags.writeable:
            values = values.copy()
    return torch.as_tensor(values)


def _as_tensor(values: Array, device: torch.device) -> Tensor:
    tensor = _to_torch(values)
    if not tensor.is_floating_point():
        tensor = tensor.double()
    return tensor.to(device)


def _check_points(points: Tensor, n_features: int) -> None:
    if points.ndim != 2 or points.shape[1] != n_features:
        raise ValueError(f"X must have shape (n_points, {n_features}), got {tuple(points.shape)}")


class MaxAffine:
    r"""A convex function, the largest of affine pieces.

    .. math:: f(x) = \max_k (a_k \cdot x + b_k) + \tfrac{\epsilon}{2} |x|^2

    With a temperature :math:`\tau > 0` the maximum is the soft one, :math:`\tau \log \sum_k \exp(\cdot / \tau)`.

    Parameters
    ----------
    slopes : array of shape (n_pieces, n_features)
        One slope a_k a row.
    intercepts : array of shape (n_pieces,)
        The intercepts b_k.
    temperature : float, default=0.0
        Smoothing tau; 0 is the plain maximum.
    strictness : float, default=0.0
        Curvature eps of the quadratic that is added.

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

    def __init__(self, slopes: Array, intercepts: Array, *, temperature: float = 0.0, strictness: float = 0.0) -> None:
        self._torch_out = isinstance(slopes, Tensor)
        device = slopes.device if isinstance(slopes, Tensor) else torch.device("cpu")
        self._slopes = _as_tensor(slopes, device)
        self._intercepts = _as_tensor(intercepts, device).to(self._slopes.dtype)
        if self._slopes.ndim != 2 or len(self._slopes) == 0:
            raise ValueError(f"slopes must have shape (n_pieces, n_features), got {tuple(self._slopes.shape)}")
        if self._intercepts.shape != self._slopes.shape[:1]:
            raise ValueError(f"intercepts must have shape ({len(self._slopes)},), got {tuple(self._intercepts.shape)}")
        for name, value in (("temperature", temperature), ("strictness", strictness)):
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        self.temperature = float(temperature)
        self.strictness = float(strictness)

    def __repr__(self) -> str:
        smooth = f", temperature={self.temperature:g}" if self.temperature else ""
        strict = f", strictness={self.strictness:g}" if self.strictness else ""
        return f"MaxAffine({self.n_pieces} pieces, {self.n_features} features{smooth}{strict})"

    @property
    def slopes(self) -> Array:
        """The slopes, (n_pieces, n_features)."""
        return self._slopes if self._torch_out else self._slopes.numpy()

    @property
    def intercepts(self) -> Array:
        """The intercepts, (n_pieces,)."""
        return self._intercepts if self._torch_out else self._intercepts.numpy()

    @property
    def n_pieces(self) -> int:
        """Number of affine pieces."""
        return self._slopes.shape[0]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self._slopes.shape[1]

    def to(self, device: str | torch.device) -> MaxAffine:
        """The same function on another device, as torch tensors.

        Examples
        --------
        >>> from bregnet import MaxAffine
        >>> MaxAffine([[1.0]], [0.0]).to("cpu").slopes
        tensor([[1.]], dtype=torch.float64)
        """
        return MaxAffine(
            self._slopes.to(device),
            self._intercepts.to(device),
            temperature=self.temperature,
            strictness=self.strictness,
        )

    def __call__(self, X: Array) -> Array:
        """Values at the rows of X, (n_points,)."""
        return self._batched(X, self._values)

    def gradient(self, X: Array) -> Array:
        """Gradients at the rows of X, (n_points, n_features); where pieces tie, the slope of the first.

        Examples
        --------
        >>> from bregnet import MaxAffine
        >>> MaxAffine([[1.0], [-1.0]], [0.0, 0.0], temperature=0.5).gradient([[0.0]])
        array([[0.]])
        """
        return self._batched(X, self._gradients)

    def active(self, X: Array) -> Array:
        """Number of the largest piece at the rows of X, (n_points,).

        Examples
        --------
        >>> from bregnet import MaxAffine
        >>> MaxAffine([[1.0], [-1.0]], [0.0, 0.0]).active([[-2.0], [3.0]])
        array([1, 0])
        """
        return self._batched(X, lambda x: self._piece_values(x).argmax(1))

    def _piece_values(self, points: Tensor) -> Tensor:
        return torch.addmm(self._intercepts, points, self._slopes.T)

    def _values(self, points: Tensor) -> Tensor:
        values = self._piece_values(points)
        if self.temperature > 0:
            out = self.temperature * torch.logsumexp(values / self.temperature, dim=1)
        else:
            out = values.amax(1)
        return out + self.strictness / 2 * points.square().sum(1) if self.strictness else out

    def _gradients(self, points: Tensor) -> Tensor:
        values = self._piece_values(points)
        if self.temperature > 0:
            out = torch.softmax(values / self.temperature, dim=1) @ self._slopes
        else:
            out = self._slopes[values.argmax(1)]
        return out + self.strictness * points if self.strictness else out

    def _batched(self, X: Array, evaluate: Callable[[Tensor], Tensor]) -> Array:
        wants_torch = isinstance(X, Tensor)
        points = _to_torch(X).to(self._slopes)
        _check_points(points, self.n_features)
        step = max(1, BATCH_ELEMENTS // self.n_pieces)
        parts = [evaluate(points[start : start + step]) for start in range(0, max(len(points), 1), step)]
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        return out.to(X.device) if wants_torch else out.cpu().numpy()


class DifferenceOfConvex:
    """The difference of two convex functions, ``convex(X) - concave(X)``.

    Parameters
    ----------
    convex, concave : MaxAffine
        The function that is added and the one that is taken away.

    Examples
    --------
    >>> from bregnet import DifferenceOfConvex, MaxAffine
    >>> wedge = MaxAffine([[1.0], [-1.0]], [0.0, 0.0])
    >>> DifferenceOfConvex(MaxAffine([[0.0]], [1.0]), wedge)([[0.0], [0.5], [2.0]])  # 1 - |x|
    array([ 1. ,  0.5, -1. ])
    """

    def __init__(self, convex: MaxAffine, concave: MaxAffine) -> None:
        if convex.n_features != concave.n_features:
            raise ValueError(
                f"convex and concave must have the same features, got {convex.n_features} and {concave.n_features}"
            )
        self.convex = convex
        self.concave = concave

    def __repr__(self) -> str:
        return f"DifferenceOfConvex({self.convex!r}, {self.concave!r})"

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.convex.n_features

    def __call__(self, X: Array) -> Array:
        """Values at the rows of X, (n_points,)."""
        return self.convex(X) - self.concave(X)

    def gradient(self, X: Array) -> Array:
        """Gradients at the rows of X, (n_points, n_features).

        Examples
        --------
        >>> from bregnet import DifferenceOfConvex, MaxAffine
        >>> wedge = MaxAffine([[1.0], [-1.0]], [0.0, 0.0])
        >>> DifferenceOfConvex(MaxAffine([[0.0]], [1.0]), wedge).gradient([[2.0]])
        array([[-1.]])
        """
        return self.convex.gradient(X) - self.concave.gradient(X)

    def to(self, device: str | torch.device) -> DifferenceOfConvex:
        """The same function on another device, as torch tensors.

        Examples
        --------
        >>> from bregnet import DifferenceOfConvex, MaxAffine
        >>> line = MaxAffine([[1.0]], [0.0])
        >>> DifferenceOfConvex(line, line).to("cpu").n_features
        1
        """
        return DifferenceOfConvex(self.convex.to(device), self.concave.to(device))
