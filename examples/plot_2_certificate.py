"""
Reading a certificate
=====================

Every fit ends with two numbers: the value of the function it returns, and a bound below which no function of the
program can come. They are computed on the way, too, so one can watch them close in on each other.
"""

# %%
# A divergence is learned on the wines of scikit-learn. ``result_.history`` has a :class:`bregnet.Check` for every
# look at the certificate.

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from bregnet import PBDL, plotting

X, y = load_wine(return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
model = PBDL(alpha=0.03, n_pieces=None, tol=1e-6).fit(X, y)
print(model.result_.status)

# %%
# Upper and lower values. The objective is that of the best function so far, the bound is a feasible point of the
# dual program in double precision: the optimum lies in the shaded band, whatever the solver did. The last few steps
# are those of the interior-point method, which finishes small problems.

plotting.convergence(model)
plt.show()

# %%
# Does retrieval wait for the gap? The same fit, ended earlier and earlier, and its mean average precision on unseen
# wines, each a query against the others. A fit that ends before its tolerance warns, and says which gap it reached.

limits = [25, 50, 100, 200, 400]
gaps, precisions = [], []
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    for limit in limits:
        early = PBDL(alpha=0.03, n_pieces=None, temperature=0.1, tol=1e-6, max_iter=limit).fit(X, y)
        gaps.append(early.gap_)
        precisions.append(early.score(X_new, y_new))
fig, ax = plt.subplots()
ax.plot(limits, gaps, "o-", label="certified gap")
ax.plot(limits, precisions, "s-", label="mAP of unseen rows")
ax.set(xlabel="iterations", xscale="log", ylim=(-0.03, 1.03), title="Retrieval settles before the gap is closed")
ax.set_xticks(limits, labels=[str(limit) for limit in limits])
ax.minorticks_off()
ax.legend(loc="center right")
for limit, gap, precision in zip(limits, gaps, precisions, strict=True):
    print(f"{limit:4d} iterations: certified gap {gap:7.2%}, held-out mAP {precision:.4f}")
plt.show()
