"""The work of `bregnet info`."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np

from bregnet._core.version import __version__
from bregnet.cli.features import described
from bregnet.cli.models import Model
from bregnet.cli.output import write_json
from bregnet.plotting._fits import fit_with_result
from bregnet.reporting.numbers import piece_counts


def run(path: Path, *, as_json: bool) -> None:
    """Print what is known of a model."""
    found = _described(Model.read(path))
    if as_json:
        write_json(found)
        return
    width = max(map(len, found))
    for key, value in found.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {_readable(value)}")


def _described(model: Model) -> dict[str, Any]:
    obj, divergence = model.holds, model.divergence
    function = getattr(obj, "function_", obj) if divergence is None else divergence.generator
    fit = fit_with_result(obj)
    classes = getattr(obj, "classes_", None)
    fitted = ("threshold", "temperature", "n_neighbors", "n_clusters", "n_components", "side")
    packages = ("torch", "numpy", "scikit-learn", "safetensors", "faiss-cpu")
    versions = [f"bregnet {__version__}", *(f"{package} {version(package)}" for package in packages)]
    found: dict[str, Any] = {
        "kind": model.kind,
        "generator": repr(function),
        "features": model.n_features,
        "feature_map": repr(fit.feature_map_) if hasattr(fit, "feature_map_") else None,
        "feature_names": model.feature_names,
        "preprocessing": None if model.table is None else described(model.table),
        "classes": None if classes is None else classes.tolist(),
        "items": None if model.index is None else len(model.index),
        "searched_by": None if model.index is None or not len(model.index) else model.index.method,
        "pieces": sum(piece_counts(function)) or None,
        "learner": None if fit is None or fit is obj else type(fit).__name__,
        "alpha": _value(fit, "alpha"),
        **{name: _value(obj, name) for name in fitted},
        "score": getattr(obj, "best_score_", None),
        "inertia": getattr(obj, "inertia_", None),
        "gap": getattr(fit, "gap_", None),
        "status": None if fit is None else fit.result_.status,
        "written_by": f"bregnet {model.header['bregnet']}" if "bregnet" in model.header else None,
        "format": model.header.get("version"),
        "read_by": ", ".join([*versions, f"Python {platform.python_version()}"]),
    }
    return {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in found.items()
        if value is not None
    }


def _value(obj: Any, name: str) -> Any:
    """What was found in a fit, or else the parameter."""
    return getattr(obj, f"{name}_", getattr(obj, name, None))


def _readable(value: Any) -> str:
    """Numbers short, lists with commas, the first twenty, each cut short."""
    if isinstance(value, list):
        shown = [text if len(text) <= 40 else f"{text[:37]}..." for text in map(str, value[:20])]
        return ", ".join(shown) + (f" and {len(value) - 20} more" if len(value) > 20 else "")
    return f"{value:.6g}" if isinstance(value, float) else str(value)
