"""Draws the README's picture: unseen digits by Euclidean distance and by a learned divergence.

Run with ``python examples/readme_picture.py``; it writes docs/_static/readme.png.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bregnet import PBDL, divergence, plotting
from bregnet.metrics import mean_average_precision

PICTURE = Path(__file__).parent.parent / "docs" / "_static" / "readme.png"
PALETTE = plt.get_cmap("tab10").colors


def unseen_precision(D, X, y):
    """Mean average precision of each row as a query against the others."""
    divergences, relevant = D.pairwise(X), y[:, None] == y
    np.fill_diagonal(divergences, np.inf)
    np.fill_diagonal(relevant, False)
    return mean_average_precision(divergences, relevant)


def draw(ax, D, X, y, title):
    """A map with a numeral for every row."""
    plotting.divergence_map(D, X, y, ax=ax)
    places = [dots.get_offsets() for dots in ax.collections]
    for dots in list(ax.collections):
        dots.remove()
    for text in list(ax.texts):
        text.remove()
    if ax.get_legend():
        ax.get_legend().remove()
    for digit, rows in enumerate(places):
        for place in np.asarray(rows):
            ax.text(*place, str(digit), color=PALETTE[digit], fontsize=8, ha="center", va="center", fontweight="bold")
    ax.set_title(f"{title}: mAP {unseen_precision(D, X, y):.2f}", fontsize=13)


def main():
    X, y = load_digits(return_X_y=True)
    X, X_new, y, y_new = train_test_split(X / 16, y, test_size=350, random_state=0, stratify=y)
    model = PBDL(alpha=0.01, n_pieces=100, temperature=0.3, tol=0.3, random_state=0).fit(X, y)
    print(f"PBDL {model.result_.status}")
    fig, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained", facecolor="white")
    divergences = {"Euclid": divergence("sqeuclidean"), "learned": model.divergence_}
    for ax, (name, D) in zip(axes, divergences.items(), strict=True):
        draw(ax, D, X_new, y_new, name)
        print(f"{name:<8} mean average precision of unseen digits {unseen_precision(D, X_new, y_new):.4f}")
    fig.savefig(PICTURE, dpi=96, metadata={"Software": None})
    print(f"written to {PICTURE.relative_to(PICTURE.parent.parent.parent)}, {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
