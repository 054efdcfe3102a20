"""`bregnet predict`."""

from __future__ import annotations

import warnings
from pathlib import Path

import click
import numpy as np

from bregnet._files import whole_file
from bregnet.cli._data import PATH, read_features
from bregnet.persistence import load
from bregnet.regression import FunctionRegressor


@click.command()
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, metavar="OUT", help="A .csv or .npy file to write.")
def predict(model: Path, data: Path, output: Path) -> None:
    """Predict the rows of DATA with a regression MODEL.

    The columns of a table are found by the names the model was fitted with; others are left out.
    """
    if output.suffix not in (".csv", ".npy"):
        raise click.UsageError(f"--output must end in .csv or .npy, got {str(output)!r}")
    fitted = load(model)
    if not isinstance(fitted, FunctionRegressor):
        raise ValueError(f"predict needs a regression model, got {model}, which holds a {type(fitted).__name__}")
    names = getattr(fitted, "feature_names_in_", None)
    X = read_features(data, None if names is None else list(names))
    if X.shape[1] != fitted.n_features_in_:
        raise ValueError(f"{data} must have the {fitted.n_features_in_} features of the model, got {X.shape[1]}")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X (has|does not have valid) feature names")
        predictions = np.asarray(fitted.predict(X))
    with whole_file(output) as made, open(made, "wb") as file:
        if output.suffix == ".npy":
            np.save(file, predictions)
        else:
            file.write("\n".join(["prediction", *map(repr, predictions.tolist()), ""]).encode())
    click.echo(f"{len(predictions)} predictions written to {output}")
