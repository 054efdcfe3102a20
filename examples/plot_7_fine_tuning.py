"""
Fine-tuning an embedding and its divergence
===========================================

:class:`bregnet.nn.LearnableMaxAffine` is a convex function whose pieces are parameters of torch. It starts from a
fit and learns on, together with the network that embeds the rows.
"""

# %%
# Images of digits, embedded in twelve dimensions: first by principal components. PBDL learns a divergence of these.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from bregnet import PBDL, BregmanDivergence, BregmanRanker, plotting
from bregnet.nn import LearnableMaxAffine

X, y = load_digits(return_X_y=True)
X, X_new, y, y_new = train_test_split(X / 16, y, train_size=500, test_size=300, random_state=0, stratify=y)
components = PCA(12).fit(X)
start = PBDL(alpha=0.01, n_pieces=20, temperature=0.3, tol=0.5, random_state=0).fit(components.transform(X), y)
print("PBDL", start.result_.status)


def unseen_precision(embed, divergence):
    """Mean average precision of unseen images, each a query against the known ones."""
    return BregmanRanker(divergence).fit(embed(X), y).score(embed(X_new), y_new)


precision = {
    "Euclid of components": unseen_precision(components.transform, "sqeuclidean"),
    "PBDL of components": unseen_precision(components.transform, start.divergence_),
}

# %%
# A network that begins as these components, and the learned function on top of it. Both are trained by the loss
# that PBDL has, on batches: similar rows near each other, others at least 2 apart. The function stays convex
# whatever an optimizer does to its pieces.

torch.manual_seed(0)
linear = torch.nn.Linear(64, 12)
with torch.no_grad():
    linear.weight.copy_(torch.as_tensor(components.components_))
    linear.bias.copy_(-linear.weight @ torch.as_tensor(components.mean_, dtype=torch.float32))
hidden = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 12))
torch.nn.init.zeros_(hidden[2].weight)
torch.nn.init.zeros_(hidden[2].bias)
function = LearnableMaxAffine.from_generator(start, dtype=torch.float32)
optimizer = torch.optim.Adam([*linear.parameters(), *hidden.parameters(), *function.parameters()], lr=3e-3)
rows, labels = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
losses = []
for _step in range(100):
    batch = torch.randperm(len(rows))[:128]
    embedded = linear(rows[batch]) + hidden(rows[batch])
    divergences = function.pairwise(embedded)
    similar = labels[batch, None] == labels[batch]
    loss = (divergences[similar].mean() + (2 - divergences[~similar]).clamp_min(0).mean()) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())


def embed(points):
    """The trained network, for arrays."""
    with torch.no_grad():
        points = torch.as_tensor(points, dtype=torch.float32)
        return (linear(points) + hidden(points)).numpy().astype(np.float64)


# %%
# ``to_generator`` gives the function back, for the index, the ranker, k-means or a file.

tuned = BregmanDivergence(function.to_generator())
precision["fine-tuned together"] = unseen_precision(embed, tuned)
for name, value in precision.items():
    print(f"{name:<22} mAP of unseen images {value:.3f}")

fig, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
axes[0].plot(losses)
axes[0].set(xlabel="step", ylabel="loss of a batch", title="Fine-tuning")
few = slice(0, 200)
plotting.divergence_map(start.divergence_, components.transform(X_new[few]), y_new[few], ax=axes[1])
axes[1].set_title(f"PBDL of components: mAP {precision['PBDL of components']:.2f}")
plotting.divergence_map(tuned, embed(X_new[few]), y_new[few], ax=axes[2])
axes[2].set_title(f"fine-tuned: mAP {precision['fine-tuned together']:.2f}")
plt.show()
