"""A max-affine generator whose pieces are parameters of a network."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.chunks import rows_at_once
from bregnet.divergences import Generator, GeneratorSum, MaxAffine, Quadratic
from bregnet.nn._functions import Pieces, SquaredLength, drawing, precision, recovered
from bregnet.nn._others import agree, described, named
from bregnet.nn._parts import Parts, generator_of


class LearnableMaxAffine(nn.Module):
    r"""A convex function with parameters for an optimizer, and its divergence.

    .. math:: f(x) = \tau \log \sum_k \exp((a_k \cdot x + b_k) / \tau) + |x W|^2 + g(x)

    It is convex whatever the parameters are, so no step of an optimizer can spoil that. Gradients of :meth:`forward`,
    :meth:`divergence` and :meth:`pairwise` reach the points, and thus a network that embeds them, and the parameters.

    Parameters
    ----------
    n_features : int
    n_pieces : int
    temperature : float, default=1.0
        Smoothing tau. At 0, the plain maximum, no gradient reaches the second argument of the divergence, nor pieces
        that are not the largest.
    strictness : float, default=0.0
        Curvature eps of a quadratic ``eps / 2 |x|^2`` that is added, with one parameter for each feature. It keeps
        gradients from vanishing where a single piece is the largest far around.
    learn_temperature : bool, default=False
        Whether the temperature is a parameter, too; its logarithm is.
    random_state : int, RandomState, torch.Generator or None, default=None
        Seed of the initial pieces, which are the tangent planes of ``|x|^2 / 2`` at normal points of length about 1,
        whatever the number of features. No piece is the largest by far at standardized points, where gradients would
        vanish, and divergences between them start near 1. :meth:`from_points` starts at the scale of given points. None
        draws from torch's own generator, as other modules do.
    dtype : torch.dtype, default=None
        torch.float32 or torch.float64; torch's default by default.
    device : str or torch.device, default=None

    Attributes
    ----------
    slopes : Parameter of shape (n_pieces, n_features)
        a_k.
    intercepts : Parameter of shape (n_pieces,)
        b_k.
    log_temperature : Parameter or None
        With `learn_temperature`.
    factor : Parameter of shape (n_features,) or (n_features, rank), or None
        W; a vector is a diagonal.
    others : Generator or None
        g, which is not learned: parts of a sum that have no parameters here, such as Kullback-Leibler's. A state
        has its description, and a module with another one refuses it.

    Examples
    --------
    >>> import torch
    >>> from bregnet.nn import LearnableMaxAffine
    >>> f = LearnableMaxAffine(2, 50, random_state=0)
    >>> x, y = torch.zeros(1, 2), torch.ones(1, 2, requires_grad=True)
    >>> f.divergence(x, y).sum().backward()
    >>> f.slopes.grad.shape, y.grad.shape
    (torch.Size([50, 2]), torch.Size([1, 2]))

    Starting from a fit:

    >>> from sklearn.datasets import load_iris
    >>> from bregnet import PBDL
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PBDL(temperature=0.3, tol=0.1).fit(X, y)
    >>> f = LearnableMaxAffine.from_generator(model)
    >>> optimizer = torch.optim.Adam(f.parameters(), lr=1e-3)
    >>> gap = f.pairwise(torch.as_tensor(X)) - torch.as_tensor(model.divergence_.pairwise(X))
    >>> bool(gap.abs().max() < 1e-9)
    True
    """

    slopes: nn.Parameter
    intercepts: nn.Parameter
    factor: nn.Parameter | None
    log_temperature: nn.Parameter | None
    fixed_temperature: Tensor | None

    def __init__(
        self,
        n_features: int,
        n_pieces: int,
        *,
        temperature: float = 1.0,
        strictness: float = 0.0,
        learn_temperature: bool = False,
        random_state: int | np.random.RandomState | torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        shape = check.integer_at_least("n_pieces", n_pieces, 1), check.integer_at_least("n_features", n_features, 1)
        curvature = check.at_least_zero("strictness", strictness)
        slopes = torch.randn(shape, generator=drawing(random_state), dtype=torch.float64) / math.sqrt(n_features)
        slopes = slopes.to(device=device, dtype=precision(dtype))
        factor = slopes.new_full((n_features,), math.sqrt(curvature / 2)) if curvature else None
        level = check.at_least_zero("temperature", temperature)
        self._take(Parts(slopes, -slopes.square().sum(1) / 2, level, factor, None), learn_temperature)

    @classmethod
    def from_generator(
        cls,
        source: Any,
        *,
        temperature: float | None = None,
        learn_temperature: bool = False,
        dtype: torch.dtype | None = None,
        device: str | torch.device | None = None,
    ) -> Self:
        """A function that starts as a learned one.

        Parameters
        ----------
        source : MaxAffine, GeneratorSum, BregmanDivergence or fitted estimator
            One max-affine function, alone or in a sum: of a :class:`bregnet.PBDL` with a companion, its quadratic is
            learned as well. A fitted estimator gives its `divergence_` or `function_`.
        temperature : float, default=None
            In place of the one of the source. Fine-tuning needs one: 0.1 to 0.3 suits a
            divergence that PBDL has learned.
        learn_temperature : bool, default=False
            Whether the temperature is a parameter, too.
        dtype : torch.dtype, default=None
            torch.float32 or torch.float64; that of the source by default, which is double precision as a rule.
        device : str or torch.device, default=None
            That of the source by default.

        Returns
        -------
        function : LearnableMaxAffine

        Examples
        --------
        >>> import torch
        >>> from bregnet import MaxAffine, Quadratic
        >>> from bregnet.nn import LearnableMaxAffine
        >>> wedge = MaxAffine([[1.0], [-1.0]], [0.0, 0.0], temperature=0.1)
        >>> LearnableMaxAffine.from_generator(wedge + 2.0 * Quadratic([[1.0]]), dtype=torch.float32)
        LearnableMaxAffine(2 pieces, 1 features, temperature=0.1, factor=1 x 1)
        """
        parts = Parts.from_generator(generator_of(source))
        if temperature is not None:
            parts.temperature = check.at_least_zero("temperature", temperature)
        self = cls.__new__(cls)
        self._take(parts, learn_temperature)
        return self.to(device=device, dtype=None if dtype is None else precision(dtype))

    @classmethod
    def from_points(
        cls,
        X: Tensor,
        n_pieces: int,
        *,
        temperature: float = 1.0,
        learn_temperature: bool = False,
        random_state: int | np.random.RandomState | torch.Generator | None = None,
    ) -> Self:
        """A function whose first values suit points of this scale, such as a batch of embeddings.

        Divergences between the points are about 1 on average, the margin of most losses. A quadratic is part of them,
        so that they vanish for equal points only, at any temperature, and neither a low temperature nor a miner of the
        hardest triplets lets all points collapse into one.

        Parameters
        ----------
        X : Tensor of shape (n_points, n_features)
            Some points, such as ``network(rows)``; no gradient reaches them here.
        n_pieces : int
        temperature, learn_temperature, random_state
            As in the constructor.

        Returns
        -------
        function : LearnableMaxAffine
            In the precision of the points, and on their device.

        Examples
        --------
        >>> import torch
        >>> from bregnet.nn import LearnableMaxAffine
        >>> points = 1000 * torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
        >>> f = LearnableMaxAffine.from_points(points, 30, random_state=0)
        >>> f
        LearnableMaxAffine(30 pieces, 8 features, temperature=1, factor=8)
        >>> bool(0.5 < f.pairwise(points).mean() < 3)
        True
        """
        points = arrays.points("X", X, None, None, None).detach()
        spread = points.var(0, correction=0).sum().item()  # half the mean squared distance of two points
        if not (math.isfinite(spread) and spread > 0):
            raise ValueError(f"X must have two different rows of finite numbers, got a variance of {spread:g}")
        made = cls(
            points.shape[1],
            n_pieces,
            temperature=temperature,
            strictness=1 / spread,
            learn_temperature=learn_temperature,
            random_state=random_state,
            dtype=torch.promote_types(points.dtype, torch.float32),
            device=points.device,
        )
        # as drawn, slopes suit points of unit variance around 0 and temperature 1; the curvature of the pieces is the
        # variance of the slopes over the temperature
        scale = math.sqrt(points.shape[1] / spread * (temperature if 0 < temperature < 1 else 1.0))
        with torch.no_grad():
            made.slopes.mul_(scale)
            made.intercepts.sub_(made.slopes @ points.mean(0).to(made.slopes))
        return made

    def _take(self, parts: Parts, learn_temperature: bool) -> None:
        """Make parameters of the parts."""
        nn.Module.__init__(self)
        learned = check.boolean("learn_temperature", learn_temperature)
        if learned and not parts.temperature:
            raise ValueError("temperature must be positive where it is learned, got 0.0")
        self.slopes = nn.Parameter(parts.slopes.clone())
        self.intercepts = nn.Parameter(parts.intercepts.clone())
        self.register_parameter("factor", None if parts.factor is None else nn.Parameter(parts.factor.clone()))
        level = parts.slopes.new_tensor(parts.temperature)
        self.register_parameter("log_temperature", nn.Parameter(level.log()) if learned else None)
        self.register_buffer("fixed_temperature", None if learned else level)
        self.others = parts.others

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move what is not learned along with the parameters."""
        super()._apply(fn, recurse)
        if self.others is not None:
            precision = torch.promote_types(self.slopes.dtype, torch.float32)
            self.others = self.others.to(self.slopes.device).to(precision)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Add what says which function is not learned, where there is one: plain modules have parameters only."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.others is not None:
            destination[prefix + "_extra_state"] = described(self.others)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Refuse the parameters of a function with another part that is not learned."""
        arguments = (state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        super()._load_from_state_dict(*arguments)
        key, here = prefix + "_extra_state", described(self.others)
        if key in unexpected_keys:
            unexpected_keys.remove(key)
        if key in state_dict:
            if not agree(here, state_dict[key]):
                expected, found = named(state_dict[key]), named(here)
                error_msgs.append(
                    f"{prefix}others must be as in the state, {expected} with its parameters, got {found}"
                )
        elif here and strict:
            missing_keys.append(key)

    def extra_repr(self) -> str:
        """What is shown between the brackets."""
        level = "unknown" if self.temperature.is_meta else f"{self.temperature.item():g}"
        level += "" if self.log_temperature is None else " (learned)"
        parts = [f"{self.n_pieces} pieces, {self.n_features} features, temperature={level}"]
        if self.factor is not None:
            parts.append(f"factor={' x '.join(map(str, self.factor.shape))}")
        return ", ".join([*parts, *([] if self.others is None else [f"others={self.others!r}"])])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.slopes.shape[1]

    @property
    def n_pieces(self) -> int:
        """Number of affine pieces."""
        return self.slopes.shape[0]

    @property
    def temperature(self) -> Tensor:
        """The temperature, ()."""
        if self.log_temperature is not None:
            return self.log_temperature.exp()
        assert self.fixed_temperature is not None
        return self.fixed_temperature

    def forward(self, X: Tensor) -> Tensor:
        """Values of f at the rows of X.

        Parameters
        ----------
        X : Tensor of shape (n_points, n_features)

        Returns
        -------
        values : Tensor of shape (n_points,)
            In the precision of the parameters.

        Examples
        --------
        >>> import torch
        >>> from bregnet import MaxAffine
        >>> from bregnet.nn import LearnableMaxAffine
        >>> wedge = LearnableMaxAffine.from_generator(MaxAffine([[1.0], [-1.0]], [0.0, 0.0]))
        >>> wedge(torch.tensor([[-2.0], [3.0]])).tolist()
        [2.0, 3.0]
        """
        function = self._function()
        return function._values(function._points("X", X))

    def divergence(self, X: Tensor, Y: Tensor) -> Tensor:
        """D(x, y) for the rows of X and the same rows of Y.

        At least 0, and 0 for equal rows; with a temperature no digits are lost for rows that are near each other.

        Parameters
        ----------
        X : Tensor of shape (n_points, n_features)
        Y : Tensor of shape (n_points, n_features)
            The tangent points.

        Returns
        -------
        D : Tensor of shape (n_points,)

        Examples
        --------
        >>> import torch
        >>> from bregnet import MaxAffine
        >>> from bregnet.nn import LearnableMaxAffine
        >>> wedge = LearnableMaxAffine.from_generator(MaxAffine([[1.0], [-1.0]], [0.0, 0.0]))
        >>> wedge.divergence(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [-3.0]])).tolist()
        [0.0, 4.0]
        """
        function = self._function()
        x, y = function._points("X", X), function._points("Y", Y, tangent=True)
        if len(x) != len(y):
            raise ValueError(f"X and Y must have as many rows as each other, got {len(x)} and {len(y)}")
        return function._paired(x, y)

    def pairwise(self, X: Tensor, Y: Tensor | None = None) -> Tensor:
        """D(x, y) for all rows of X and all rows of Y.

        They are computed by matrix products, and those of which rounding would leave fewer than two digits by
        :meth:`divergence`, which takes longer. All are at least 0, and 0 for equal rows. For matrices that do not fit
        in memory there is :meth:`bregnet.BregmanDivergence.pairwise_blocks` with :meth:`to_generator`.

        Parameters
        ----------
        X : Tensor of shape (n_x, n_features)
        Y : Tensor of shape (n_y, n_features), default=None
            The tangent points; X by default.

        Returns
        -------
        D : Tensor of shape (n_x, n_y)
            ``D[i, j]`` is D(X[i], Y[j]).

        Examples
        --------
        >>> import torch
        >>> from bregnet import MaxAffine
        >>> from bregnet.nn import LearnableMaxAffine
        >>> wedge = LearnableMaxAffine.from_generator(MaxAffine([[1.0], [-1.0]], [0.0, 0.0]))
        >>> wedge.pairwise(torch.tensor([[1.0], [-2.0]]), torch.tensor([[3.0], [-3.0]])).tolist()
        [[0.0, 2.0], [4.0, 0.0]]
        """
        function = self._function()
        x = function._points("X", X, tangent=Y is None)
        y = x if Y is None else function._points("Y", Y, tangent=True)
        if not len(x) or not len(y):
            return x.new_empty(len(x), len(y))
        tangents = function._tangents(y)
        with torch.no_grad():
            reach = self._reach(function, y)
        parts = []
        for rows in x.split(rows_at_once(max(self.n_pieces, len(y)))):
            block = function._block(rows, tangents)
            with torch.no_grad():
                sizes = self._reach(function, rows)[:, None] + reach
            parts.append(recovered(function, rows, y, block, sizes))
        return torch.cat(parts)

    def to_generator(self) -> Generator:
        """The function as it is now, a copy that later steps of an optimizer do not change.

        Returns
        -------
        generator : MaxAffine or GeneratorSum
            For :class:`bregnet.BregmanDivergence`, :class:`bregnet.BregmanIndex` and :func:`bregnet.save`. A diagonal
            quadratic is the `strictness` of a MaxAffine; another one, and what is not learned, is added to it.

        Examples
        --------
        >>> from bregnet import BregmanDivergence
        >>> from bregnet.nn import LearnableMaxAffine
        >>> f = LearnableMaxAffine(3, 10, temperature=0.5, random_state=0).to_generator()
        >>> f
        MaxAffine(10 pieces, 3 features, temperature=0.5)
        >>> BregmanDivergence(f).pairwise([[0.0, 0.0, 0.0]]).tolist()
        [[0.0]]
        """
        slopes, intercepts = self.slopes.detach().clone(), self.intercepts.detach().clone()
        diagonal = self.factor is not None and self.factor.ndim == 1
        strictness = 2 * self.factor.detach().square() if self.factor is not None and diagonal else 0.0
        out: Generator = MaxAffine(slopes, intercepts, temperature=self.temperature.item(), strictness=strictness)
        if self.factor is not None and not diagonal:
            factor = self.factor.detach().to(out._dtype)
            out = out + Quadratic(factor @ factor.T)
        return out if self.others is None else out + self.others

    def _function(self) -> Generator:
        """The function of the parameters themselves, so that gradients reach them."""
        parts: list[Generator] = [Pieces(self.slopes, self.intercepts, self.temperature)]
        if self.factor is not None:
            parts.append(SquaredLength(self.factor))
        if self.others is not None:
            parts.append(self.others)
        return parts[0] if len(parts) == 1 else GeneratorSum(parts)

    def _reach(self, function: Generator, x: Tensor) -> Tensor:
        """The size of what is added up for the divergences of each row, (n,), at most."""
        slopes, intercepts = (part.abs().amax(0).to(x.dtype) for part in (self.slopes, self.intercepts))
        return x.abs() @ slopes + intercepts + function._values(x).abs()
