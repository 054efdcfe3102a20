"""Pictures: what is drawn is what was computed."""

from itertools import pairwise

import numpy as np
import pandas
import polars
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.inspection import partial_dependence as sklearn_dependence
from sklearn.metrics import precision_recall_curve
from sklearn.model_selection import GridSearchCV

from bregnet import (
    PBDL,
    PBDLCV,
    BregmanKNeighborsClassifier,
    BregmanNearestNeighbors,
    BregmanRanker,
    Check,
    ConvexRegressor,
    DCRegressor,
    MaxAffine,
    Result,
    divergence,
    plotting,
)
from bregnet.plotting._matrices import shown_divergences
from bregnet.plotting._shared import Measure, shown_name
from bregnet.reporting.sections import WIDE
from bregnet.retrieval.evaluation import RECALL_LEVELS

NAMES = ["$x^{", "_hidden", "a & b", "<i>"]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::3], y[::3]


@pytest.fixture(scope="module")
def model(iris):
    return PBDL(alpha=0.03, temperature=0.1, tol=0.1).fit(*iris)


@pytest.fixture
def ax():
    return Figure(layout="constrained").add_subplot()


def drawn(ax):
    """Draw for real: text that cannot be drawn is found only then."""
    ax.get_figure().canvas.draw()
    return ax


def test_convergence_shows_the_history_and_the_gap(model, ax):
    assert plotting.convergence(model, ax) is ax
    upper, lower = ax.lines
    looks = model.result_.history
    assert upper.get_xdata().tolist() == lower.get_xdata().tolist() == [look.iteration for look in looks]
    assert upper.get_ydata().tolist() == [look.objective for look in looks]
    assert lower.get_ydata().tolist() == [look.dual_bound for look in looks]
    assert len(ax.collections) == 1
    assert ax.get_title() == f"certified gap {100 * model.gap_:.2g}%"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["objective", "certified lower bound"]
    low, high = ax.get_ylim()
    assert low < looks[-1].dual_bound <= looks[-1].objective < high


def test_convergence_of_a_result_without_finite_looks(ax):
    looks = (Check(1, 1.0, -np.inf, np.inf), Check(2, 1.0, 0.5, 0.5))
    for history in ((), looks, looks[:1], looks[1:]):
        shown = Result("stopped", False, True, 2, 1.0, 0.5, 0.5, history, 0.1)
        plotting.convergence(shown, ax)
        assert len(ax.lines[-1].get_xdata()) == (1 if looks[1] in history else 0)
        assert np.isfinite(ax.get_ylim()).all()
    drawn(ax)


def test_matrix_has_the_divergences_in_the_order_of_the_classes(model, iris, ax):
    X, y = iris
    names = np.array(["c", "a", "b"])[y]
    assert plotting.divergence_matrix(model, X, names, ax) is ax
    order = np.argsort(names, kind="stable")
    np.testing.assert_array_equal(ax.images[0].get_array(), model.divergence_.pairwise(X[order]))
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b", "c"]
    edges = np.cumsum(np.unique(names, return_counts=True)[1])[:-1] - 0.5
    assert sorted(line.get_ydata()[0] for line in ax.lines[::2]) == edges.tolist()
    assert sorted(line.get_xdata()[0] for line in ax.lines[1::2]) == edges.tolist()
    drawn(ax)


def test_matrix_clips_at_a_high_quantile_and_shows_rows_as_first_arguments(ax):
    X = np.append(np.linspace(1, 2, 60), 1000.0)[:, None]
    plotting.divergence_matrix("itakura-saito", X, ax=ax)
    found = np.asarray(ax.images[0].get_array())
    assert found[-1, 0] == pytest.approx(1000 - np.log(1000) - 1)  # of 1000 from 1
    off_diagonal = found[~np.eye(len(X), dtype=bool)]
    assert ax.images[0].norm.vmax == np.quantile(off_diagonal, 0.98)
    assert ax.images[0].norm.vmax < found.max()


def test_many_rows_are_thinned_so_that_classes_keep_their_shares(ax):
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0, 1, 2], [600, 300, 100]))
    X = rng.standard_normal((1000, 2)) + y[:, None]
    plotting.divergence_matrix("sqeuclidean", X, y, ax)
    assert ax.images[0].get_array().shape == (400, 400)
    assert "400 of 1000" in ax.get_title()
    plotting.divergence_map("sqeuclidean", X, y, other := Figure().add_subplot())
    assert [len(dots.get_offsets()) for dots in other.collections] == [240, 120, 40]


