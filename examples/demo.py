"""Convex and difference-of-convex regression with a certificate, beside a linear model and a forest.

House prices of a made-up town: convex in size and age, with diminishing returns that only the difference of two
convex functions can follow. Run with ``make demo`` or ``python examples/demo.py``.
"""

import time

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

from bregnet import ConvexRegressor, DCRegressor


def make_data(n, seed):
    rng = np.random.default_rng(seed)
    size, age, distance = rng.uniform(30, 200, n), rng.uniform(0, 60, n), rng.uniform(0.5, 20, n)
    noise = rng.standard_normal(n)  # a fourth feature that has nothing to do with the price
    price = 90 * np.log(size) + 0.05 * (age - 30) ** 2 - 4 * distance + 10 * np.maximum(8 - distance, 0)
    return np.column_stack([size, age, distance, noise]), price + 5 * rng.standard_normal(n)


def main():
    X, y = make_data(600, seed=0)
    X_test, y_test = make_data(400, seed=1)
    models = {
        "linear": LinearRegression(),
        "random forest": RandomForestRegressor(random_state=0),
        "ConvexRegressor": ConvexRegressor(alpha=0.01),
        "DCRegressor": DCRegressor(alpha=0.003),
    }
    print(f"{'model':<16} {'R^2 on new data':>16} {'seconds':>8}   certificate")
    for name, model in models.items():
        began = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - began
        status = model.result_.status if hasattr(model, "result_") else "none"
        print(f"{name:<16} {model.score(X_test, y_test):>16.3f} {seconds:>8.1f}   {status}")
    bounds = models["DCRegressor"].feature_bounds_ * X.std(0)
    relevance = ", ".join(f"{n} {b:.2f}" for n, b in zip(["size", "age", "distance", "noise"], bounds, strict=True))
    print(f"\nBound on the effect of one standard deviation of each feature: {relevance}")


if __name__ == "__main__":
    main()
