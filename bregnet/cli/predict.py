"""The work of `bregnet predict`."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from bregnet._core.files import whole_file
from bregnet.cli.data import Columns
from bregnet.cli.models import Model
from bregnet.cli.options import STANDARD
from bregnet.cli.output import check_outputs, tell, warnings_as_lines, write_csv


def run(path: Path, data: Path, columns: Columns, *, output: Path | None, quiet: bool) -> None:
    """Predict and write the predictions."""
    if output not in (None, STANDARD) and output.suffix not in (".csv", ".npy"):
        raise click.UsageError(f"--output must end in .csv or .npy, got {str(output)!r}")
    check_outputs(stream=output)
    model = Model.read(path)
    if not hasattr(model.holds, "predict"):
        kinds = "a regression, a classifier or clusters"
        raise ValueError(f"predict needs {kinds}, got {path}, which holds a {model.kind}")
    rows = model.rows(data, columns)
    with warnings_as_lines():
        predictions = np.asarray(model.holds.predict(rows.X))
    if output is not None and output.suffix == ".npy":
        with whole_file(output) as made, open(made, "wb") as file:
            np.save(file, predictions.astype(str) if predictions.dtype == object else predictions)
    else:
        outputs = predictions.reshape(len(predictions), -1)
        several = [f"prediction {each}" for each in range(outputs.shape[1])]
        write_csv(output, several if predictions.ndim > 1 else ["prediction"], outputs.tolist())
    if output not in (None, STANDARD):
        tell(f"{len(predictions)} predictions written to {output}", quiet=quiet)
