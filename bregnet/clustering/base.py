"""What the estimators of clusters share: the divergence, the device, and checks of X."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bregnet._core import arrays
from bregnet._core import validation as check
from bregnet._core.arrays import Array, to_numpy
from bregnet.divergences import BregmanDivergence
from bregnet.divergences.resolve import LearnedDivergenceMixin, fitted_divergence


class DivergenceClusterer(LearnedDivergenceMixin, BaseEstimator):
    """An estimator with centers under a divergence; subclasses have the constructor parameters named here."""

    divergence: Any
    device: str | torch.device
    random_state: int | np.random.RandomState | None

    divergence_: BregmanDivergence
    n_features_in_: int
    _centers_name: str  # of the fitted attribute

    def _training_points(self, X: Array, *, reset: bool = True, least: int = 1) -> tuple[np.ndarray, Tensor]:
        """X checked, as an array and as a tensor where to compute."""
        precisions = (np.float64, np.float32)
        features = check.validate_data(self, to_numpy(X, "X"), dtype=precisions, reset=reset, ensure_min_samples=least)
        return features, arrays.to_torch("X", features).to(check.resolve_device(self.device))

    def _learn(self, features: np.ndarray, y: Any) -> None:
        """Set the divergence, which a learner learns from y."""
        self.divergence_, self.learner_ = fitted_divergence(self.divergence, features, to_numpy(y, "y"))
        self._learned_from = self._description()

    def _description(self) -> tuple[Any, str | None]:
        """The `divergence` of the constructor; a learner's parameters too, for they may be set on the same object."""
        return self.divergence, str(self.divergence.get_params()) if hasattr(self.divergence, "get_params") else None

    def _check_same_divergence(self) -> None:
        """Raise an error where `divergence` is no longer what it was at the fit."""
        before, parameters = self._learned_from
        given, now = self._description()
        same = given == before if isinstance(given, str) and isinstance(before, str) else given is before
        if not same or now != parameters:
            raise ValueError(f"divergence must stay what it was at the first fit, {before!r}, got {given!r}; fit anew")

    def _new_points(self, X: Array) -> tuple[BregmanDivergence, Tensor, Tensor]:
        """The divergence, X and the centers on one device, that of X if it is a tensor, all after a feature map."""
        check_is_fitted(self, self._centers_name)
        if isinstance(X, Tensor):
            points = arrays.points("X", X, self.n_features_in_, None, None)
        else:
            _, points = self._training_points(X, reset=False)
        centers = torch.as_tensor(getattr(self, self._centers_name), device=points.device)
        return *self._inside(points), centers

    def _inside(self, points: Tensor) -> tuple[BregmanDivergence, Tensor]:
        """The divergence on the device of X, and X as its generator takes points: mapped if there is a feature map."""
        divergence = self.divergence_.to(points.device)
        return divergence.base, divergence._mapped("X", points)
