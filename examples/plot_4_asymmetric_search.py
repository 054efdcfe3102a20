"""
Searching by a divergence that is not symmetric
===============================================

D(query, item) and D(item, query) are different questions. :class:`bregnet.BregmanIndex` answers either, exactly.
"""

# %%
# Items are distributions over three outcomes, drawn as points of a triangle. Under the Kullback-Leibler divergence
# D(query, item) is infinite where an item gives no mass to an outcome that the query has; D(item, query) is not. So
# the nearest items of a query are others in one direction than in the other.

import matplotlib.pyplot as plt
import numpy as np

from bregnet import BregmanIndex, divergence

rng = np.random.default_rng(0)
items = rng.dirichlet([1.0, 1.0, 1.0], size=4000).clip(1e-6)
items /= items.sum(1, keepdims=True)
query = np.array([[0.002, 0.298, 0.7]])
corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])

found = {}
fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
questions = {
    "D(query, item)": ("kl", "right"),
    "D(item, query)": ("kl", "left"),
    "squared Euclid": ("sqeuclidean", "right"),
}
for ax, (title, (name, side)) in zip(axes, questions.items(), strict=True):
    index = BregmanIndex(name, side=side)
    index.add(items)
    found[title] = index.search(query, k=600)[1][0]
    ax.scatter(*(items @ corners).T, s=2, color="lightgrey")
    ax.scatter(*(items[found[title]] @ corners).T, s=4, color="tab:orange")
    ax.scatter(*(query @ corners).T, marker="*", s=120, color="tab:blue", zorder=3)
    ax.plot(*corners[[0, 1, 2, 0]].T, color="grey", linewidth=0.8)
    ax.set(title=f"600 nearest by {title}", aspect="equal")
    ax.axis("off")
plt.show()

# %%
# How many of the 600 do two questions have in common?

shared = {
    (one, other): len(np.intersect1d(found[one], found[other])) / 600
    for one, other in [("D(query, item)", "D(item, query)"), ("D(query, item)", "squared Euclid")]
}
for (one, other), share in shared.items():
    print(f"{one} and {other}: {share:.0%}")

# %%
# Behind this is an inner product. With item vectors (grad f(x), f(x) - grad f(x).x) and query vectors (q, 1), the
# divergence is a number that depends on the query alone, less the inner product. The index scans inner products in
# single precision and ranks the best again in double precision; a bound on the rounding says whether an item can be
# missing.

D = divergence("kl")
by_products = D.lift_offsets(query) - D.lift_queries(query) @ D.lift_items(items).T
largest_error = float(np.abs(by_products - D.pairwise(query, items)).max())
print(f"divergences from inner products are off by at most {largest_error:.1e}")

# %%
# Approximate search cuts the items into cells. ``recall`` measures it against the exact answer, and ``nprobe``
# trades the one for the other at any time.

queries = rng.dirichlet([1.0, 1.0, 1.0], size=300).clip(1e-6)
cells = BregmanIndex("kl", kind="ivf", n_cells=64, random_state=0)
cells.add(items)
recalls = {}
for cells.nprobe in (1, 2, 4, 8):
    recalls[cells.nprobe] = cells.recall(queries, k=10)
    print(f"{cells.nprobe} of 64 cells searched: recall at 10 is {recalls[cells.nprobe]:.3f}")
