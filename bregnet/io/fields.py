"""How the attributes of fitted estimators become plain values and tensors, and are read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, astuple, fields
from typing import Any

import numpy as np
import torch

from bregnet._core import validation as check
from bregnet._core.state import ARRAY, REAL, TEXT, TRUTH, Field, Made, Tensors, finite_number, mapping, texts, whole
from bregnet.clustering.minibatch import RunningMeans
from bregnet.solver.result import Check, Result

PARTS: dict[str, Field] = {"str": TEXT, "bool": TRUTH, "int": whole(0), "float": REAL}  # of a Result, by annotation
CHECK_PARTS = len(fields(Check))
WORDS = 624  # of the state of a Mersenne twister
OUTPUTS = ("default", "pandas", "polars")


def numbers(ndim: int, kinds: str = "f") -> Made:
    """A field of arrays of finite numbers."""
    return Made(ARRAY.write, lambda name, state, tensors: tensors.array(name, ndim=ndim, kinds=kinds))


VECTOR, MATRIX, COUNTS = numbers(1), numbers(2), numbers(1, "i")


def _sequence(made: Callable[[list[float]], Any]) -> Made:
    """A field of a tuple or a list of numbers."""
    return Made(
        lambda name, value, tensors: ARRAY.write(name, np.array(value, dtype=float), tensors),
        lambda name, state, tensors: made(tensors.array(name).tolist()),
    )


TUPLE, LIST = _sequence(tuple), _sequence(list)


def _write_targets(name: str, value: np.ndarray, tensors: Tensors) -> int:
    ARRAY.write(name, value, tensors)
    return value.ndim


def _read_targets(name: str, state: Any, tensors: Tensors) -> np.ndarray:
    if state not in (1, 2):
        raise ValueError(f"{name} must have 1 or 2 dimensions, got {state!r}")
    return tensors.array(name, ndim=int(state))


TARGETS = Made(_write_targets, _read_targets)


def _write_result(name: str, value: Result, tensors: Tensors) -> dict[str, Any]:
    rows = np.array([astuple(each) for each in value.history], dtype=float).reshape(-1, CHECK_PARTS)
    tensors.put(f"{name}.history", torch.as_tensor(rows))
    parts = [each for each in fields(Result) if each.name != "history"]
    return {each.name: PARTS[str(each.type)].write(name, getattr(value, each.name), tensors) for each in parts}


def _read_result(name: str, state: Any, tensors: Tensors) -> Result:
    rows = tensors.array(f"{name}.history", ndim=2, finite=False)
    if rows.shape[1] != CHECK_PARTS:
        raise ValueError(f"{name}.history must have {CHECK_PARTS} columns, got {rows.shape[1]}")
    found: dict[str, Any] = {"history": tuple(Check(int(first), *others) for first, *others in rows.tolist())}
    for part in fields(Result):
        if part.name != "history" and (part.name in mapping(name, state) or part.default is MISSING):
            found[part.name] = PARTS[str(part.type)].read(f"{name}.{part.name}", state[part.name], tensors)
    return Result(**found)


RESULT = Made(_write_result, _read_result)


def _write_table(name: str, value: dict[str, Any], tensors: Tensors) -> list[str]:
    columns = [each for each in value if each != "params"]
    for column in columns:
        ARRAY.write(f"{name}.{column}", value[column], tensors)
    return columns


def _read_table(name: str, state: Any, tensors: Tensors) -> dict[str, Any]:
    """The `cv_results_` of a search; its "params" say again what two of the columns say."""
    columns = {each: tensors.array(f"{name}.{each}", kinds="iuf", finite=False) for each in texts(name, state)}
    if len({len(column) for column in columns.values()}) != 1:
        raise ValueError(f"{name} must have columns of one length")
    chosen = zip(columns["param_alpha"], columns["param_temperature"], strict=True)
    params = [{"alpha": float(alpha), "temperature": float(temperature)} for alpha, temperature in chosen]
    return {"params": params, **columns}


TABLE = Made(_write_table, _read_table)


def _write_running(name: str, value: RunningMeans, tensors: Tensors) -> dict[str, Any]:
    tensors.put(f"{name}.centres", value.centres)
    tensors.put(f"{name}.weights", value.weights)
    LIST.write(f"{name}.history", value.history, tensors)
    return {"n_since_placed": int(value.n_since_placed)}


def _read_running(name: str, state: Any, tensors: Tensors) -> RunningMeans:
    """What `partial_fit` of k-means goes on from."""
    centres = tensors.tensor(f"{name}.centres", (None, None), torch.float32, torch.float64)
    weights = tensors.tensor(f"{name}.weights", (len(centres),), torch.float64)
    if (weights < 0).any():
        raise ValueError(f"{name}.weights must be at least 0, got {weights.min():g}")
    history = LIST.read(f"{name}.history", None, tensors)
    placed = check.integer_at_least(name, mapping(name, state)["n_since_placed"], 0)
    return RunningMeans(centres, weights, placed, history)


RUNNING = Made(_write_running, _read_running)


def _write_seed(name: str, value: np.random.RandomState, tensors: Tensors) -> Any:
    state: Any = value.get_state(legacy=False)
    if value is np.random.mtrand._rand or state["bit_generator"] != "MT19937":
        return None  # numpy's own, which goes on in every process for itself
    tensors.put(name, torch.as_tensor(state["state"]["key"].view(np.int32)))
    return {"place": int(state["state"]["pos"]), "spare": float(state["gauss"]) if state["has_gauss"] else None}


def _read_seed(name: str, state: Any, tensors: Tensors) -> np.random.RandomState:
    if state is None:
        return np.random.mtrand._rand
    key = tensors.tensor(name, (WORDS,), torch.int32).numpy().view(np.uint32)
    place = check.integer_at_least(name, mapping(name, state)["place"], 0)
    if place > WORDS:
        raise ValueError(f"{name} must have a place up to {WORDS}, got {place}")
    spare = state["spare"]
    gauss = 0.0 if spare is None else finite_number(name, spare)
    made = np.random.RandomState()
    made.set_state(("MT19937", key, place, int(spare is not None), gauss))
    return made


SEED = Made(_write_seed, _read_seed)


def _read_output(name: str, state: Any, tensors: Tensors) -> dict[str, str]:
    return {"transform": check.one_of(name, mapping(name, state)["transform"], OUTPUTS)}


OUTPUT = Made(lambda name, value, tensors: {"transform": value.get("transform", "default")}, _read_output)  # set_output
