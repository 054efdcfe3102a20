"""Divergences inside neural networks: a learnable generator, and a distance for the losses of deep metric learning.

:class:`LearnableMaxAffine` is a convex function with parameters for an optimizer; it starts from a fit of
:class:`bregnet.PBDL` or from nothing, and sits on top of any network of embeddings. :class:`BregmanDistance` gives its
divergence, or one that stays as it is, to the losses and miners of pytorch-metric-learning, and :class:`BregmanKNN` to
its testers.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bregnet.nn._knn import BregmanKNN
from bregnet.nn._max_affine import LearnableMaxAffine

if TYPE_CHECKING:
    from bregnet.nn._distance import BregmanDistance

__all__ = ["BregmanKNN", "LearnableMaxAffine"]
if find_spec("pytorch_metric_learning") is not None:  # else it is no member: asking for it says what is missing
    __all__ += ["BregmanDistance"]


def __getattr__(name: str) -> Any:
    """BregmanDistance, when it is asked for: it is a class of a package that need not be installed."""
    if name != "BregmanDistance":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bregnet.nn._distance import BregmanDistance

    return BregmanDistance


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
