"""A description of what is not learned, for the states of modules: parameters alone do not say which function it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bregnet.divergences import Generator, GeneratorSum


def described(function: Generator | None) -> list[dict[str, Any]]:
    """Kind, weight and parameters of each part, in types that ``torch.load(weights_only=True)`` takes."""
    if function is None:
        return []
    terms = GeneratorSum([function])
    return [
        {"kind": type(term).__qualname__, "weight": float(weight), "parameters": _parameters(term)}
        for weight, term in zip(terms.weights, terms.generators, strict=True)
    ]


def _parameters(term: Generator) -> dict[str, Tensor | float | str]:
    found: dict[str, Tensor | float | str] = {}
    for name, value in vars(term).items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            found[name] = torch.as_tensor(value.copy())
        elif isinstance(value, Tensor):
            found[name] = value.detach().clone()
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            found[name] = value
    return found


def agree(first: Any, second: Any) -> bool:
    """Whether two descriptions are of the same function, up to rounding to single precision."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        if first.shape != second.shape or "meta" in (first.device.type, second.device.type):
            return first.shape == second.shape
        return torch.allclose(first.to("cpu", torch.float64), second.to("cpu", torch.float64), rtol=1e-5)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(agree(first[name], second[name]) for name in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(agree, first, second))
    if isinstance(first, float) and isinstance(second, float):
        return bool(np.isclose(first, second, rtol=1e-5))
    return type(first) is type(second) and bool(first == second)


def named(description: Any) -> str:
    """A description in few words."""
    try:
        return " + ".join(f"{part['weight']:g} * {part['kind']}" for part in description) or "nothing"
    except (KeyError, TypeError, ValueError):
        return repr(description)
