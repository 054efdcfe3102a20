# ruff: noqa: B018
"""
A report to look at and to send
===============================

:func:`bregnet.report` makes one HTML file of a fit: the certificate, what retrieval gains over Euclid, which
features matter, a map, example queries and all figures. The file needs no network, and follows light and dark mode.
"""

# %%
# The rows shown are not those of the fit. Each is a query against the rows that the fit knows.

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import bregnet

data = load_wine()
X, X_new, y, y_new = train_test_split(data.data, data.target, test_size=0.4, random_state=0, stratify=data.target)
model = bregnet.PBDL(alpha=0.1, temperature=0.1, tol=0.05).fit(X, y)
report = bregnet.report(
    model,
    X_new,
    y_new,
    X_known=X,
    y_known=y,
    feature_names=data.feature_names,
    class_names=list(data.target_names),
    title="Wines by grower",
)

# %%
# The figures are there as numbers, too. ``report.save("report.html")`` writes the page; ``bregnet demo`` and
# ``bregnet evaluate --report`` do so from the command line.

for name in ("map", "baseline_map", "gap"):
    print(f"{name:<14} {report.numbers[name]:.3f}")

# %%
# The pictures of the page are functions of :mod:`bregnet.plotting`, for pages of your own. Euclid is that of
# features with unit variance.

euclid = bregnet.SquaredEuclidean(1 / X.var(axis=0))
bregnet.plotting.precision_recall({"learned": model, "Euclid": euclid}, X_new, y_new, known=(X, y))
plt.show()

# %%
# In a notebook, and here, the page shows itself.

report
