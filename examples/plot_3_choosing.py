"""
Choosing alpha and temperature
==============================

``alpha`` weighs the penalty on the slopes, ``temperature`` smooths the learned function. :class:`bregnet.PBDLCV`
chooses both by cross-validation. Temperatures are compared on the same fits, so they cost next to nothing.
"""

# %%
# Three folds of the wines, each held-out row a query among the other held-out rows of its fold. A companion could be
# chosen, too; here there is none. ``one_standard_error=True`` takes the largest alpha whose score is within one
# standard error of the best: with about a hundred rows the scores are not known any better than that.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from bregnet import PBDLCV, plotting

X, y = load_wine(return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
alphas = [0.3, 0.1, 0.03, 0.01]
search = PBDLCV(alphas, cv=3, companion=None, feature_map=None, one_standard_error=True, random_state=0).fit(X, y)
unseen = search.score(X_new, y_new)
print(f"chosen: alpha {search.alpha_:g}, temperature {search.temperature_:g}, after {search.n_fits_} fits")
print(f"mAP in cross-validation {search.best_score_:.3f}, of unseen wines {unseen:.3f}")

# %%
# ``cv_results_`` has a row for each alpha and temperature, as that of ``GridSearchCV`` does. Bars are standard
# errors over the folds, the dashed line is what was chosen.

results = search.cv_results_
tried, temperatures = np.asarray(results["param_alpha"], float), np.asarray(results["param_temperature"], float)
errors = results["std_test_score"] / np.sqrt(search.n_splits_)
fig, ax = plt.subplots()
for temperature in np.unique(temperatures):
    rows = np.flatnonzero(temperatures == temperature)
    rows = rows[np.argsort(tried[rows])]
    means = results["mean_test_score"][rows]
    ax.errorbar(tried[rows], means, errors[rows], marker="o", capsize=3, label=f"temperature {temperature:g}")
ax.axvline(search.alpha_, color="grey", linestyle="--", linewidth=1)
ax.set(xscale="log", xlabel="alpha", ylabel="mAP, mean of the folds", title="What cross-validation saw")
ax.legend(loc="lower left", fontsize=8)
plt.show()

# %%
# ``feature_bounds_`` is the largest slope of each feature, for features of unit variance; a feature with a bound of
# 0 is not used at all, and a larger alpha switches more of them off.

plotting.feature_bounds(search, names=load_wine().feature_names)
plt.show()
used = int(np.sum(search.feature_bounds_ > 1e-3))
print(f"{used} of {X.shape[1]} features are used")
