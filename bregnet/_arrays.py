"""Arrays in and out: numpy or torch, checked, with errors that name the argument."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = "np.ndarray | Tensor"
ArrayT = TypeVar("ArrayT", bound=Array)


def to_torch(name: str, values: float | Array) -> Tensor:
    """A tensor, sharing memory where torch allows it."""
    if not isinstance(values, Tensor):
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            raise TypeError(f"{name} must hold real numbers, got dtype {values.dtype}")
        if values.dtype == np.longdouble or not values.dtype.isnative:
            values = values.astype(np.float64)
        if not values.flags.writeable or any(stride < 0 for stride in values.strides):
            values = values.copy()
    elif values.is_complex():
        raise TypeError(f"{name} must hold real numbers, got dtype {values.dtype}")
    return torch.as_tensor(values)


def parameter(name: str, values: float | Array, like: Tensor | None = None) -> Tensor:
    """A finite floating-point tensor, with the precision and the device of `like` if given."""
    tensor = to_torch(name, values)
    if not isinstance(values, Tensor):
        tensor = tensor.clone()  # a numpy array stays its owner's; a tensor is shared, to be learned
    tensor = tensor.to(_precision(tensor)) if like is None else tensor.to(like)
    _check_finite(name, tensor)
    return tensor


def non_negative(name: str, values: float | Array, like: Tensor | None = None) -> Tensor:
    """A parameter whose entries are at least 0."""
    tensor = parameter(name, values, like)
    if (tensor < 0).any():
        raise ValueError(f"{name} must be at least 0, got {tensor.min():g}")
    return tensor


def points(
    name: str, values: Array, n_features: int | None, dtype: torch.dtype | None, device: torch.device | None
) -> Tensor:
    """Finite points, one a row; None leaves the number of features, the precision or the device as it is."""
    tensor = to_torch(name, values)
    if tensor.ndim != 2 or n_features not in (None, tensor.shape[1]):
        expected = "n_features" if n_features is None else n_features
        raise ValueError(f"{name} must have shape (n_points, {expected}), got {tuple(tensor.shape)}")
    tensor = tensor.to(device=device or tensor.device, dtype=dtype or _precision(tensor))
    _check_finite(name, tensor)
    return tensor


def check_entries(name: str, tensor: Tensor, accepted: Tensor, requirement: str) -> None:
    """Raise an error with the first entry that is not `accepted`."""
    if not accepted.all():
        place = tuple((~accepted).nonzero()[0].tolist())
        raise ValueError(f"{name} must be {requirement}, got {tensor[place].item():g} in row {place[0]}")


def like(out: Tensor, given: ArrayT) -> ArrayT:
    """The result as the kind of array that was given, on its device."""
    return out.to(given.device) if isinstance(given, Tensor) else out.cpu().numpy()  # type: ignore[return-value]


def to_numpy(values: Array) -> Any:
    """Torch tensors as numpy arrays, half precision raised to single; anything else as it is."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.to(_precision(values)) if values.is_floating_point() else values).numpy()


def gradients_for(given: Array) -> torch.set_grad_enabled:
    """Record gradients for torch tensors only: a numpy result could not carry them."""
    return torch.set_grad_enabled(torch.is_grad_enabled() and isinstance(given, Tensor))


def _precision(tensor: Tensor) -> torch.dtype:
    """The precision to compute in: half precision is raised to single, whole numbers to double."""
    return torch.promote_types(tensor.dtype, torch.float32) if tensor.is_floating_point() else torch.float64


def _check_finite(name: str, tensor: Tensor) -> None:
    finite = torch.isfinite(tensor)
    if tensor.ndim:
        check_entries(name, tensor, finite, "finite")
    elif not finite:
        raise ValueError(f"{name} must be finite, got {tensor.item():g}")