def test_map_of_a_plane_keeps_its_distances(ax):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 5))
    assert plotting.divergence_map("sqeuclidean", X, ax=ax) is ax
    places = ax.collections[0].get_offsets()
    np.testing.assert_allclose(pdist(places), pdist(X), rtol=1e-6)


def test_map_of_a_learned_divergence_is_the_same_each_time(model, iris):
    X, y = iris
    first, second = (plotting.divergence_map(model, X, y, Figure().add_subplot()) for _ in range(2))
    for one, other in zip(first.collections, second.collections, strict=True):
        np.testing.assert_array_equal(one.get_offsets(), other.get_offsets())
    groups = [dots.get_offsets() for dots in first.collections]
    assert [len(group) for group in groups] == np.bincount(y).tolist()
    middles = np.array([group.mean(0) for group in groups])
    spread = max(np.linalg.norm(group - group.mean(0), axis=1).mean() for group in groups)
    assert pdist(middles).min() > spread


@pytest.mark.parametrize("X", [[[1.0, 2.0]], [[1.0, 2.0]] * 3, [[0.0, 0.0], [3.0, 4.0]]])
def test_maps_of_very_few_or_equal_rows(X, ax):
    plotting.divergence_map("sqeuclidean", X, ax=ax)
    np.testing.assert_allclose(pdist(ax.collections[0].get_offsets()), pdist(X), atol=1e-12)
    plotting.divergence_matrix("sqeuclidean", X, ax=Figure().add_subplot())


def test_many_classes_have_their_names_on_the_map(ax):
    X = np.arange(30.0)[:, None]
    plotting.divergence_map("sqeuclidean", X, [f"${number}" for number in range(30)], ax)
    assert ax.get_legend() is None
    assert sorted(text.get_text() for text in ax.texts) == sorted(f"${number}" for number in range(30))
    drawn(ax)


def interpolated(distances, relevant):
    """Of one query without ties, by scikit-learn's curve."""
    precision, recall, _ = precision_recall_curve(relevant, -distances)
    return [precision[:-1][recall[:-1] >= level - 1e-12].max() for level in RECALL_LEVELS]


def test_precision_recall_against_an_independent_curve_and_the_metrics(model, iris, ax):
    X, y = iris
    X = X + 1e-6 * np.random.default_rng(0).standard_normal(X.shape)  # no ties
    compared = {"learned": model, "Euclid": "sqeuclidean"}
    assert plotting.precision_recall(compared, X, y, ax) is ax
    for line, by in zip(ax.lines, (model.divergence_, divergence("sqeuclidean")), strict=True):
        others = ~np.eye(len(X), dtype=bool)
        found, relevant = by.pairwise(X), y[:, None] == y
        curves = [interpolated(found[row][others[row]], relevant[row][others[row]]) for row in range(len(X))]
        np.testing.assert_allclose(line.get_ydata(), np.mean(curves, axis=0), rtol=1e-9)
        np.testing.assert_array_equal(line.get_xdata(), RECALL_LEVELS)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[0] == f"learned, mAP {model.score(X, y):.3f}"


@pytest.mark.parametrize("side", ["right", "left"])
def test_precision_recall_against_known_rows_on_both_sides(iris, side, ax):
    X, y = iris
    ranker = BregmanRanker("kl", side=side).fit(X[::2], y[::2])
    plotting.precision_recall({"_kl$": ranker}, X[1::2], y[1::2], ax, known=(X[::2], y[::2]))
    assert ax.get_legend().get_texts()[0].get_text() == f"_kl$, mAP {ranker.score(X[1::2], y[1::2]):.3f}"
    drawn(ax)


def test_ties_share_the_last_place(ax):
    plotting.precision_recall({"one piece": MaxAffine([[0.0]], [0.0])}, [[0.0], [1.0], [2.0], [3.0]], list("aabb"), ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 1 / 3)  # one of three, however they are ordered


def test_feature_bounds_are_sorted_and_named(model, ax):
    assert plotting.feature_bounds(model, NAMES, ax=ax) is ax
    order = np.argsort(-model.feature_bounds_)
    assert [bar.get_width() for bar in ax.patches] == model.feature_bounds_[order].tolist()
    assert [tick.get_text() for tick in drawn(ax).get_yticklabels()] == [NAMES[number] for number in order]
    top = plotting.feature_bounds(model, top=2, ax=Figure().add_subplot())
    assert len(top.patches) == 2
    assert top.get_title() == "2 largest of 4 features"


