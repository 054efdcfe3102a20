"""Reading the regression sets of the paper from $BREGNET_DATA."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch


class Split(NamedTuple):
    """Training and test part, features scaled as in the paper."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def data_home() -> Path | None:
    """The folder of the data sets, or None where $BREGNET_DATA is not set."""
    value = os.environ.get("BREGNET_DATA")
    return Path(value) if value else None


def first_fold(name: str, home: Path) -> Split:
    """The first of the paper's five folds, or its fixed split: centred, divided by the mean absolute deviation."""
    with gzip.open(home / f"{name}.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = [c for c in rows[0] if c != "split" and not c.startswith("target")]
    target = "target" if "target" in rows[0] else "target_1"
    X = np.array([[float(row[c]) for c in columns] for row in rows])
    y = np.array([float(row[target]) for row in rows])
    if "split" in rows[0]:
        test = np.array([row["split"] == "test" for row in rows])
    else:
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0)).numpy()
        test = np.zeros(len(X), dtype=bool)
        test[order[: len(X) // 5]] = True
    centre = X[~test].mean(0)
    scale = np.maximum(np.abs(X[~test] - centre).mean(0), 1e-5)
    X = (X - centre) / scale
    return Split(X[~test], y[~test], X[test], y[test])
