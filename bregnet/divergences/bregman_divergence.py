"""Bregman divergences: between pairs, as streamed matrices, and as inner products."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array, ArrayT
from bregnet._core.chunks import batches, cache, rows_at_once
from bregnet._core.notebook import shown_in_notebooks
from bregnet.divergences.classical import ItakuraSaito, KullbackLeibler, Logistic, Quadratic, SquaredEuclidean
from bregnet.divergences.generators import Generator, batched

NAMED: dict[str, Callable[..., Generator]] = {
    "sqeuclidean": SquaredEuclidean,
    "mahalanobis": Quadratic,
    "kl": KullbackLeibler,
    "itakura-saito": ItakuraSaito,
    "logistic": Logistic,
}


def advice(name: Any) -> str:
    """What to use in place of a metric that is no Bregman divergence."""
    if not isinstance(name, str):
        return ""
    if name in ("euclidean", "l2", "minkowski"):
        return "; 'sqeuclidean', its square, finds the same neighbors"
    if name == "cosine":
        return "; 'sqeuclidean' finds the same neighbors in rows of length 1, as sklearn.preprocessing.normalize gives"
    return ""


@shown_in_notebooks
class BregmanDivergence:
    r"""The divergence of a generator, :math:`D(x, y) = f(x) - f(y) - \nabla f(y) \cdot (x - y)`.

    It is at least 0, convex in x, and in general not symmetric: y, the second argument, is the tangent point. Values
    beyond the range of the precision are infinite; points so large that the result would be NaN raise an error.

    Parameters
    ----------
    generator : Generator
        The convex function f.

    Examples
    --------
    >>> from bregnet import BregmanDivergence, MaxAffine
    >>> D = BregmanDivergence(MaxAffine([[1.0], [-1.0]], [0.0, 0.0]))  # of |x|
    >>> D.pairwise([[1.0], [-2.0]], [[3.0], [-3.0]])
    array([[0., 2.],
           [4., 0.]])
    """

    def __init__(self, generator: Generator) -> None:
        if not isinstance(generator, Generator):
            raise TypeError(f"generator must be a Generator, such as MaxAffine or Quadratic, got {generator!r}")
        self.generator = generator

    def __repr__(self) -> str:
        return f"BregmanDivergence({self.generator!r})"

    def __call__(self, x: Array, y: Array) -> float | Array:
        """D(x, y) of two points, or of all pairs of rows, as :meth:`pairwise` has them.

        A divergence is thus a `metric` of scikit-learn, such as that of its nearest neighbors with
        ``algorithm="brute"``: trees, which they take by default, need the triangle inequality and miss neighbors. It is
        called pair by pair there, so :class:`bregnet.BregmanNearestNeighbors` is thousands of times faster. Estimators
        that compute distances within one set of rows take them to be symmetric, which divergences are not.

        Parameters
        ----------
        x : array of shape (n_features,) or (n_x, n_features)
        y : array of shape (n_features,) or (n_y, n_features)
            The tangent points.

        Returns
        -------
        D : float, or array of shape (n_x, n_y)
            A number for two points.

        Examples
        --------
        >>> from bregnet import divergence
        >>> D = divergence("kl")
        >>> round(D([1.0, 2.0], [2.0, 1.0]), 4)
        0.6931
        >>> D([[1.0, 2.0]], [[2.0, 1.0], [1.0, 2.0]]).round(4)
        array([[0.6931, 0.    ]])
        """
        first, second = (arrays.to_torch(name, part) for name, part in (("x", x), ("y", y)))
        if first.ndim == second.ndim == 1:
            return self.paired(first[None], second[None]).item()
        if first.ndim != second.ndim or first.ndim != 2:
            found = f"{tuple(first.shape)} and {tuple(second.shape)}"
            raise ValueError(f"x and y must be two points or two arrays of points in rows, got shapes {found}")
        return self.pairwise(x, y)

    @property
    def n_features(self) -> int | None:
        """Number of features, None if any number is accepted."""
        return self.generator.n_features

    @property
    def base(self) -> BregmanDivergence:
        """The divergence of the points that the generator takes: itself, unless points are mapped first."""
        return self

    def _mapped(self, name: str, X: ArrayT) -> ArrayT:
        """Points as the generator takes them."""
        return X

    def to(self, target: str | torch.device | torch.dtype) -> BregmanDivergence:
        """The same divergence on another device or in another precision.

        Examples
        --------
        >>> import torch
        >>> from bregnet import divergence
        >>> divergence("kl").to(torch.float32).paired([[1.0]], [[1.0]])
        array([0.], dtype=float32)
        """
        return BregmanDivergence(self.generator.to(target))

    def pairwise(self, X: ArrayT, Y: Array | None = None, *, batch_size: int | None = None) -> ArrayT:
        """Divergences between all rows of X and all rows of Y.

        They are computed by matrix products, so divergences that are much smaller than the values of f lose digits;
        :meth:`paired` is accurate for these.

        Parameters
        ----------
        X : array of shape (n_x, n_features)
        Y : array of shape (n_y, n_features), default=None
            The tangent points; X by default, and then the diagonal is exactly 0.
        batch_size : int, default=None
            Rows of X at a time; by default chosen to bound the memory beside that of the result.

        Returns
        -------
        D : array of shape (n_x, n_y)
            ``D[i, j]`` is D(X[i], Y[j]).

        Examples
        --------
        >>> from bregnet import divergence
        >>> divergence("sqeuclidean").pairwise([[0.0], [1.0], [3.0]])
        array([[0., 1., 9.],
               [1., 0., 4.],
               [9., 4., 0.]])
        """
        blocks = self._blocks(X, Y, batch_size)
        out = blocks.empty(len(blocks.x))
        for rows in blocks.rows:
            blocks.fill(out[rows], rows)
        return arrays.like(out, X)

    def pairwise_blocks(
        self, X: Array, Y: Array | None = None, *, batch_size: int | None = None
    ) -> Iterator[tuple[slice, Array]]:
        """The matrix of :meth:`pairwise`, some rows at a time, for matrices that do not fit in memory.

        Parameters
        ----------
        X : array of shape (n_x, n_features)
        Y : array of shape (n_y, n_features), default=None
            The tangent points; X by default.
        batch_size : int, default=None
            Rows of X at a time; chosen to bound the memory by default.

        Returns
        -------
        blocks : iterator of (slice, array)
            The rows of X and their divergences, (n_rows, n_y).

        Examples
        --------
        >>> from bregnet import divergence
        >>> for rows, block in divergence("sqeuclidean").pairwise_blocks([[0.0], [1.0], [3.0]], batch_size=2):
        ...     print(rows, block.argmax(1))
        slice(0, 2, None) [2 2]
        slice(2, 3, None) [0]
        """
        blocks = self._blocks(X, Y, batch_size)
        parts = ((rows, blocks.empty(rows.stop - rows.start)) for rows in blocks.rows)
        return ((rows, arrays.like(blocks.fill(out, rows), X)) for rows, out in parts)

    def paired(self, X: ArrayT, Y: Array) -> ArrayT:
        """Divergences between the rows of X and the same rows of Y, accurate also for points very near each other.

        Gradients flow through torch tensors.

        Parameters
        ----------
        X : array of shape (n_points, n_features)
        Y : array of shape (n_points, n_features)
            The tangent points.

        Returns
        -------
        D : array of shape (n_points,)
            ``D[i]`` is D(X[i], Y[i]).

        Examples
        --------
        >>> from bregnet import divergence
        >>> 2.0**61 * divergence("itakura-saito").paired([[1.0], [1.0 + 2.0**-30]], [[1.0], [1.0]])
        array([0., 1.])
        """
        x, y = self._both(X, Y)
        if len(x) != len(y):
            raise ValueError(f"X and Y must have as many rows as each other, got {len(x)} and {len(y)}")
        step = self.generator._batch_size(x)
        with arrays.gradients_for(X):
            parts = [self.generator._paired(*batch) for batch in zip(x.split(step), y.split(step), strict=True)]
            out = torch.cat(parts)
            arrays.refuse_overflow("X and Y", out, x, y)
            return arrays.like(out, X)

    def lift_items(self, X: ArrayT, side: str = "right") -> ArrayT:
        """Vectors of items whose inner products with those of :meth:`lift_queries` order the items by divergence.

        On the right side, D(q, x), items are the tangent points and their vectors (grad f(x), f(x) - grad f(x).x),
        those of queries (q, 1). On the left side, D(x, q), they are (x, -f(x)) and (grad f(q), 1). On both sides

            D = lift_offsets(Q) - <item, query>,

        so the nearest items are those of the largest inner products, which any vector store can search.

        Parameters
        ----------
        X : array of shape (n_items, n_features)
        side : {"right", "left"}, default="right"
            Which argument of D the items are.

        Returns
        -------
        items : array of shape (n_items, n_features + 1)

        Examples
        --------
        >>> from bregnet import divergence
        >>> D, items, queries = divergence("sqeuclidean"), [[0.0], [3.0]], [[1.0]]
        >>> D.lift_offsets(queries) - D.lift_queries(queries) @ D.lift_items(items).T
        array([[1., 4.]])
        """
        if _is_right(side):
            return self._batched("X", X, lambda x: torch.column_stack(self.generator._planes(x)), tangent=True)
        return self._batched("X", X, lambda x: torch.column_stack([x, -self.generator._values(x)]))

    def lift_queries(self, Q: ArrayT, side: str = "right") -> ArrayT:
        """Vectors of queries to go with :meth:`lift_items`.

        Parameters
        ----------
        Q : array of shape (n_queries, n_features)
        side : {"right", "left"}, default="right"
            Which argument of D the items are; the queries are the other one.

        Returns
        -------
        queries : array of shape (n_queries, n_features + 1)

        Examples
        --------
        >>> from bregnet import divergence
        >>> divergence("sqeuclidean").lift_queries([[1.0]])
        array([[1., 1.]])
        """
        if _is_right(side):
            return self._batched("Q", Q, _with_one)
        return self._batched("Q", Q, lambda q: _with_one(self.generator._gradients(q)), tangent=True)

    def lift_offsets(self, Q: ArrayT, side: str = "right") -> ArrayT:
        """Numbers that give divergences when the inner products of lifted vectors are subtracted from them.

        They are f(q) on the right side and grad f(q).q - f(q) on the left, as a column with an entry for each query.

        Parameters
        ----------
        Q : array of shape (n_queries, n_features)
        side : {"right", "left"}, default="right"
            Which argument of D the items are.

        Returns
        -------
        offsets : array of shape (n_queries, 1)

        Examples
        --------
        >>> from bregnet import divergence
        >>> divergence("sqeuclidean").lift_offsets([[1.0], [2.0]])
        array([[1.],
               [4.]])
        """
        if _is_right(side):
            return self._batched("Q", Q, lambda q: self.generator._values(q)[:, None])
        return self._batched("Q", Q, lambda q: -self.generator._planes(q)[1][:, None], tangent=True)

    def _batched(self, name: str, X: ArrayT, evaluate: Callable[[Tensor], Tensor], tangent: bool = False) -> ArrayT:
        return batched(self.generator, self._mapped(name, X), evaluate, name=name, tangent=tangent)

    def _both(self, X: Array, Y: Array) -> tuple[Tensor, Tensor]:
        x = self.generator._points("X", self._mapped("X", X))
        y = self.generator._points("Y", self._mapped("Y", Y), tangent=True, n_features=x.shape[1])
        dtype = torch.promote_types(x.dtype, y.dtype)
        return x.to(dtype), y.to(x.device, dtype)

    def _blocks(self, X: Array, Y: Array | None, batch_size: int | None) -> _Blocks:
        if batch_size is not None:
            check.integer_at_least("batch_size", batch_size, 1)
        if Y is None:
            x = y = self.generator._points("X", self._mapped("X", X), tangent=True)
        else:
            x, y = self._both(X, Y)
        return _Blocks(self.generator, x, y, batch_size, X)


class _Blocks:
    """A matrix of divergences, computed some rows and columns at a time under the memory budget."""

    def __init__(self, generator: Generator, x: Tensor, y: Tensor, batch_size: int | None, given: Array) -> None:
        self.generator, self.x, self.y, self.given = generator, x, y, given
        self.home = given.device if isinstance(given, Tensor) else torch.device("cpu")
        width = generator._width(x.shape[1])
        # larger than other blocks: tangents that are not stored are computed again for each
        self.rows = list(batches(len(x), batch_size or rows_at_once(max(len(y), width), budget=1 << 24)))
        self.columns = list(batches(len(y), rows_at_once(width, budget=4 * cache(y.device))))
        self._tangents: list | None = None  # of all columns, where they fit
        with arrays.gradients_for(given):
            first = [generator._tangents(y[columns]) for columns in self.columns[:1]]
            if _n_elements(first) * len(self.columns) <= rows_at_once(1, budget=1 << 26):  # 512 MB in double precision
                self._tangents = first + [generator._tangents(y[columns]) for columns in self.columns[1:]]

    def empty(self, n_rows: int) -> Tensor:
        """An uninitialized block of rows of the matrix, on the device of the result."""
        return torch.empty(n_rows, len(self.y), dtype=self.x.dtype, device=self.home)

    def fill(self, out: Tensor, rows: slice) -> Tensor:
        """Write some rows of the matrix to `out`."""
        x = self.x[rows]
        with arrays.gradients_for(self.given):
            for number, columns in enumerate(self.columns):
                tangents = self._tangents[number] if self._tangents else self.generator._tangents(self.y[columns])
                out[:, columns] = block = self.generator._block(x, tangents)
                arrays.refuse_overflow("X and Y", block, self.x, self.y)
        if self.x is self.y:
            out.diagonal(rows.start).zero_()
        return out


def divergence(name: str | Generator | BregmanDivergence, **parameters: Any) -> BregmanDivergence:
    """A divergence by its name.

    Parameters
    ----------
    name : {"sqeuclidean", "mahalanobis", "kl", "itakura-saito", "logistic"}, Generator or BregmanDivergence
        A generator gives its divergence, and a divergence itself.
    **parameters
        What the generator takes: ``matrix`` for "mahalanobis", ``weights`` (optional) for "sqeuclidean".

    Returns
    -------
    divergence : BregmanDivergence

    Examples
    --------
    >>> from bregnet import divergence
    >>> divergence("mahalanobis", matrix=[[4.0]]).paired([[1.0]], [[2.0]])
    array([4.])
    """
    if isinstance(name, BregmanDivergence | Generator):
        if parameters:
            raise TypeError(f"parameters go with a name, got {', '.join(parameters)} with {name!r}")
        return name if isinstance(name, BregmanDivergence) else BregmanDivergence(name)
    if not isinstance(name, str) or name not in NAMED:
        raise ValueError(
            f"divergence must be one of {', '.join(map(repr, NAMED))} or a generator, got {name!r}{advice(name)}"
        )
    make = NAMED[name]
    try:
        inspect.signature(make).bind(**parameters)
    except TypeError as error:
        raise TypeError(f"divergence {name!r}: {error}") from None
    return BregmanDivergence(make(**parameters))


def _is_right(side: str) -> bool:
    return check.one_of("side", side, ("right", "left")) == "right"


def _with_one(x: Tensor) -> Tensor:
    return torch.column_stack([x, x.new_ones(len(x))])


def _n_elements(tangents: Any) -> int:
    """Elements of all tensors in what `Generator._tangents` returned."""
    if isinstance(tangents, Tensor):
        return tangents.numel()
    return sum(map(_n_elements, tangents)) if isinstance(tangents, list | tuple) else 0
