"""A divergence as inner products, for any vector store."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet._core.chunks import rows_at_once
from bregnet.divergences.maps import PointMap
from bregnet.retrieval.items import Gallery
from bregnet.retrieval.lift import Lift, Queries


@dataclass(frozen=True)
class Symmetry:
    """A linear map after which items and queries have the same covariance, and items the same length.

    Items are multiplied by A^(-1/2) and queries by A^(1/2), where A is the optimal transport from the covariance of
    queries to that of items. Inner products do not change. One more coordinate, 0 for queries, brings all items to the
    length of the longest.

    Attributes
    ----------
    root, inverse_root : Tensor of shape (width, width)
    longest : Tensor
        Length of the longest item after the map; lengths are divided by it.
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
    """Vectors of items and of queries: the larger their inner product, the smaller the divergence.

    ``BregmanIndex.to_inner_product`` makes it. Put `items` and `ids` into any store that searches inner products, and
    search there for the vectors that :meth:`encode` returns. A scan of all items finds the neighbors that the index
    finds, except that items may change places where single precision cannot distinguish them. The vectors do not follow
    the index: make them again when its items change.

    Attributes
    ----------
    items : ndarray of shape (n_items, width), float32
        Vectors of the items.
    ids : ndarray of shape (n_items,), int64 or str
        Their ids in the index.
    lift : Lift
        Maps points to vectors.
    symmetry : Symmetry or None
        Adapts vectors to graphs of neighbors.

    Notes
    -----
    Graphs of neighbors (HNSW) miss many of the largest inner products. ``symmetric=True`` is for them: vectors of items
    and of queries are mapped to the same covariance, and all have length 1, so the largest inner product is the largest
    cosine and the least Euclidean distance, and the square of that distance is 2 minus twice the inner product.

    It helps a lot, but measure it on your items: fewer are found at low temperatures, with many features, and for items
    near the border of the domain. For D(query, item) of Kullback-Leibler with most mass on few features, plain vectors
    may do better. ``python -m benchmarks.search --graph`` has the recall of faiss's HNSW on symmetric vectors.

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
    feature_map: PointMap | None = None  # of the queries; items are mapped already

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
        return cls(items.numpy(), to_numpy(gallery.public_ids()).copy(), lift, symmetry)

    def __repr__(self) -> str:
        shape = f"{len(self)} items of width {self.width}"
        return f"InnerProductForm({shape}, side={self.lift.side!r}, symmetric={self.symmetry is not None})"

    def __len__(self) -> int:
        """Number of items."""
        return len(self.ids)

    @property
    def width(self) -> int:
        """Dimension of a vector: one more than the features, or two more with ``symmetric=True``."""
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

        The store computes in single precision, so errors are about 1e-6 of the terms that are added up, and small
        divergences have no correct digits. ``BregmanDivergence.paired`` is accurate for these.

        Parameters
        ----------
        Q : array of shape (n_queries, n_features)
        scores : array of shape (n_queries, n_found)
            Inner products of the vectors of queries and of the items found. Some stores return 1 minus the inner
            product as a distance.

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
        Q = Q if self.feature_map is None else self.feature_map(Q, "Q")
        queries = self.lift.queries(arrays.points("Q", Q, len(centre), torch.float64, centre.device))
        return queries if self.symmetry is None else self.symmetry.queries(queries)


def _like_queries(lift: Lift, gallery: Gallery) -> Tensor:
    """Vectors of a sample of the items, as queries, (m, width)."""
    points = gallery.sample
    if gallery.side == "left":  # queries must be tangent points, items need not
        points = points[torch.isfinite(gallery.divergence.generator._gradients(points)).all(1)]
    return lift.queries(points).vectors


def _covariance(vectors: Tensor) -> Tensor:
    """Covariance (width, width), plus a small multiple of the identity, so that it has an inverse."""
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
