"""How the attributes of fitted estimators are written, as plain values and tensors, and read."""

from __future__ import annotations

import json
from dataclasses import MISSING, astuple, fields
from typing import Any

import numpy as np
import torch

from bregnet._core import validation as check
from bregnet._core.state import Field, Tensors, mapping, numbers, plain, read_number, real, text, texts, whole
from bregnet.clustering.minibatch import RunningMeans
from bregnet.solver.result import Check, Result


def sequence(kind: type) -> Field:
    """A field of a tuple or a list of numbers."""
    return Field(
        lambda name, value, tensors: numbers().write(name, np.array(value, dtype=float), tensors),
        lambda name, state, tensors: kind(tensors.array(name).tolist()),
    )


def _read_range(name: str, state: Any) -> tuple[float, float]:
    low, high = (read_number(name, each, finite=True) for each in state)
    if low > high:
        raise ValueError(f"{name} must be in order, got {low} and {high}")
    return low, high


def _read_container(name: str, state: Any) -> dict[str, str]:
    return {"transform": check.one_of(name, mapping(name, state)["transform"], ("default", "pandas", "polars"))}


def _write_targets(name: str, value: np.ndarray, tensors: Tensors) -> int:
    tensors.put_array(name, value)
    return value.ndim


def _read_targets(name: str, state: Any, tensors: Tensors) -> np.ndarray:
    if state not in (1, 2):
        raise ValueError(f"{name} must have 1 or 2 dimensions, got {state!r}")
    return tensors.array(name, ndim=int(state))


def _write_result(name: str, value: Result, tensors: Tensors) -> dict[str, Any]:
    """All but the history, which is a tensor."""
    rows = np.array([astuple(each) for each in value.history], dtype=float).reshape(-1, len(fields(Check)))
    tensors.put(f"{name}.history", torch.as_tensor(rows))
    parts = [each for each in fields(Result) if each.name != "history"]
    return {each.name: _field(each.type).write(name, getattr(value, each.name), tensors) for each in parts}


def _read_result(name: str, state: Any, tensors: Tensors) -> Result:
    """The result; parts that the file does not hold have their defaults."""
    rows = tensors.array(f"{name}.history", ndim=2, finite=False)
    if rows.shape[1] != len(fields(Check)):
        raise ValueError(f"{name}.history must have {len(fields(Check))} columns, got {rows.shape[1]}")
    found: dict[str, Any] = {"history": tuple(Check(int(first), *others) for first, *others in rows.tolist())}
    for part in fields(Result):
        if part.name != "history" and (part.name in mapping(name, state) or part.default is MISSING):
            found[part.name] = _field(part.type).read(f"{name}.{part.name}", state[part.name], tensors)
    return Result(**found)


def _field(annotation: Any) -> Field:
    """The field of a part of a result by its annotation."""
    return {"str": plain(str, text), "bool": plain(bool, check.boolean), "int": whole(0)}.get(annotation, real())


def _write_table(name: str, value: dict[str, Any], tensors: Tensors) -> list[str]:
    """The names of the columns, and values that are not numbers; "params" say again what other columns say."""
    columns = []
    for column, values in value.items():
        if column == "params":
            continue
        if values.dtype == object:  # names, None, or objects of which the description is kept
            kept = [each if each is None or isinstance(each, str) else _described(each) for each in values]
            columns.append(f"{column}={json.dumps(kept)}")
        else:
            tensors.put_array(f"{name}.{column}", values)
            columns.append(column)
    return columns


def _described(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, int | float) else repr(value)


def _read_table(name: str, state: Any, tensors: Tensors) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for each in texts(name, state):
        column, is_text, values = each.partition("=")
        if is_text:
            found = json.loads(values)
            if not isinstance(found, list) or any(isinstance(each, list | dict) for each in found):
                raise ValueError(f"{name}.{column} must be a list of plain values, got {values!r}")
            columns[column] = np.array([*found, None], dtype=object)[:-1]  # None: never numbers alone
        else:
            columns[column] = tensors.array(f"{name}.{column}", kinds="iuf", finite=False)
    if len({len(column) for column in columns.values()}) != 1:
        raise ValueError(f"{name} must have columns of one length")
    chosen = {
        column.removeprefix("param_"): columns[column].tolist() for column in columns if column.startswith("param_")
    }
    params = [dict(zip(chosen, values, strict=True)) for values in zip(*chosen.values(), strict=True)]
    return {"params": params, **columns}


def _write_running(name: str, value: RunningMeans, tensors: Tensors) -> dict[str, Any]:
    tensors.put(f"{name}.centres", value.centers)
    tensors.put(f"{name}.weights", value.weights)
    tensors.put_array(f"{name}.history", np.array(value.history, dtype=float))
    return {"n_since_placed": int(value.n_since_placed)}


def _read_running(name: str, state: Any, tensors: Tensors) -> RunningMeans:
    centers = tensors.tensor(f"{name}.centres", (None, None), torch.float32, torch.float64)
    weights = tensors.tensor(f"{name}.weights", (len(centers),), torch.float64)
    if (weights < 0).any():
        raise ValueError(f"{name}.weights must be at least 0, got {weights.min():g}")
    placed = check.integer_at_least(name, mapping(name, state)["n_since_placed"], 0)
    return RunningMeans(centers, weights, placed, tensors.array(f"{name}.history").tolist())


def _write_seed(name: str, value: np.random.RandomState, tensors: Tensors) -> Any:
    """What is not a tensor; None for numpy's own, which goes on in every process for itself."""
    state: Any = value.get_state(legacy=False)
    if value is np.random.mtrand._rand or state["bit_generator"] != "MT19937":
        return None
    tensors.put(name, torch.as_tensor(state["state"]["key"].view(np.int32)))
    return {"place": int(state["state"]["pos"]), "spare": float(state["gauss"]) if state["has_gauss"] else None}


def _read_seed(name: str, state: Any, tensors: Tensors) -> np.random.RandomState:
    if state is None:
        return np.random.mtrand._rand
    key = tensors.tensor(name, (624,), torch.int32).numpy().view(np.uint32)
    place = check.integer_at_least(name, mapping(name, state)["place"], 0)
    if place > len(key):
        raise ValueError(f"{name} must have a place up to {len(key)}, got {place}")
    spare = state["spare"]
    gauss = 0.0 if spare is None else read_number(name, spare, finite=True)
    made = np.random.RandomState()
    made.set_state(("MT19937", key, place, int(spare is not None), gauss))
    return made


value_range = plain(lambda value: [float(each) for each in value], _read_range)  # the least and the largest number
output_container = plain(lambda value: {"transform": value.get("transform", "default")}, _read_container)
targets = Field(_write_targets, _read_targets)  # one number for each row, or several
result = Field(_write_result, _read_result)
search_table = Field(_write_table, _read_table)  # the `cv_results_` of a search
running_means = Field(_write_running, _read_running)
# a `RandomState` of numpy, which is a Mersenne twister: 624 words, a place among them, and a spare number
seed = Field(_write_seed, _read_seed)