def test_long_names_that_differ_at_their_end_stay_different():
    names = [f"measured intensity in channel {number}" for number in range(60)]
    assert len({shown_name(name) for name in names}) == 60
    assert all(len(shown_name(name, length)) <= length for name in names for length in (12, 14, 28))
    assert shown_name("short") == "short"


def test_ticks_of_large_slopes_do_not_touch():
    X = np.random.default_rng(0).standard_normal((40, 2))
    figure = Figure(figsize=WIDE, layout="constrained")  # as in the report
    ax = plotting.feature_bounds(ConvexRegressor(0.01, tol=0.5).fit(X, 150_000 * X[:, 0]), ax=figure.add_subplot())
    boxes = [tick.get_window_extent() for tick in drawn(ax).get_xticklabels() if tick.get_text()]
    assert len(boxes) > 2
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def test_neighbors_are_those_of_the_search(model, iris, ax):
    X, y = iris
    X = np.vstack([X, X[:1], X[:1]])  # equal rows
    names = np.array(["$a", "_b", "c"])[np.append(y, [1, 2])]
    assert plotting.neighbors(model, X, names, [0, 20, len(X) - 1], k=3, ax=ax) is ax
    searcher = BregmanNearestNeighbors(model.divergence_).fit(X)
    found, ids = searcher.kneighbors(n_neighbors=3)
    texts = [text.get_text() for text in drawn(ax).texts]
    expected = []
    for query in (0, 20, len(X) - 1):
        expected.append(f"query\n{names[query]}\nrow {query}")
        for distance, item in zip(found[query], ids[query], strict=True):
            mark = "✓" if names[item] == names[query] else "✗"
            short = f"{distance:.3g}" if distance == 0 or distance >= 0.001 else "< 0.001"
            expected.append(f"{mark} {names[item]}\nrow {item}\n{short}")
    assert texts == expected


def test_a_row_that_its_equals_hide_is_not_its_own_neighbor(ax):
    plotting.neighbors("sqeuclidean", np.zeros((6, 2)), list("aaaaab"), [5], k=2, ax=ax)
    assert [text.get_text() for text in ax.texts[1:]] == ["✗ a\nrow 0\n0", "✗ a\nrow 1\n0"]


def test_a_number_of_queries_is_spread_over_the_classes(iris, ax):
    plotting.neighbors("sqeuclidean", *iris, 3, k=1, ax=ax)
    assert [text.get_text().split("\n")[1] for text in ax.texts if "query" in text.get_text()] == ["0", "1", "2"]


def test_predictions_and_their_score(ax):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = np.square(X).sum(1)
    model = ConvexRegressor(0.01).fit(X[:30], y[:30])
    assert plotting.predictions(model, X, y, ax) is ax
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), np.column_stack([y, model.predict(X)]))
    assert ax.get_title() == f"R² = {model.score(X, y):.3f}"


def test_without_axes_pyplot_has_new_ones(model):
    before = pyplot.get_fignums()
    ax = plotting.feature_bounds(model)
    try:
        assert len(pyplot.get_fignums()) == len(before) + 1
        assert ax.get_figure() is pyplot.gcf()
    finally:
        pyplot.close(ax.get_figure())


