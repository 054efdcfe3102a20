"""The work of `bregnet cluster`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bregnet.cli.data import Columns
from bregnet.cli.models import Model
from bregnet.cli.output import check_outputs, tell, warnings_as_lines, write_csv
from bregnet.cli.scores import agreement
from bregnet.clustering import BregmanKMeans
from bregnet.io import save


def run(
    path: Path,
    data: Path,
    columns: Columns,
    *,
    k: int,
    target: str | None,
    names: str | None,
    starts: int,
    output: Path | None,
    saved: Path | None,
    seed: int,
    quiet: bool,
) -> None:
    """Cluster, write the clusters and say how they agree with known classes."""
    check_outputs(saved, stream=output)
    model = Model.read(path)
    divergence = model.needed_divergence("cluster")
    rows = model.rows(data, columns, target=target, names=names)
    if k > len(rows.X):
        raise ValueError(f"-k must be at most the {len(rows.X)} rows of {data}, got {k}")
    means = BregmanKMeans(k, divergence=divergence, n_init=starts, random_state=seed)
    with warnings_as_lines():
        found = means.fit_predict(rows.X)
    write_csv(output, [names or "row", "cluster"], zip(rows.called.tolist(), found.tolist(), strict=True))
    if saved is not None:
        save(means, saved)
    sizes = ", ".join(map(str, np.bincount(found, minlength=k)))
    tell(f"{k} clusters of {sizes} rows, inertia {means.inertia_:.6g}", quiet=quiet)
    if rows.y is not None:
        said = "NMI {nmi:.3f}, adjusted Rand {rand:.3f}, purity {purity:.3f}".format(**agreement(rows.y, found))
        tell(f"agreement with {target!r}: {said}", quiet=quiet)
