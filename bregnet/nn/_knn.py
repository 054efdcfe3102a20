"""Nearest neighbors for the testers of pytorch-metric-learning."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from bregnet._core import validation as check
from bregnet.divergences.resolve import divergence_of
from bregnet.nn._max_affine import LearnableMaxAffine
from bregnet.retrieval import BregmanIndex
from bregnet.retrieval.base import nearest_others


class BregmanKNN:
    """Nearest neighbors by a divergence, to be called as pytorch-metric-learning calls its own.

    It goes where that package takes a `knn_func`: ``AccuracyCalculator(knn_func=BregmanKNN(divergence))`` for its
    testers, ``InferenceModel(trunk, knn_func=BregmanKNN(divergence), normalize_embeddings=False)``. The answers are
    those of a :class:`bregnet.BregmanIndex`: exact, in double precision, ties by squared Euclidean distance. It does
    not need the package.

    Parameters
    ----------
    divergence : LearnableMaxAffine, BregmanDivergence, Generator, str or fitted estimator
        A learnable one is asked anew at each call, so that neighbors are those of the parameters at that time.
    side : {"right", "left"}, default="right"
        "right" searches for the least D(query, reference), "left" for the least D(reference, query).
    kind : {"flat", "ivf"}, default="flat"
        Kind of the index: "flat" is exact.

    Attributes
    ----------
    index : BregmanIndex or None
        The references that :meth:`train` and :meth:`add` gave.

    Examples
    --------
    >>> import torch
    >>> from bregnet.nn import BregmanKNN
    >>> points = torch.tensor([[0.0], [1.0], [3.0]])
    >>> divergences, ids = BregmanKNN("sqeuclidean")(points, 1, points, ref_includes_query=True)
    >>> ids.tolist()  # of each row, the nearest other one
    [[1], [0], [1]]
    """

    def __init__(self, divergence: Any, *, side: str = "right", kind: str = "flat") -> None:
        self.divergence = divergence_of(divergence) if not isinstance(divergence, LearnableMaxAffine) else divergence
        self.side = check.one_of("side", side, ("right", "left"))
        self.kind = check.one_of("kind", kind, ("flat", "ivf"))
        self.index: BregmanIndex | None = None

    def __repr__(self) -> str:
        return f"BregmanKNN({self.divergence!r}, side={self.side!r}, kind={self.kind!r})"

    def __call__(
        self, query: Tensor, k: int, reference: Tensor | None = None, ref_includes_query: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The k nearest references of each query.

        Parameters
        ----------
        query : Tensor of shape (n_queries, n_features)
        k : int
        reference : Tensor of shape (n_references, n_features), default=None
            Those of :meth:`train` and :meth:`add` by default.
        ref_includes_query : bool, default=False
            Whether the first references are the queries, none of which is then its own neighbor.

        Returns
        -------
        divergences : Tensor of shape (n_queries, k), double precision
        ids : Tensor of shape (n_queries, k), int
            Row numbers of the references.
        """
        index = self._index_of(reference) if reference is not None else self.index
        if index is None:
            raise ValueError("reference must be given, or train called before, got neither")
        found = (
            nearest_others(index, query, k, torch.arange(len(query))) if ref_includes_query else index.search(query, k)
        )
        return torch.as_tensor(found[0]), torch.as_tensor(found[1])

    def train(self, embeddings: Tensor) -> None:
        """Search these references from now on.

        Parameters
        ----------
        embeddings : Tensor of shape (n_references, n_features)

        Examples
        --------
        >>> import torch
        >>> from bregnet.nn import BregmanKNN
        >>> knn = BregmanKNN("sqeuclidean")
        >>> knn.train(torch.tensor([[0.0], [1.0]]))
        >>> knn.add(torch.tensor([[3.0]]))
        >>> knn(torch.tensor([[2.5]]), 2)[1].tolist()
        [[2, 1]]
        """
        self.index = self._index_of(embeddings)

    def add(self, embeddings: Tensor) -> None:
        """Search these references, too.

        Parameters
        ----------
        embeddings : Tensor of shape (n_references, n_features)

        Examples
        --------
        See :meth:`train`.
        """
        if self.index is None:
            self.train(embeddings)
        else:
            self.index.add(embeddings)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the references and their divergence to a folder, as :meth:`bregnet.BregmanIndex.save` does.

        Parameters
        ----------
        path : str or path

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import torch
        >>> from bregnet.nn import BregmanKNN
        >>> knn = BregmanKNN("sqeuclidean")
        >>> knn.train(torch.tensor([[0.0], [1.0]]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     knn.save(Path(folder) / "references")
        ...     knn.load(Path(folder) / "references")
        >>> len(knn.index)
        2
        """
        if self.index is None:
            raise ValueError("there is nothing to save: call train first")
        self.index.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Search the references of a folder that :meth:`save` wrote, by the divergence that is in it.

        Parameters
        ----------
        path : str or path

        Examples
        --------
        See :meth:`save`.
        """
        self.index = BregmanIndex.load(path)

    def _index_of(self, points: Tensor) -> BregmanIndex:
        index = BregmanIndex(self.divergence, side=self.side, kind=self.kind, device=points.device, random_state=0)
        index.add(points)
        return index