X, Y = np.eye(4), [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plotting.convergence(PBDL()), NotFittedError, "not fitted"),
        (lambda: plotting.convergence("model"), TypeError, "fitted must be an estimator with a result_"),
        (lambda: plotting.feature_bounds(PBDLCV()), NotFittedError, "not fitted"),
        (lambda: plotting.feature_bounds(divergence("kl")), TypeError, "fitted must be an estimator with feature_b"),
        (lambda: plotting.divergence_matrix(PBDL(), X), NotFittedError, "not fitted"),
        (lambda: plotting.divergence_matrix("euclid", X), ValueError, "divergence must be one of 'sqeuclidean'"),
        (lambda: plotting.divergence_matrix(7, X), TypeError, "divergence must be a BregmanDivergence"),
        (lambda: plotting.divergence_matrix("kl", X[0]), ValueError, "X must have shape"),
        (lambda: plotting.divergence_matrix("kl", X[:0]), ValueError, "X must have at least one row"),
        (lambda: plotting.divergence_matrix("sqeuclidean", [["a"]]), TypeError, "X must hold real numbers"),
        (lambda: plotting.divergence_matrix("sqeuclidean", 1j * X), TypeError, "X must hold real numbers"),
        (lambda: plotting.divergence_map("sqeuclidean", [[np.nan]]), ValueError, "X must be finite"),
        (lambda: plotting.divergence_map("kl", -X), ValueError, "X must be"),
        (lambda: plotting.divergence_map("sqeuclidean", X, [1, 2]), ValueError, r"y must have shape \(4,\)"),
        (lambda: plotting.divergence_map("sqeuclidean", X, ax="here"), TypeError, "ax must be matplotlib axes"),
        (lambda: plotting.divergence_map("sqeuclidean", X, np.array([1, "a", 3, 2], object)), TypeError, "one kind"),
        (lambda: plotting.precision_recall({}, X, Y), TypeError, "divergences must be a dict"),
        (lambda: plotting.precision_recall({"a": 1}, X, Y), TypeError, r"divergences\['a'\] must be"),
        (
            lambda: plotting.precision_recall({"a": "sqeuclidean"}, X, [0, 1, 2, 3]),
            ValueError,
            "a class with at least 2 rows",
        ),
        (lambda: plotting.precision_recall({"a": "sqeuclidean"}, X[:1], Y[:1]), ValueError, "at least 2 rows"),
        (lambda: plotting.precision_recall({"a": "sqeuclidean"}, X, Y, known=X), TypeError, "known must be a pair"),
        (lambda: plotting.neighbors("sqeuclidean", X, Y, 2, k=4), ValueError, "k must be at most 3"),
        (lambda: plotting.neighbors("sqeuclidean", X, Y, [4], k=1), ValueError, "row numbers from 0 to 3"),
        (lambda: plotting.neighbors("sqeuclidean", X, Y, [0.5], k=1), TypeError, "queries must be a number or row"),
        (lambda: plotting.neighbors("sqeuclidean", X, Y, 0, k=1), ValueError, "queries must be at least 1"),
        (lambda: plotting.predictions(divergence("kl"), X, Y), TypeError, "fitted must be a regressor"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    before = pyplot.get_fignums()
    with pytest.raises(error, match=message):
        call()
    assert pyplot.get_fignums() == before


def test_bad_names_and_targets(model):
    with pytest.raises(ValueError, match="names must have one entry for each of 4 features, got 2"):
        plotting.feature_bounds(model, ["a", "b"])
    with pytest.raises(TypeError, match="names must be a sequence of 4 names, got the text 'abcd'"):
        plotting.feature_bounds(model, "abcd")
    with pytest.raises(ValueError, match="top must be at least 1"):
        plotting.feature_bounds(model, top=0)
    regressor = ConvexRegressor(0.1).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
    with pytest.raises(ValueError, match=r"y must have shape \(3,\)"):
        plotting.predictions(regressor, [[0.0], [1.0], [2.0]], [0.0])
    before = pyplot.get_fignums()
    with pytest.raises(ValueError, match="y must be finite"):
        plotting.predictions(regressor, [[0.0], [1.0], [2.0]], [0.0, 1.0, np.nan])
    with pytest.raises(TypeError, match="y must hold real numbers"):
        plotting.predictions(regressor, [[0.0], [1.0], [2.0]], ["a", "b", "c"])
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize(
    "labels",
    [
        [0.0, np.nan, 1.0, 1.0],
        ["a", None, "b", "b"],
        ["a", np.nan, "b", "b"],
        polars.Series(["a", None, "b", "b"]),
        polars.Series([0, None, 1, 1]),
        pandas.Series([0, None, 1, 1], dtype="Int64"),
        np.ma.masked_equal([0, 7, 1, 1], 7),
    ],
)
def test_rows_without_a_label_are_refused(labels):
    with pytest.raises(ValueError, match="y must have a label for each row, got none in 1 of 4 rows"):
        plotting.divergence_map("sqeuclidean", X, labels)


def test_columns_of_known_rows_are_those_of_the_queries(ax):
    frame = pandas.DataFrame(X, columns=list("abcd"))
    known = frame[list("abdc")]
    with pytest.raises(ValueError, match=r"known\[0\] must have the columns of X in their order"):
        plotting.precision_recall({"Euclid": "sqeuclidean"}, frame, Y, ax, known=(known, Y))
    plotting.precision_recall({"Euclid": "sqeuclidean"}, frame, Y, ax, known=(known.to_numpy(), Y))  # has no names


def test_large_divergences_have_short_numbers(ax):
    plotting.divergence_matrix("sqeuclidean", 1e6 * X, ax=ax)
    bar = ax.get_figure().axes[1]
    assert max(len(text.get_text()) for text in bar.get_yticklabels()) <= 7


def test_fits_that_others_hold_are_shown(iris, ax):
    X, y = iris
    frame = pandas.DataFrame(X, columns=list("abcd"))
    learner = PBDL(temperature=0.1, tol=0.5)
    classifier = BregmanKNeighborsClassifier(learner).fit(frame, y)
    plotting.convergence(classifier, ax)
    assert ax.get_title() == f"certified gap {100 * classifier.learner_.gap_:.2g}%"
    search = GridSearchCV(learner, {"alpha": [0.1]}, cv=2).fit(frame, y)
    for holder, bounds in (
        (classifier, classifier.learner_.feature_bounds_),
        (search, search.best_estimator_.feature_bounds_),
    ):
        shown = plotting.feature_bounds(holder, ax=Figure().add_subplot())
        names = [text.get_text() for text in shown.get_yticklabels()]
        assert names == [list("abcd")[at] for at in np.argsort(-bounds, kind="stable")]


def test_a_map_of_two_apart_classes_is_no_line(ax):
    places = np.column_stack([np.repeat([0.0, 10.0], 25), np.zeros(50)])
    places[:, 0] += np.random.default_rng(0).normal(0, 0.05, 50)
    squared = (places[:, None] - places[None]) ** 2
    plotting.divergence_map("sqeuclidean", places, np.repeat(["a", "b"], 25), ax)
    drawn = np.concatenate([np.asarray(each.get_offsets()) for each in ax.collections])
    assert np.ptp(drawn[:, 1]) > 0.2 * np.ptp(drawn[:, 0])
    along = np.abs(drawn[:, None, 0] - drawn[None, :, 0])
    np.testing.assert_allclose(along, np.sqrt(squared.sum(2)), atol=1e-3)  # the distance there is, is still shown
    gaps = np.linalg.norm(drawn[:, None] - drawn[None], axis=2) + np.eye(50)
    assert gaps.min() > np.ptp(drawn[:, 0]) / 50 * 0.99  # no dot covers another


def test_matrices_in_mean_units_have_mean_one_and_one_scale(iris):
    X, y = iris
    names, numbers = np.unique(y, return_inverse=True)
    found = shown_divergences(Measure(divergence("sqeuclidean")), 1000 * X, names, numbers).in_mean_units
    off = found.divergences[~np.eye(len(X), dtype=bool)]
    assert off.mean() == pytest.approx(1)
    assert np.mean(off <= found.highest) == pytest.approx(0.98, abs=0.001)


def test_partial_dependence_is_that_of_scikit_learn_and_its_parts_bend_as_named(ax):
    rng = np.random.default_rng(0)
    X = rng.integers(-6, 7, (60, 2)) / 2
    y = np.sin(X[:, 0]) + X[:, 1]
    model = DCRegressor(0.003, tol=0.1, clip=False).fit(X, y)
    plotting.partial_dependence(model, X, 0, ax)
    lines = {text.get_text(): line for text, line in zip(ax.get_legend().get_texts(), ax.get_lines(), strict=True)}
    expected = sklearn_dependence(model, X, [0], grid_resolution=100, kind="average", method="brute")
    grid, values = lines["prediction"].get_data()
    np.testing.assert_allclose(grid, expected["grid_values"][0])
    np.testing.assert_allclose(values, expected["average"][0] - expected["average"][0].mean(), atol=1e-9)
    convex, concave = (lines[name].get_ydata() for name in ("convex part", "concave part"))
    np.testing.assert_allclose(convex + concave, values, atol=1e-9)
    assert np.diff(convex, 2).min() > -1e-9
    assert np.diff(concave, 2).max() < 1e-9
    with pytest.raises(ValueError, match="feature must be a name or a number below 2, got 2"):
        plotting.partial_dependence(model, X, 2, ax)


def test_residuals_are_true_less_predicted(ax):
    X = np.linspace(-1, 1, 30)[:, None]
    y = X[:, 0] ** 3
    model = ConvexRegressor(0.01).fit(X, y)
    plotting.residuals(model, X, y, ax)
    shown = np.asarray(ax.collections[0].get_offsets())
    np.testing.assert_allclose(shown, np.column_stack([model.predict(X), y - model.predict(X)]))
    with pytest.raises(TypeError, match="fitted must be a regressor"):
        plotting.residuals(object(), X, y)


def test_names_of_small_classes_do_not_lie_over_those_of_large_ones():
    labels = np.repeat(["a", "b", "c", "d"], [60, 1, 2, 40])
    ax = plotting.divergence_matrix("sqeuclidean", np.arange(103.0)[:, None], labels, Figure().add_subplot())
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "c", "d"]
