"""`bregnet info`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from bregnet.cli._data import PATH
from bregnet.divergences import BregmanDivergence
from bregnet.functions import DifferenceOfConvex, MaxAffine
from bregnet.generators import GeneratorSum
from bregnet.persistence import load_with_header


@click.command()
@click.argument("model", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(model: Path, as_json: bool) -> None:
    """Say what a MODEL file holds."""
    found = describe(*load_with_header(model))
    if as_json:
        click.echo(json.dumps({key: _for_json(value) for key, value in found.items()}, indent=2))
        return
    width = max(map(len, found))
    for key, value in found.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {_for_people(value)}")


def describe(obj: Any, header: dict[str, Any]) -> dict[str, Any]:
    """What there is to know about an object; None where it does not apply is left out."""
    divergence = obj if isinstance(obj, BregmanDivergence) else getattr(obj, "divergence_", None)
    function = getattr(obj, "function_", obj) if divergence is None else divergence.generator
    names = getattr(obj, "feature_names_in_", None)
    classes = getattr(obj, "classes_", None)
    result = getattr(obj, "result_", None)
    found = {
        "kind": type(obj).__name__,
        "generator": repr(function),
        "features": function.n_features,
        "feature_names": None if names is None else names.tolist(),
        "classes": None if classes is None else classes.tolist(),
        "pieces": n_pieces(function) or None,
        "alpha": getattr(obj, "alpha_", getattr(obj, "alpha", None)),
        "threshold": getattr(obj, "threshold_", None),
        "gap": getattr(obj, "gap_", None),
        "status": None if result is None else result.status,
        "written_by": f"bregnet {header.get('bregnet')}",
        "format": header["version"],
    }
    return {key: value for key, value in found.items() if value is not None}


def n_pieces(function: Any) -> int:
    """Affine pieces, of all parts of a function."""
    if isinstance(function, DifferenceOfConvex):
        return n_pieces(function.convex) + n_pieces(function.concave)
    if isinstance(function, GeneratorSum):
        return sum(n_pieces(part) for part in function.generators)
    return function.n_pieces if isinstance(function, MaxAffine) else 0


def _for_json(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _for_people(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
