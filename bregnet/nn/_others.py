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


def agree(here: Any, there: Any) -> bool:
    """Whether two descriptions are of the same function, up to rounding to single precision."""
    if isinstance(here, Tensor) and isinstance(there, Tensor):
        if here.shape != there.shape or "meta" in (here.device.type, there.device.type):
            return here.shape == there.shape
        return torch.allclose(here.to("cpu", torch.float64), there.to("cpu", torch.float64), rtol=1e-5)
    if isinstance(here, dict) and isinstance(there, dict):
        return here.keys() == there.keys() and all(agree(here[name], there[name]) for name in here)
    if isinstance(here, list) and isinstance(there, list):
        return len(here) == len(there) and all(map(agree, here, there))
    if isinstance(here, float) and isinstance(there, float):
        return bool(np.isclose(here, there, rtol=1e-5))
    return type(here) is type(there) and bool(here == there)


def named(description: Any) -> str:
    """A description in few words."""
    try:
        return " + ".join(f"{part['weight']:g} * {part['kind']}" for part in description) or "nothing"
    except (KeyError, TypeError, ValueError):
        return repr(description)
