"""Regressors as ONNX graphs: what predicts without Python, or in another language.

A max-affine function is one product with its slopes (`Gemm`) and the largest of the results (`ReduceMax`); a
temperature makes it a log-sum-exp; a difference of convex functions is two of these and a subtraction.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from bregnet._core import validation as check
from bregnet._core.arrays import to_numpy
from bregnet._core.files import whole_file
from bregnet._core.optional import require
from bregnet._core.version import __version__
from bregnet.divergences import DifferenceOfConvex, Generator, GeneratorSum, MaxAffine
from bregnet.divergences.resolve import best_of
from bregnet.learners.regressors import FunctionRegressor

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 18, 8  # of 2022: runtimes of the last years read them


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None, *, dtype: Any = "float32") -> ModelProto:
    """A fitted regressor as an ONNX model, which needs neither bregnet nor Python to predict.

    It needs ``pip install 'bregnet[onnx]'``. The input of the graph is ``X`` of shape (n_samples, n_features), its
    output ``y`` of shape (n_samples,).

    Parameters
    ----------
    model : estimator or function
        A fitted :class:`bregnet.ConvexRegressor`, :class:`bregnet.DCRegressor` or a search for one; a pipeline of
        scikit-learn's ``StandardScaler`` and one of these; or a :class:`bregnet.MaxAffine`, a sum of them, or a
        :class:`bregnet.DifferenceOfConvex`.
    path : path, default=None
        Where to write the model, if anywhere.
    dtype : {"float32", "float64"}, default="float32"
        Of the input, the output and what is between them. Single precision has some 7 digits of the largest value of
        a piece, so center features that are far from 0, or ask for double precision.

    Returns
    -------
    model : onnx.ModelProto

    Raises
    ------
    TypeError
        For a model of another type.
    ModuleNotFoundError
        Where the package `onnx` is not installed.

    Examples
    --------
    >>> from bregnet import ConvexRegressor, to_onnx
    >>> model = ConvexRegressor(1e-4).fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 4.0, 9.0])
    >>> made = to_onnx(model)
    >>> [node.op_type for node in made.graph.node]
    ['Gemm', 'ReduceMax']
    """
    require("bregnet.to_onnx", "onnx", extra="onnx")
    if path is not None:
        path = check.folder("path", path)
    graph = _Graph(_precision(dtype))
    n_features = graph.predicts(model)
    made = graph.model(n_features)
    if path is not None:
        with whole_file(path) as file:
            file.write_bytes(made.SerializeToString())
    return made


def _precision(dtype: Any) -> np.dtype:
    try:
        found = np.dtype(str(dtype).removeprefix("torch.") if not isinstance(dtype, type) else dtype)
    except (TypeError, ValueError, SyntaxError):  # numpy reads some strings as Python
        found = None
    if found is None or found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    return found


@dataclass
class _Graph:
    """Nodes and constants, added one after another."""

    dtype: np.dtype
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def predicts(self, model: Any) -> int:
        """Add what a model predicts, as "y"; the number of its features."""
        model, x = best_of(model), "X"
        steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
        for step in steps[:-1]:
            x = self._scaled(step, x)
        last = steps[-1]
        function = last
        if isinstance(last, BaseEstimator):
            check_is_fitted(last)
            function = getattr(last, "function_", None) if isinstance(last, FunctionRegressor) else None
        if not isinstance(function, Generator | DifferenceOfConvex):
            raise TypeError(f"model must be a regressor of bregnet or its function, got {last!r}")
        found = self.values(function, x)
        if isinstance(last, FunctionRegressor) and last.clip:
            self.node("Clip", found, *(self.constant(np.asarray(each)) for each in last.target_range_))
        self.nodes[-1].output[0] = "y"
        n_features = getattr(steps[0], "n_features_in_", function.n_features)
        return int(n_features or 0)  # functions of MaxAffine parts have a number of features

    def _scaled(self, step: Any, x: str) -> str:
        if not isinstance(step, StandardScaler):
            raise TypeError(f"steps before a regressor must be a StandardScaler, got {step!r}")
        check_is_fitted(step)
        if step.with_mean:
            x = self.node("Sub", x, self.constant(step.mean_))
        return self.node("Div", x, self.constant(step.scale_)) if step.with_std else x

    def values(self, function: Any, x: str) -> str:
        """The values of a function, (n_samples,)."""
        if isinstance(function, DifferenceOfConvex):
            return self.node("Sub", self.values(function.convex, x), self.values(function.concave, x))
        if isinstance(function, GeneratorSum):
            parts = [
                self.node("Mul", self.values(part, x), self.constant(np.asarray(weight)))
                for weight, part in zip(function.weights, function.generators, strict=True)
            ]
            return self.node("Sum", *parts)
        if not isinstance(function, MaxAffine):
            raise TypeError(f"model must be made of MaxAffine functions, got {function!r}")
        slopes, intercepts = (np.asarray(to_numpy(each)) for each in (function.slopes, function.intercepts))
        pieces = self.node("Gemm", x, self.constant(slopes), self.constant(intercepts), transB=1)
        found = self._largest(pieces, function.temperature)
        if not np.any(to_numpy(function.strictness)):
            return found
        curvatures = np.broadcast_to(np.asarray(to_numpy(function.strictness)), slopes.shape[1]) / 2
        return self.node("Add", found, self.node("MatMul", self.node("Mul", x, x), self.constant(curvatures)))

    def _largest(self, pieces: str, temperature: float) -> str:
        """The largest of the pieces of each row, or with a temperature their log-sum-exp, which cannot overflow."""
        along = self.constant(np.array([1]), np.int64)
        if temperature == 0:
            return self.node("ReduceMax", pieces, along, keepdims=0)
        unit = self.constant(np.asarray(temperature))
        largest = self.node("ReduceMax", pieces, along, keepdims=1)
        shares = self.node("Exp", self.node("Div", self.node("Sub", pieces, largest), unit))
        rest = self.node("Mul", self.node("Log", self.node("ReduceSum", shares, along, keepdims=1)), unit)
        return self.node("Squeeze", self.node("Add", largest, rest), along)

    def constant(self, value: np.ndarray, dtype: Any = None) -> str:
        """The name of a constant."""
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype or self.dtype, order="C"), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The name of what an operation gives."""
        from onnx import helper

        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def model(self, n_features: int) -> Any:
        """The model, checked."""
        from onnx import checker, helper

        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        given = helper.make_tensor_value_info("X", kind, ["n_samples", n_features])
        found = helper.make_tensor_value_info("y", kind, ["n_samples"])
        graph = helper.make_graph(self.nodes, "bregnet", [given], [found], self.constants)
        about: dict[str, Any] = {"producer_name": "bregnet", "producer_version": __version__, "ir_version": IR_VERSION}
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], **about)
        checker.check_model(made)
        return made
