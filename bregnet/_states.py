"""Generators as plain values and tensors, and back: what files hold of them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bregnet.classical import ItakuraSaito, KullbackLeibler, Logistic, Quadratic, SquaredEuclidean
from bregnet.functions import MaxAffine
from bregnet.generators import Generator, GeneratorSum

PLAIN = {kind.__name__: kind for kind in (KullbackLeibler, ItakuraSaito, Logistic)}
KNOWN = (GeneratorSum, MaxAffine, Quadratic, SquaredEuclidean, *PLAIN.values())


def generator_state(generator: Generator, prefix: str = "generator") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What to write of a generator: values that JSON can hold, and tensors by names that begin with `prefix`."""
    values: dict[str, Any] = {"type": type(generator).__name__}
    tensors: dict[str, Tensor | None] = {}
    if type(generator) not in KNOWN:
        raise TypeError(f"only the generators of this library can be saved, and sums of them, got {generator!r}")
    if isinstance(generator, GeneratorSum):
        states = [generator_state(f, f"{prefix}.{number}") for number, f in enumerate(generator.generators)]
        values |= {"weights": list(generator.weights), "generators": [state for state, _ in states]}
        return values, {name: tensor for _, parts in states for name, tensor in parts.items()}
    if isinstance(generator, MaxAffine):
        values["temperature"] = generator.temperature
        tensors = {name: getattr(generator, f"_{name}") for name in ("slopes", "intercepts", "strictness")}
    elif isinstance(generator, Quadratic):
        tensors = {"matrix": generator._matrix}
    elif isinstance(generator, SquaredEuclidean):
        tensors = {"weights": generator._weights}
    named = {f"{prefix}.{name}": part for name, part in tensors.items() if part is not None}
    return values, {name: part.detach().cpu().contiguous() for name, part in named.items()}


def generator_from(state: dict[str, Any], tensors: dict[str, Tensor], prefix: str = "generator") -> Generator:
    """The generator that `generator_state` described. Parameters are shown as numpy arrays."""
    kind = state["type"]
    if kind == GeneratorSum.__name__:
        parts = [generator_from(part, tensors, f"{prefix}.{number}") for number, part in enumerate(state["generators"])]
        return GeneratorSum(parts, [float(weight) for weight in state["weights"]])
    own = f"{prefix}."
    given = {name.removeprefix(own): part.numpy() for name, part in tensors.items() if name.startswith(own)}
    if kind == MaxAffine.__name__:
        return MaxAffine(**given, temperature=float(state["temperature"]))
    if kind == Quadratic.__name__:
        return Quadratic(**given)
    if kind == SquaredEuclidean.__name__:
        return SquaredEuclidean(**given)
    if kind in PLAIN:
        return PLAIN[kind]()
    raise ValueError(f"unknown generator {kind!r}")
