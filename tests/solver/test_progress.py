import re

import numpy as np

from bregnet import DCRegressor


def test_the_bar_ends_where_the_gap_is_likely_to_reach_its_goal(capsys):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    model = DCRegressor(0.01, tol=0.02, verbose=1).fit(X, np.abs(X[:, 0]) - X[:, 1] ** 2)
    shown = np.array(re.findall(r"\| (\d+)/(\d+) ", capsys.readouterr().err), dtype=int)
    assert tuple(shown[-1]) == (model.n_iter_, model.n_iter_)
    late = shown[shown[:, 0] >= model.n_iter_ // 2]
    assert (late[:, 1] < 10 * model.n_iter_).all()  # not the 5000 iterations that are allowed
