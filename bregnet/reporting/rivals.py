"""What a fit is compared with: methods of scikit-learn, fitted to the known rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.neighbors import KNeighborsRegressor, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bregnet.plotting._shared import shown_rows
from bregnet.reporting.subject import Rows

NCA_ROWS, NCA_DIRECTIONS = 1000, 64  # its work grows with the square of the rows
ABOUT = {
    "LDA": "linear discriminant analysis",
    "NCA": "neighborhood components analysis",
    "class probabilities": "inner product of the class probabilities of a logistic regression",
}


@dataclass(frozen=True)
class Rival:
    """A method that ranks by the squared Euclidean distance between what it makes of queries and of items."""

    of_queries: Callable[[np.ndarray], np.ndarray]
    of_items: Callable[[np.ndarray], np.ndarray]


def retrieval_rivals(known: Rows) -> dict[str, Rival]:
    """Rivals that learned from the classes of the known rows; none where these are too few to learn from."""
    X, y = known.features, known.targets
    n_classes = len(np.unique(y))
    if n_classes < 2 or len(X) <= n_classes:
        return {}
    some = shown_rows(y, len(X), NCA_ROWS)
    scaler = StandardScaler().fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)  # collinear features
        lda = make_pipeline(scaler, LinearDiscriminantAnalysis()).fit(X, y)
        directions = min(X.shape[1], NCA_DIRECTIONS, len(some))
        nca = NeighborhoodComponentsAnalysis(directions, random_state=0)
        nca = make_pipeline(scaler, nca).fit(X[some], y[some])
        logistic = make_pipeline(scaler, LogisticRegression(max_iter=1000)).fit(X, y)

    def as_query(rows: np.ndarray) -> np.ndarray:
        return np.pad(logistic.predict_proba(rows), [(0, 0), (0, 1)])

    def as_item(rows: np.ndarray) -> np.ndarray:
        """With one more coordinate all items have length 1: the nearest has the largest inner product."""
        found = logistic.predict_proba(rows)
        return np.column_stack([found, np.sqrt(np.maximum(1 - (found**2).sum(1), 0))])

    return {
        "LDA": Rival(lda.transform, lda.transform),
        "NCA": Rival(nca.transform, nca.transform),
        "class probabilities": Rival(as_query, as_item),
    }


def regression_rivals(known: Rows, rows: np.ndarray) -> dict[str, np.ndarray]:
    """What rivals that were fitted to the known rows predict."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # here, as it takes long to import

    X, y = known.features, known.targets
    rivals = {
        "linear regression": RidgeCV(np.logspace(-3, 3, 13)),
        "boosted trees": HistGradientBoostingRegressor(random_state=0),
    }
    if len(X) >= 5:
        rivals["5 nearest neighbors"] = KNeighborsRegressor(5)
    return {name: make_pipeline(StandardScaler(), rival).fit(X, y).predict(rows) for name, rival in rivals.items()}
