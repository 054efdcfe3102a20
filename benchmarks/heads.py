"""A Bregman divergence as the head of a network, beside the Euclidean distance and the cosine.

    python -m benchmarks.heads [--quick] [--json FILE]

Mean average precision on the held-out 40% of the rows, each a query against the others, in percent; means over SEEDS
splits. "trained" puts a network of one hidden layer in front of the head and trains both by the triplet loss of
pytorch-metric-learning; "given" takes the rows as they are, in unit variance, as one would take the embeddings of a
network that somebody else has trained: then only the Bregman head has something to learn. Margins, rates and numbers of
steps are the same for all sets. The Bregman head starts by `LearnableMaxAffine.from_points`, at temperature 1 and at
0.2; these starting values were settled on digits, wine and cancer had no part. The last rows of a set learn from the
hardest triplets of each batch only.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance  # type: ignore[import-untyped]
from pytorch_metric_learning.losses import TripletMarginLoss  # type: ignore[import-untyped]
from pytorch_metric_learning.miners import BatchHardMiner  # type: ignore[import-untyped]
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler, normalize
from torch import nn

from benchmarks.report import Table, write_json
from bregnet import BregmanDivergence, divergence
from bregnet.nn import BregmanDistance, LearnableMaxAffine
from bregnet.retrieval.evaluation import retrieval_scores

SETS = {"digits (settling)": load_digits, "wine": load_wine, "cancer": load_breast_cancer}
TEMPERATURES = {"Bregman at 1": 1.0, "Bregman at 0.2": 0.2}
HEADS = ("L2", "cosine", *TEMPERATURES)
SEEDS = range(3)
STEPS, BATCH, RATE, WIDTH, PIECES = 120, 128, 0.003, 16, 40


def trained(head: str, X: np.ndarray, y: np.ndarray, *, network: bool, seed: int, hard: bool = False) -> Any:
    """The network and the distance after STEPS steps."""
    torch.manual_seed(seed)
    n_features = X.shape[1]
    embed: nn.Module = nn.Identity()
    if network:
        embed = nn.Sequential(nn.Linear(n_features, 64), nn.ReLU(), nn.Linear(64, WIDTH))
    rows, labels = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    if head in TEMPERATURES:
        start = LearnableMaxAffine.from_points(embed(rows[:BATCH]), PIECES, temperature=TEMPERATURES[head])
        distance = BregmanDistance(start)
    else:
        distance = CosineSimilarity() if head == "cosine" else LpDistance(normalize_embeddings=False, power=2)
    loss = TripletMarginLoss(margin=0.2 if head == "cosine" else 1.0, distance=distance)
    parameters = [*embed.parameters(), *loss.parameters()]
    if not parameters:
        return embed, distance
    miner = BatchHardMiner(distance=distance) if hard else None
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    for _ in range(STEPS):
        some = torch.randperm(len(rows))[:BATCH]
        points = embed(rows[some])
        value = loss(points, labels[some], None if miner is None else miner(points, labels[some]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return embed, distance


def precision(head: str, X: np.ndarray, y: np.ndarray, *, network: bool, seed: int, hard: bool = False) -> float:
    """Mean average precision of one split."""
    known, new, labels, wanted = train_test_split(X, y, test_size=0.4, random_state=seed, stratify=y)
    scaler = StandardScaler().fit(known)
    embed, distance = trained(head, scaler.transform(known), labels, network=network, seed=seed, hard=hard)
    with torch.no_grad():
        points = embed(torch.as_tensor(scaler.transform(new), dtype=torch.float32)).double().numpy()
    if head in TEMPERATURES:
        by = BregmanDivergence(distance.divergence.to_generator())
    else:
        by, points = divergence("sqeuclidean"), normalize(points) if head == "cosine" else points
    return float(np.nanmean(retrieval_scores(by, points, wanted)["map"]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="wine, one split")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    table = Table("heads of networks", {"set": "18", "embeddings": "26", "head": "16", "mAP": ".1f"})
    settings = {"given": (False, False), "trained": (True, False), "trained, BatchHardMiner": (True, True)}
    for name in ["wine"] if options.quick else SETS:
        X, y = SETS[name](return_X_y=True)
        for setting, (network, hard) in settings.items():
            for head in HEADS:
                seeds = SEEDS[:1] if options.quick else SEEDS
                found = [precision(head, X, y, network=network, seed=seed, hard=hard) for seed in seeds]
                table.add(set=name, embeddings=setting, head=head, mAP=100 * float(np.mean(found)))
    write_json(options.json, [table])


if __name__ == "__main__":
    main()
