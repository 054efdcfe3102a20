"""The sets of the paper from $BREGNET_DATA, and made-up ones."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TypeAlias

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

from bregnet.datasets import Fold as Split
from bregnet.datasets import load, paper_folds

Inner: TypeAlias = KFold | StratifiedKFold


def data_home() -> Path | None:
    """The folder of the data sets, or None where $BREGNET_DATA is not set."""
    value = os.environ.get("BREGNET_DATA")
    return Path(value) if value else None


def class_set_options(description: str | None, known: tuple[str, ...]) -> tuple[argparse.Namespace, list[str], Path]:
    """Options of a benchmark of classification sets, the sets it is to look at, and where they are."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the two smallest sets")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    parser.add_argument("--sets", metavar="A,B", help=f"some of {','.join(known)}")
    options = parser.parse_args()
    names = options.sets.split(",") if options.sets else list(known[:2] if options.quick else known)
    unknown = set(names) - set(known)
    if unknown:
        parser.error(f"--sets must be among {','.join(known)}, got {','.join(sorted(unknown))}")
    home = data_home()
    if home is None:
        parser.error("BREGNET_DATA is not set: it must name the folder of the data sets, NAME.csv.gz each")
    return options, names, home


def first_fold(name: str, home: Path) -> Split:
    """The first of the paper's five folds of a regression set, or its fixed split."""
    return paper_folds(name, data_home=home)[0]


def class_folds(name: str, home: Path) -> list[Split]:
    """Five stratified folds of a classification set, labels as integers."""
    return paper_folds(name, data_home=home)


def class_data(name: str, home: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features as they are and labels as integers."""
    found = load(name, data_home=home)
    return found.data, found.target


def stratified_folds(X: np.ndarray, y: np.ndarray, n_folds: int) -> list[Split]:
    """Folds with the classes in the same shares, shuffled with seed 0."""
    parts = StratifiedKFold(n_folds, shuffle=True, random_state=0).split(X, y)
    return [Split.scaled(X, y, np.isin(np.arange(len(X)), rows)) for _, rows in parts]


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


def inner_folds(y: np.ndarray, *, classify: bool) -> Inner:
    """Five folds for choosing parameters.

    Blocks of consecutive rows for regression, as the paper's folds are: where a set is split by time or person they
    are, too, and the rows of the others come shuffled. For classes shuffled, and stratified where every class has
    enough rows.
    """
    if not classify:
        return KFold(5)
    stratify = np.unique(y, return_counts=True)[1].min() >= 5
    return (StratifiedKFold if stratify else KFold)(5, shuffle=True, random_state=0)
