"""
Clusters under a divergence
===========================

For every Bregman divergence the arithmetic mean is the best center, as second argument. So k-means works unchanged:
:class:`bregnet.BregmanKMeans` takes any divergence, classical or learned.
"""

# %%
# Counts call for Kullback-Leibler. Three groups of documents use two frequent words alike and three rare ones at
# different rates. The squared Euclidean distance mostly sees the noise of the frequent words, whose counts vary by
# more than the rare ones differ; Kullback-Leibler weighs a difference by how large the counts are.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split

from bregnet import PBDL, BregmanKMeans

rng = np.random.default_rng(0)
rates = np.array([[60.0, 20.0, 1.0, 1.0, 4.0], [60.0, 20.0, 6.0, 1.0, 1.0], [60.0, 20.0, 1.0, 6.0, 1.0]])
group = np.repeat([0, 1, 2], 200)
counts = rng.poisson(rates[group]).astype(float)

rand = {}
fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, (name, title) in zip(axes, {"sqeuclidean": "squared Euclid", "kl": "Kullback-Leibler"}.items(), strict=True):
    clusters = BregmanKMeans(3, divergence=name, n_init=10, random_state=0).fit_predict(counts)
    rand[name] = adjusted_rand_score(group, clusters)
    jitter = counts[:, 2:4] + rng.uniform(-0.35, 0.35, (len(counts), 2))
    ax.scatter(*jitter.T, c=clusters, s=8, cmap="viridis")
    ax.set(title=f"{title}: Rand index {rand[name]:.2f}", xlabel="third word", ylabel="fourth word")
plt.show()

# %%
# A learned divergence makes clusters of what the labels of other rows said is alike. The divergence is learned on
# half of the tumours; the other half is clustered without labels.

X, y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(0)) / X.std(0)
X, X_new, y, y_new = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
learner = PBDL(alpha=0.03, temperature=0.3, n_pieces=40, tol=0.1, random_state=0).fit(X, y)
for name, divergence in {"Euclid": "sqeuclidean", "learned": learner.divergence_}.items():
    clusters = BregmanKMeans(2, divergence=divergence, n_init=5, random_state=0).fit_predict(X_new)
    rand[name] = adjusted_rand_score(y_new, clusters)
fig, ax = plt.subplots(figsize=(5, 4))
ax.bar(["squared Euclid", "learned"], [rand["Euclid"], rand["learned"]], color=["grey", "tab:red"])
ax.set(ylim=(0, 1), title="Unseen tumours: adjusted Rand index")
for place, value in enumerate([rand["Euclid"], rand["learned"]]):
    ax.text(place, value + 0.02, f"{value:.2f}", ha="center")
plt.show()
for name, value in rand.items():
    print(f"{name:<12} adjusted Rand index {value:.3f}")
