"""The work of `bregnet predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from bregnet._core.files import whole_file
from bregnet.cli.data import Columns
from bregnet.cli.models import Model
from bregnet.cli.options import STANDARD
from bregnet.cli.output import check_outputs, tell, warnings_as_lines, write_csv
from bregnet.cli.usage import needed_target
from bregnet.divergences.resolve import side_of
from bregnet.retrieval import BregmanKNeighborsClassifier


def run(
    path: Path,
    data: Path,
    columns: Columns,
    *,
    known: Path | None,
    target: str | None,
    k: int | None,
    names: str | None,
    output: Path | None,
    quiet: bool,
) -> None:
    """Predict and write the predictions."""
    check_outputs(stream=output)
    model = Model.read(path)
    predictor = _predictor(model, known, columns, target, k)
    rows = model.rows(data, columns, names=names)
    with warnings_as_lines():
        predictions = np.asarray(predictor.predict(rows.X))
    if output is not None and output.suffix == ".npy":
        with whole_file(output) as made, open(made, "wb") as file:
            np.save(file, predictions.astype(str) if predictions.dtype == object else predictions)
    else:
        outputs = predictions.reshape(len(predictions), -1)
        several = [f"prediction {each}" for each in range(outputs.shape[1])]
        head, lines = several if predictions.ndim > 1 else ["prediction"], outputs.tolist()
        if names is not None:
            head, lines = (
                [names, *head],
                [[name, *line] for name, line in zip(rows.called.tolist(), lines, strict=True)],
            )
        write_csv(output, head, lines)
    if output not in (None, STANDARD):
        tell(f"{len(predictions)} predictions written to {output}", quiet=quiet)


def _predictor(model: Model, known: Path | None, columns: Columns, target: str | None, k: int | None) -> Any:
    """What predicts: the model itself, or a vote of the nearest known rows by its divergence."""
    if known is not None:
        divergence = model.needed_divergence("predict with --known")
        rows = model.rows(known, columns, target=needed_target(known, target))
        usual = getattr(model.holds, "n_neighbors_", None) or 5  # a search chooses it for the accuracy only
        count = min(usual, len(rows.X)) if k is None else k
        if count > len(rows.X):
            raise ValueError(f"-k must be at most the {len(rows.X)} rows of {known}, got {count}")
        side = side_of(model.holds)
        return BregmanKNeighborsClassifier(divergence, count, side=side).fit(rows.X, rows.y)
    if target is not None:
        raise click.UsageError("--target names the labels in --known, which is not given")
    if not hasattr(model.holds, "predict"):
        what = f"predict needs rows with labels for {model.path}, which holds a {model.kind} without rows"
        if model.divergence is None:
            raise ValueError(f"predict needs a regression, a classifier or clusters, got {model.path}: a {model.kind}")
        raise ValueError(f"{what}; give --known TABLE --target COLUMN, or fit with --keep-rows")
    if k is not None:
        if not hasattr(model.holds, "n_neighbors"):
            raise click.UsageError(f"-k is for nearest neighbors, got {model.path}, which holds a {model.kind}")
        model.holds.set_params(n_neighbors=k)
    return model.holds
