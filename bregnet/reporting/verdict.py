"""What a fit gains and where it loses: each measure against the best of the rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bregnet.plotting._shared import shown_name
from bregnet.reporting.numbers import Retrieval, shown

WAYS = {"ahead": "gains in", "behind": "loses in", "level": "is level in"}


@dataclass(frozen=True)
class Verdict:
    """One measure of the fit and of its best rival."""

    measure: str
    own: float
    rival: str  # the best of the others
    other: float
    way: str  # "ahead", "behind" or "level": the difference, query by query, is below twice its standard error


@dataclass(frozen=True)
class Scores:
    """One measure of the fit, which comes first, and of its rivals."""

    measure: str
    values: Mapping[str, float]  # the score of each
    losses: Mapping[str, np.ndarray]  # of each row, (n_rows,); lower is better

    def against(self, rival: str) -> Verdict:
        """The verdict against one rival."""
        own = next(iter(self.values))
        outcome = way(self.losses[own], self.losses[rival])
        return Verdict(self.measure, self.values[own], rival, self.values[rival], outcome)

    @property
    def best(self) -> Verdict:
        """The verdict against the best of the rivals."""
        _, *rivals = self.values
        return self.against(min(rivals, key=lambda name: float(np.nanmean(self.losses[name]))))


def way(own: np.ndarray, other: np.ndarray) -> str:
    """Which of two losses of the same rows is lower on average, by more than twice the standard error."""
    gains = (other - own)[~np.isnan(other - own)]
    if len(gains) < 2:
        return "level"
    gain, error = gains.mean(), gains.std(ddof=1) / np.sqrt(len(gains))
    return "level" if abs(gain) <= 2 * error else "ahead" if gain > 0 else "behind"


def retrieval_scores(own: str, found: Mapping[str, Retrieval]) -> dict[str, Scores]:
    """Mean average precision and accuracy, by the keys of these figures; nothing without a rival."""
    if len(found) < 2:
        return {}
    return {
        "map": Scores(
            "mean average precision",
            {name: each.curve.map for name, each in found.items()},
            {name: 1 - each.curve.per_query for name, each in found.items()},
        ),
        "accuracy": Scores(
            f"{found[own].ids.shape[1]}-NN accuracy",
            {name: each.accuracy for name, each in found.items()},
            {name: 1.0 - each.right for name, each in found.items()},
        ),
    }


def lost_class(own: Retrieval, other: Retrieval, classes: np.ndarray, names: Sequence[str], rival: str) -> str:
    """A sentence about the class in which the rival is ahead by most; empty where it is ahead in none."""
    behind = []
    for number in np.unique(classes):
        of_class = classes == number
        mine, theirs = (1 - each.curve.per_query[of_class] for each in (own, other))
        if way(mine, theirs) == "behind":
            behind.append((float(np.nanmean(theirs) - np.nanmean(mine)), number, 1 - mine, 1 - theirs))
    if not behind:
        return ""
    _, number, mine, theirs = min(behind, key=lambda each: each[0])
    figures = f"{shown(float(np.nanmean(mine)))} against {shown(float(np.nanmean(theirs)))}"
    return f" The class in which it is most behind {rival} is {shown_name(names[number])}: {figures}."


def summary(name: str, n_rows: int, scores: Sequence[Scores], first: str) -> str:
    """What is gained over the first rival, and how it stands against the best; nothing without rivals."""
    if not scores:
        return ""
    plain, best = [each.against(first) for each in scores], [each.best for each in scores]
    text = f"On {n_rows:,} rows, compared with {first}, {name} {_outcomes(plain, named=False)}."
    n_rivals = len(scores[0].values) - 1
    if any(each.rival != first for each in best):
        text += f" Against the best of {n_rivals} rivals in each measure, it {_outcomes(best, named=True)}."
    elif n_rivals > 1:
        text += f" No other of {n_rivals} rivals is better than {first}."
    if any(each.way == "level" for each in (*plain, *best)):
        text += " Level means that the difference is within twice its standard error."
    return text


def _outcomes(verdicts: Sequence[Verdict], *, named: bool) -> str:
    """Which measures are ahead, behind and level, with their figures."""
    said = []
    for outcome, verb in WAYS.items():
        texts = [
            f"{each.measure} ({shown(each.own)} against {shown(each.other)}{f' of {each.rival}' if named else ''})"
            for each in verdicts
            if each.way == outcome
        ]
        if texts:
            said.append(f"{verb} {' and '.join(texts)}")
    return ", and ".join(said)
