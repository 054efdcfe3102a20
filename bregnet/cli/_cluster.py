"""`bregnet cluster`."""

from __future__ import annotations

from pathlib import Path

import click

from bregnet.cli import _options as options


@click.command(
    epilog=options.examples(
        "bregnet cluster model new-flowers.csv -k 3 -o clusters.csv",
        "bregnet cluster model new-flowers.csv -k 3 --target species --save clusters.bregnet",
    )
)
@click.argument("model", type=options.PATH)
@click.argument("data", type=options.PATH)
@click.option("-k", "--k", type=options.COUNT, required=True, help="Number of clusters.")
@click.option("--target", metavar="COLUMN", help="Known classes, to compare the clusters with.")
@click.option("--id", "names", metavar="COLUMN", help="What the rows are called; by default their numbers, from 0.")
@click.option("--starts", type=options.COUNT, default=5, show_default=True, help="The best of so many is kept.")
@click.option("-o", "--output", type=options.PATH, metavar="OUT", help="A CSV file; by default the standard output.")
@click.option("--save", "saved", type=options.PATH, metavar="MODEL", help="Write the clusters as a model.")
@options.columns
@options.seed
@options.quiet
def cluster(
    model: Path,
    data: Path,
    k: int,
    target: str | None,
    names: str | None,
    starts: int,
    output: Path | None,
    saved: Path | None,
    features: tuple[str, ...] | None,
    drop: tuple[str, ...] | None,
    seed: int,
    quiet: bool,
) -> None:
    """Cluster the rows of DATA by the divergence of a MODEL.

    A line for each row, with the number of its cluster, by k-means under the divergence. The sizes of the clusters, and
    how they agree with a --target, go to the standard error.
    """
    import csv

    import numpy as np

    from bregnet.cli._data import Columns
    from bregnet.cli._models import Model
    from bregnet.cli._output import check_outputs, tell, warnings_as_lines, writing
    from bregnet.cli._scores import agreement
    from bregnet.clustering import BregmanKMeans
    from bregnet.persistence import save

    check_outputs(saved, stream=output)
    opened = Model.at(model)
    divergence = opened.needed_divergence("cluster")
    rows = opened.rows(data, Columns(features, drop), target=target, names=names)
    if k > len(rows.X):
        raise ValueError(f"-k must be at most the {len(rows.X)} rows of {data}, got {k}")
    means = BregmanKMeans(k, divergence=divergence, n_init=starts, random_state=seed)
    with warnings_as_lines():
        found = means.fit_predict(rows.X)
    called = np.arange(len(found)) if rows.labels is None else rows.labels
    with writing(output) as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([names or "row", "cluster"])
        lines.writerows(zip(called.tolist(), found.tolist(), strict=True))
    if saved is not None:
        save(means, saved)
    sizes = ", ".join(map(str, np.bincount(found, minlength=k)))
    tell(f"{k} clusters of {sizes} rows, inertia {means.inertia_:.6g}", quiet=quiet)
    if rows.y is not None:
        said = "NMI {nmi:.3f}, adjusted Rand {rand:.3f}, purity {purity:.3f}".format(**agreement(rows.y, found))
        tell(f"agreement with {target!r}: {said}", quiet=quiet)
