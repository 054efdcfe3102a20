"""A Bregman divergence is the gap between a convex function and its tangent."""

import matplotlib.pyplot as plt
import numpy as np

from bregnet import BregmanDivergence, MaxAffine, SquaredEuclidean

x, y = 1.6, -0.7
grid = np.linspace(-2, 2.2, 400)
wedge = MaxAffine([[-1.2], [-0.3], [0.4], [1.8]], [-0.6, 0.3, 0.1, -1.4])
functions = {
    "f(x) = |x|²": SquaredEuclidean(),
    "the largest of four lines": wedge,
    "the same, temperature 0.4": MaxAffine(wedge.slopes, wedge.intercepts, temperature=0.4),
}
fig, axes = plt.subplots(1, 3, figsize=(10.5, 3.3), layout="constrained")
for ax, (title, f) in zip(axes, functions.items(), strict=True):
    slope, level = f.gradient([[y]])[0, 0], f([[y]])[0]
    tangent = level + slope * (grid - y)
    at_x = level + slope * (x - y)
    ax.plot(grid, f(grid[:, None]), color="tab:blue", label="f")
    ax.plot(grid, tangent, "--", color="grey", label="tangent at y")
    ax.plot([x, x], [at_x, f([[x]])[0]], color="tab:red", linewidth=3, solid_capstyle="butt")
    ax.plot([y], [level], "o", color="tab:blue")
    forth, back = BregmanDivergence(f).paired([[x], [y]], [[y], [x]])
    middle, box = (x, (at_x + f([[x]])[0]) / 2), {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    ax.annotate(f"D(x, y) = {forth:.2f}", middle, (-6, 0), textcoords="offset points", ha="right", bbox=box)
    ax.set_title(f"{title}\nD(y, x) = {back:.2f}", fontsize=10)
    ax.set_xticks([y, x], ["y", "x"])
    ax.set_yticks([])
axes[0].legend(loc="upper center", fontsize=8)
plt.show()
