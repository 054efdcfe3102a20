"""
A learned divergence beside Euclid
==================================

Thirteen measurements of 178 wines, from three growers. :class:`bregnet.PBDL` learns from the labels of some which
wines are alike; all pictures are of the others, that it has not seen.
"""

# %%
# The fit, with its certificate.

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from bregnet import PBDL, BregmanRanker, plotting

X, y = load_wine(return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
scaler = StandardScaler().fit(X)
X, X_new = scaler.transform(X), scaler.transform(X_new)
model = PBDL(alpha=0.1, temperature=0.1, tol=0.01).fit(X, y)
print(model.result_.status)

# %%
# Maps of the unseen wines, on which squared distances follow the divergence as well as two dimensions allow. For
# Euclid that is principal components analysis.

divergences = {"Euclid": "sqeuclidean", "learned": model.divergence_}
fig, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for ax, (name, divergence) in zip(axes, divergences.items(), strict=True):
    plotting.divergence_map(divergence, X_new, y_new, ax=ax)
    ax.set_title(name)
plt.show()

# %%
# The matrices behind the maps, in the order of the growers. Rows are queries and columns tangent points; the
# learned one is not symmetric.

fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, (name, divergence) in zip(axes, divergences.items(), strict=True):
    plotting.divergence_matrix(divergence, X_new, y_new, ax=ax)
    ax.set_title(name)
plt.show()

# %%
# Retrieval: each unseen wine is a query against the known ones.

precision = {name: BregmanRanker(divergence).fit(X, y).score(X_new, y_new) for name, divergence in divergences.items()}
for name, value in precision.items():
    print(f"{name:<8} mean average precision {value:.3f}")

# %%
# Which measurements matter? A penalty on the largest slope of each feature switches some of them off.

plotting.feature_bounds(model, names=load_wine().feature_names)
plt.show()
