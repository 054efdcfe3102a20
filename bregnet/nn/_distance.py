"""A divergence as a distance of pytorch-metric-learning; only this module needs that package."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bregnet._core import validation as check
from bregnet.divergences import BregmanDivergence
from bregnet.divergences.resolve import divergence_of
from bregnet.nn._max_affine import LearnableMaxAffine

try:
    from pytorch_metric_learning.distances import BaseDistance  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "BregmanDistance needs the package pytorch-metric-learning: pip install 'bregnet[losses]'", name=error.name
    ) from error


class BregmanDistance(BaseDistance):
    """A Bregman divergence for the losses, miners and testers of pytorch-metric-learning.

    ``distance(query, ref)[i, j]`` is D(query[i], ref[j]): the reference is the tangent point, as items are in the rest
    of the library, and ``side="left"`` swaps the two. A divergence is not symmetric, so the order matters: a loss calls
    an anchor the query and its positives and negatives the references.

    Parameters
    ----------
    divergence : LearnableMaxAffine, BregmanDivergence, Generator, str or fitted estimator
        A learnable one is part of this module: ``loss.parameters()`` has its parameters. All others stay as they are,
        and gradients reach the embeddings only; a fitted estimator, such as :class:`bregnet.PBDL`, gives its
        divergence.
    side : {"right", "left"}, default="right"
        "right" is D(query, reference), "left" is D(reference, query).
    normalize_embeddings : bool, default=False
        Whether to scale embeddings to length 1 first, as other distances of the package do by default. Divergences are
        learned in the space of the points, where their lengths matter.
    **kwargs
        `power`, `p` and `collect_stats` of the package's ``BaseDistance``.

    Notes
    -----
    Divergences come in the precision of the embeddings (single for half precision), whatever they are computed in.
    Testers normalize embeddings, too, unless they have ``normalize_embeddings=False``; they find neighbors with
    ``AccuracyCalculator(knn_func=BregmanKNN(divergence))``, or ``CustomKNN(distance)`` of the package.

    Examples
    --------
    >>> import torch
    >>> from pytorch_metric_learning.losses import TripletMarginLoss
    >>> from bregnet.nn import BregmanDistance, LearnableMaxAffine
    >>> points, labels = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([0, 0, 1, 1])
    >>> loss = TripletMarginLoss(margin=4.0, distance=BregmanDistance("sqeuclidean"))
    >>> loss(points, labels)  # two triplets are too narrow: D(1, 0) - D(1, 3) + 4 = 1 and D(3, 4) - D(3, 1) + 4 = 1
    tensor(1.)
    >>> learnable = LearnableMaxAffine(1, 8, strictness=0.1, random_state=0)
    >>> loss = TripletMarginLoss(margin=2.0, distance=BregmanDistance(learnable))
    >>> [name for name, _ in loss.named_parameters()]
    ['distance.divergence.slopes', 'distance.divergence.intercepts', 'distance.divergence.factor']
    """

    def __init__(
        self, divergence: Any, *, side: str = "right", normalize_embeddings: bool = False, **kwargs: Any
    ) -> None:
        learned = isinstance(divergence, LearnableMaxAffine)
        found = divergence if learned else divergence_of(divergence)
        if kwargs.get("is_inverted"):
            raise ValueError("is_inverted must be False, got True: a divergence is small between similar points")
        super().__init__(normalize_embeddings=normalize_embeddings, **kwargs)
        self.divergence: LearnableMaxAffine | BregmanDivergence = found
        self.side = check.one_of("side", side, ("right", "left"))

    def extra_repr(self) -> str:
        """What is shown between the brackets."""
        shown = "" if isinstance(self.divergence, LearnableMaxAffine) else f"{self.divergence!r}, "
        return f"{shown}side={self.side!r}"

    def compute_mat(self, query_emb: Tensor, ref_emb: Tensor | None) -> Tensor:
        """D of all queries and all references, (n_queries, n_references).

        Examples
        --------
        >>> import torch
        >>> from bregnet.nn import BregmanDistance
        >>> x, y = torch.tensor([[1.0]]), torch.tensor([[2.0], [4.0]])
        >>> BregmanDistance("kl").compute_mat(x, y).round(decimals=2)
        tensor([[0.3100, 1.6100]])
        >>> BregmanDistance("kl", side="left").compute_mat(x, y).round(decimals=2)
        tensor([[0.3900, 2.5500]])
        """
        ref_emb = query_emb if ref_emb is None else ref_emb
        here = self._here(query_emb)
        same = query_emb is ref_emb
        if self.side == "right":
            out = here.pairwise(query_emb, None if same else ref_emb)
        else:
            out = here.pairwise(ref_emb, None if same else query_emb).T
        return _as_precise(out, query_emb)

    def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        """D of each query and the reference of the same row, (n,).

        Examples
        --------
        >>> import torch
        >>> from bregnet.nn import BregmanDistance
        >>> BregmanDistance("kl").pairwise_distance(torch.tensor([[1.0]]), torch.tensor([[2.0]]))
        tensor([0.3069])
        """
        here = self._here(query_emb)
        paired = here.divergence if isinstance(here, LearnableMaxAffine) else here.paired
        x, y = (query_emb, ref_emb) if self.side == "right" else (ref_emb, query_emb)
        return _as_precise(paired(x, y), query_emb)

    def _here(self, embeddings: Tensor) -> LearnableMaxAffine | BregmanDivergence:
        """The divergence; one that is not learned goes where the embeddings are."""
        if isinstance(self.divergence, BregmanDivergence):
            known = self.divergence.generator._device
            if known not in (None, embeddings.device):
                self.divergence = self.divergence.to(embeddings.device)
        return self.divergence


def _as_precise(out: Tensor, embeddings: Tensor) -> Tensor:
    return out.to(torch.promote_types(embeddings.dtype, torch.float32))
