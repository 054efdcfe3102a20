"""A divergence as inner products, for vector stores that know nothing of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array
from bregnet._core.chunks import rows_at_once
from bregnet.retrieval.items import Gallery
from bregnet.retrieval.lift import Lift, Queries


@dataclass(frozen=True)
class Symmetry:
    """Vectors turned so that items and queries spread alike, and items made equally long.

    Items are multiplied by A^(-1/2) and queries by A^(1/2), where A carries the covariance of queries to that of items
    by optimal transport: inner products stay what they were. One more coordinate, 0 for queries, makes up for what an
    item lacks to the length of the longest.

    Attributes
    ----------
    root, inverse_root : Tensor of shape (width, width)
    longest : Tensor
        Length of the longest item after turning; lengths are divided by it.
    """

    root: Tensor
    inverse_root: Tensor
    longest: Tensor

    @classmethod
    def from_vectors(cls, items: Tensor, queries: Tensor) -> Symmetry:
        """The symmetry of some vectors, (n, width) and (m, width)."""
        transport = _transport(_covariance(queries), _covariance(items))
        root, inverse_root = _power(transport, 0.5), _power(transport, -0.5)
        longest = (items @ inverse_root).norm(dim=1).max()
        return cls(root, inverse_root, torch.where(longest > 0, longest, 1.0))

    def items(self, vectors: Tensor) -> Tensor:
        """Vectors of items, of length 1, (n, width + 1)."""
        turned = vectors @ self.inverse_root / self.longest
        lacking = (1 - turned.square().sum(1)).clamp_min(0).sqrt()
        return torch.column_stack([turned, lacking])

    def queries(self, queries: Queries) -> Queries:
        """Queries whose vectors are of length 1, (m, width + 1)."""
        turned = queries.vectors @ self.root
        lengths = turned.norm(dim=1)
        vectors = torch.column_stack([turned / lengths[:, None], torch.zeros_like(lengths)])
        return replace(queries, vectors=vectors, reach=queries.reach * lengths * self.longest)


@dataclass(frozen=True, eq=False, repr=False)
class InnerProductForm:
    """Vectors of items and of queries: the larger their inner product, the less the divergence.

    ``BregmanIndex.to_inner_product`` makes it. Put `items` and `ids` into any store that searches inner products, and
    search there for what :meth:`encode` gives. A scan of all items finds the neighbours that the index finds, but for
    those that single precision cannot tell apart. The form is of the items as they were: make it anew when they change.

    Attributes
    ----------
    items : ndarray of shape (n_items, width), float32
        Vectors of the items.
    ids : ndarray of shape (n_items,), int64
        Their ids in the index.
    lift : Lift
        What makes vectors of points.
    symmetry : Symmetry or None
        What makes vectors fit for graphs of neighbours.

    Notes
    -----
    Graphs of neighbours (HNSW) lose their way on inner products. ``symmetric=True`` is for them: vectors of items and
    of queries are turned to spread alike, and all are of length 1, so the largest inner product is the largest cosine
    and the least Euclidean distance, and the square of that distance is 2 minus twice the inner product.

    It helps much, but measure it on your items. Share of the ten nearest that faiss's HNSW found (32 links), with 64
    and with 256 candidates:

    =============================================  ==========================  =============================
    items                                          plain, inner product        symmetric, Euclidean distance
    =============================================  ==========================  =============================
    100,000 clustered, learned, 16 or 64 features  0.16 to 0.38, 0.28 to 0.55  0.84 to 1.00, 0.97 to 1.00
    20,000 clustered, learned, 16 or 64 features   0.42 to 0.76, 0.58 to 0.91  0.94 to 1.00, 0.98 to 1.00
    20,000 unstructured, classical, 32 features    0.30 to 0.96, 0.47 to 1.00  0.69 to 0.98, 0.94 to 1.00
    =============================================  ==========================  =============================

    The least are of low temperatures and many features, and of items near the border of the domain; for D(query, item)
    of Kullback-Leibler with most mass on few of the features, plain vectors did better (0.77 against 0.72).

    Examples
    --------
    >>> import numpy as np
    >>> from bregnet import BregmanIndex
    >>> index = BregmanIndex("kl")
    >>> index.add(np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]))
    >>> form = index.to_inner_product()
    >>> form
    InnerProductForm(3 items of width 3, side='right', symmetric=False)
    >>> queries = np.array([[0.6, 0.4]])
    >>> scores = form.encode(queries) @ form.items.T  # what a store computes
    >>> form.ids[scores.argmax(1)]
    array([0])
    >>> form.divergences(queries, scores).round(4)
    array([[0.0201, 0.3112, 0.3819]])
    """

    items: np.ndarray
    ids: np.ndarray
    lift: Lift
    symmetry: Symmetry | None

    @classmethod
    @torch.no_grad()
    def from_gallery(cls, gallery: Gallery, *, symmetric: bool = False) -> InnerProductForm:
        """The form of the items of a gallery."""
        symmetric = check.boolean("symmetric", symmetric)
        if len(gallery) == 0:
            raise ValueError("the index is empty: add items before handing them to a store")
        lift, symmetry = Lift.from_gallery(gallery), None
        step = rows_at_once(gallery.points.shape[1])
        parts = (lift.items(part) for part in gallery.points.split(step))
        if symmetric:
            vectors = torch.cat(list(parts))
            symmetry = Symmetry.from_vectors(vectors, _like_queries(lift, gallery))
            parts = (symmetry.items(part) for part in vectors.split(step))
        items = torch.cat([part.float().cpu() for part in parts])
        return cls(items.numpy(), gallery.ids.cpu().numpy().copy(), lift, symmetry)

    def __repr__(self) -> str:
        shape = f"{len(self)} items of width {self.width}"
        return f"InnerProductForm({shape}, side={self.lift.side!r}, symmetric={self.symmetry is not None})"

    def __len__(self) -> int:
        """Number of items."""
        return len(self.ids)

    @property
    def width(self) -> int:
        """Numbers of a vector: one more than features, or two more where ``symmetric=True``."""
        return self.items.shape[1]

    def encode(self, Q: Array) -> np.ndarray:
        """Vectors of queries.

        Parameters
        ----------
        Q : array of shape (n_queries, n_features)

        Returns
        -------
        vectors : ndarray of shape (n_queries, width), float32
            Of length 1.

        Examples
        --------
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add([[-1.0], [1.0]])
        >>> index.to_inner_product().encode([[0.5]]).round(3)
        array([[0.832, 0.555]], dtype=float32)
        """
        return self._queries(Q).vectors.float().cpu().numpy()

    def divergences(self, Q: Array, scores: Array) -> np.ndarray:
        """Divergences from the inner products that a store has computed.

        The store computes in single precision, so they are off by about 1e-6 of the size of what is added up to them,
        and small ones are all error. ``BregmanDivergence.paired`` has their digits.

        Parameters
        ----------
        Q : array of shape (n_queries, n_features)
        scores : array of shape (n_queries, n_found)
            Inner products of the vectors of queries and of the items found. Some stores give 1 minus the inner product
            and call it a distance.

        Returns
        -------
        divergences : ndarray of shape (n_queries, n_found), float64
            D(query, item), or D(item, query) for ``side="left"``; not negative.

        Examples
        --------
        >>> from bregnet import BregmanIndex
        >>> index = BregmanIndex("sqeuclidean")
        >>> index.add([[0.0], [1.0], [3.0]])
        >>> form = index.to_inner_product()
        >>> form.divergences([[1.0]], form.encode([[1.0]]) @ form.items.T).round(4)
        array([[1., 0., 4.]])
        """
        queries = self._queries(Q)
        dots = arrays.parameter("scores", scores).to(queries.vectors)
        if dots.ndim != 2 or len(dots) != len(queries):
            raise ValueError(f"scores must have shape ({len(queries)}, n_found), got {tuple(dots.shape)}")
        return (queries.offsets[:, None] - queries.reach[:, None] * dots).clamp_min(0).cpu().numpy()

    @torch.no_grad()
    def _queries(self, Q: Array) -> Queries:
        centre = self.lift.centre
        queries = self.lift.queries(arrays.points("Q", Q, len(centre), torch.float64, centre.device))
        return queries if self.symmetry is None else self.symmetry.queries(queries)


def _like_queries(lift: Lift, gallery: Gallery) -> Tensor:
    """Vectors of those items, of a sample, that might be queries, (m, width)."""
    points = gallery.sample
    if gallery.side == "left":  # a query has a tangent, an item need not
        points = points[torch.isfinite(gallery.divergence.generator._gradients(points)).all(1)]
    return lift.queries(points).vectors


def _covariance(vectors: Tensor) -> Tensor:
    """Covariance (width, width), some of a sphere's added: it has an inverse even of a single vector."""
    sphere = torch.eye(vectors.shape[1]).to(vectors)
    if not len(vectors):
        return sphere
    centred = vectors - vectors.mean(0)
    covariance = centred.T @ centred / len(vectors)
    size = covariance.diagonal().mean()
    return covariance + sphere * torch.where(size > 0, 1e-3 * size, 1.0)


def _transport(source: Tensor, target: Tensor) -> Tensor:
    """The A with A source A = target: S^(-1/2) (S^(1/2) T S^(1/2))^(1/2) S^(-1/2)."""
    root, inverse_root = _power(source, 0.5), _power(source, -0.5)
    return inverse_root @ _power(root @ target @ root, 0.5) @ inverse_root


def _power(matrix: Tensor, exponent: float) -> Tensor:
    """Power of a symmetric positive definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values**exponent @ vectors.T
