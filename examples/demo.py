"""A divergence learned from labels, beside Euclid and a linear metric; and regression on the same solver.

Run with ``make demo`` or ``python examples/demo.py``.
"""

import time

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.preprocessing import StandardScaler

from bregnet import (
    PBDL,
    BregmanIndex,
    BregmanKMeans,
    BregmanKNeighborsClassifier,
    BregmanRanker,
    ConvexRegressor,
    DCRegressor,
    Quadratic,
)
from bregnet.metrics import purity


def learn_a_divergence():
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    linear = NeighborhoodComponentsAnalysis(random_state=0).fit(X, y).components_
    model = PBDL(alpha=0.01, temperature=0.2, tol=0.05).fit(X, y)
    metrics = {
        "Euclid": "sqeuclidean",
        "NCA (linear)": Quadratic(linear.T @ linear),
        "PBDL": model.divergence_,
    }
    print("Breast cancer, 171 unseen tumours: classified and ranked by the 398 known ones, and clustered")
    print(f"{'metric':<14} {'5-NN accuracy':>14} {'mean average precision':>24} {'purity of 2 clusters':>22}")
    for name, metric in metrics.items():
        accuracy = BregmanKNeighborsClassifier(metric).fit(X, y).score(X_test, y_test)
        precision = BregmanRanker(metric).fit(X, y).score(X_test, y_test)
        clusters = BregmanKMeans(2, divergence=metric, n_init=5, random_state=0).fit_predict(X_test)
        print(f"{name:<14} {accuracy:>14.3f} {precision:>24.3f} {purity(y_test, clusters):>22.3f}")
    print(f"PBDL {model.result_.status}; it uses {np.sum(model.feature_bounds_ > 1e-3)} of {X.shape[1]} features")

    index = BregmanIndex(model.divergence_)
    index.add(X)
    divergences, ids = index.search(X_test[:1], k=3)
    found = ", ".join(f"{number} (D = {value:.1e})" for number, value in zip(ids[0], divergences[0], strict=True))
    print(f"The known tumours nearest to the first unseen one: {found}")


def make_houses(n, seed):
    """Prices of a made-up town: convex in age, with diminishing returns of size."""
    rng = np.random.default_rng(seed)
    size, age, distance = rng.uniform(30, 200, n), rng.uniform(0, 60, n), rng.uniform(0.5, 20, n)
    noise = rng.standard_normal(n)  # a fourth feature that has nothing to do with the price
    price = 90 * np.log(size) + 0.05 * (age - 30) ** 2 - 4 * distance + 10 * np.maximum(8 - distance, 0)
    return np.column_stack([size, age, distance, noise]), price + 5 * rng.standard_normal(n)


def learn_prices():
    X, y = make_houses(600, seed=0)
    X_test, y_test = make_houses(400, seed=1)
    models = {
        "linear": LinearRegression(),
        "random forest": RandomForestRegressor(random_state=0),
        "ConvexRegressor": ConvexRegressor(alpha=0.01),
        "DCRegressor": DCRegressor(alpha=0.003),
    }
    print("\nHouse prices, by regression on the same solver")
    print(f"{'model':<16} {'R^2 on new data':>16} {'seconds':>8}   certificate")
    for name, model in models.items():
        began = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - began
        status = model.result_.status if hasattr(model, "result_") else "none"
        print(f"{name:<16} {model.score(X_test, y_test):>16.3f} {seconds:>8.1f}   {status}")


if __name__ == "__main__":
    learn_a_divergence()
    learn_prices()
