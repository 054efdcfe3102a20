"""Reading the sets of the paper from $BREGNET_DATA."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold


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
    """The first of the paper's five folds of a regression set, or its fixed split."""
    X, y, test = _read(name, home)
    if test is None:
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0)).numpy()
        test = np.zeros(len(X), dtype=bool)
        test[order[: len(X) // 5]] = True
    return _scaled(X, y, test)


def class_folds(name: str, home: Path) -> list[Split]:
    """Five stratified folds of a classification set, labels as integers."""
    return stratified_folds(*class_data(name, home), 5)


def class_data(name: str, home: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features as they are and labels as integers."""
    X, y, _ = _read(name, home)
    return X, y.astype(int)


def stratified_folds(X: np.ndarray, y: np.ndarray, n_folds: int) -> list[Split]:
    """Folds with the classes in the same shares, shuffled with seed 0."""
    folds = []
    for _, rows in StratifiedKFold(n_folds, shuffle=True, random_state=0).split(X, y):
        test = np.zeros(len(X), dtype=bool)
        test[rows] = True
        folds.append(_scaled(X, y, test))
    return folds


def _read(name: str, home: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Features, (first) target, and which rows are for testing where the set has a fixed split."""
    with gzip.open(home / f"{name}.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = [c for c in rows[0] if c != "split" and not c.startswith("target")]
    target = "target" if "target" in rows[0] else "target_1"
    X = np.array([[float(row[c]) for c in columns] for row in rows])
    y = np.array([float(row[target]) for row in rows])
    test = np.array([row["split"] == "test" for row in rows]) if "split" in rows[0] else None
    return X, y, test


def _scaled(X: np.ndarray, y: np.ndarray, test: np.ndarray) -> Split:
    """Centred by the training mean, divided by the mean absolute deviation of the training part."""
    centre = X[~test].mean(0)
    scale = np.maximum(np.abs(X[~test] - centre).mean(0), 1e-5)
    X = (X - centre) / scale
    return Split(X[~test], y[~test], X[test], y[test])


def latent_classes(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of twenty classes, each of three clouds in eight latent directions, seen through d noisy features."""
    n_classes, n_clouds, n_latent = 20, 3, 8
    shape = np.random.default_rng(1234 + d)  # the same for every seed
    seen = shape.standard_normal((n_latent, d)) / np.sqrt(n_latent)
    centres = 2.0 * shape.standard_normal((n_classes, n_clouds, n_latent))
    spread = shape.uniform(0.5, 1.0, (n_classes, n_clouds, 1))
    rng = np.random.default_rng(seed)
    classes, clouds = rng.integers(n_classes, size=n), rng.integers(n_clouds, size=n)
    latent = centres[classes, clouds] + spread[classes, clouds] * rng.standard_normal((n, n_latent))
    return latent @ seen + 0.3 * rng.standard_normal((n, d)), classes
