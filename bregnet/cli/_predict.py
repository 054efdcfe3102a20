"""`bregnet predict`."""

from __future__ import annotations

from pathlib import Path

import click

from bregnet.cli import _options as options


@click.command(
    epilog=options.examples(
        "bregnet predict prices new-houses.csv -o predictions.csv",
        "bregnet predict prices - < new-houses.csv > predictions.csv",
        "bregnet predict prices X.npy -o predictions.npy",
    )
)
@click.argument("model", type=options.PATH)
@click.argument("data", type=options.PATH)
@click.option(
    "-o", "--output", type=options.PATH, metavar="OUT", help="A .csv or .npy file; by default the standard output."
)
@options.columns
@options.quiet
def predict(
    model: Path,
    data: Path,
    output: Path | None,
    features: tuple[str, ...] | None,
    drop: tuple[str, ...] | None,
    quiet: bool,
) -> None:
    """Predict the rows of DATA with a regression MODEL, a classifier or clusters.

    The columns of a table are found by the names the model was fitted with; others are left out. DATA may be "-", for a
    CSV table on the standard input.
    """
    if output not in (None, options.STANDARD) and output.suffix not in (".csv", ".npy"):
        raise click.UsageError(f"--output must end in .csv or .npy, got {str(output)!r}")
    import csv

    import numpy as np

    from bregnet._files import whole_file
    from bregnet.cli._data import Columns
    from bregnet.cli._models import Model
    from bregnet.cli._output import check_outputs, tell, warnings_as_lines, writing

    check_outputs(stream=output)
    opened = Model.at(model)
    if not hasattr(opened.holds, "predict"):
        kinds = "a regression, a classifier or clusters"
        raise ValueError(f"predict needs {kinds}, got {model}, which holds a {opened.kind}")
    rows = opened.rows(data, Columns(features, drop))
    with warnings_as_lines():
        predictions = np.asarray(opened.holds.predict(rows.X))
    if output is not None and output.suffix == ".npy":
        with whole_file(output) as made, open(made, "wb") as file:
            np.save(file, predictions.astype(str) if predictions.dtype == object else predictions)
    else:
        with writing(output) as lines:
            writer = csv.writer(lines, lineterminator="\n")
            columns = predictions.reshape(len(predictions), -1)
            several = [f"prediction {each}" for each in range(columns.shape[1])]
            writer.writerow(several if predictions.ndim > 1 else ["prediction"])
            writer.writerows(columns.tolist())
    if output not in (None, options.STANDARD):
        tell(f"{len(predictions)} predictions written to {output}", quiet=quiet)
