"""The report: its figures against independent ones, its markup, and how it looks in a browser."""

import json
import re
import shutil
import warnings
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pandas
import pytest
import torch
from matplotlib import pyplot
from scipy.spatial.distance import cdist
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bregnet
from bregnet import (
    PBDL,
    PBDLCV,
    BregmanKNeighborsClassifier,
    BregmanKNeighborsRegressor,
    BregmanRanker,
    ConvexRegressor,
    DCRegressor,
    DCRegressorCV,
    SquaredEuclidean,
    divergence,
    report,
)
from bregnet.plotting._shared import shown_number
from bregnet.reporting.numbers import table
from bregnet.reporting.verdict import Scores, Verdict, summary
from tests.support.threads import in_threads

HOSTILE = "<script>document.title = 'run'</script>"
FEATURES = [HOSTILE, "a & b", "$x^{", "_hidden", 'id="x" #000000', "\x00 \n null", "名前"]
CLASSES = ["<img src=x onerror=\"document.title='run'\">", "_b $ & '", "c\u202e"]
TITLE = f"</title>{HOSTILE} & wine"
COMPARISON = {"Euclid": {"accuracy": 0.9, "seconds": 0.1}, f"PBDL {HOSTILE}": {"accuracy": 0.97, "seconds": 2.5}}


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    X = X[:, :7]
    order = np.random.default_rng(0).permutation(len(X))
    return X[order[:90]], y[order[:90]], X[order[90:]], y[order[90:]]


@pytest.fixture(scope="module")
def model(wine):
    return PBDL(alpha=0.03, temperature=0.1, tol=0.1).fit(*wine[:2])


@pytest.fixture(scope="module")
def made(model, wine):
    X_known, y_known, X, y = wine
    return report(
        model,
        X,
        y,
        X_known=X_known,
        y_known=y_known,
        feature_names=FEATURES,
        class_names=CLASSES,
        title=TITLE,
        comparison=COMPARISON,
    )


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)

    def values(self, name):
        return [value for key, value in self.attributes if key == name]


def test_figures_are_those_of_ranker_and_classifier(made, model, wine):
    X_known, y_known, X, y = wine
    numbers = made.numbers
    ranker = BregmanRanker(model.divergence_).fit(X_known, y_known)
    classifier = BregmanKNeighborsClassifier(model.divergence_).fit(X_known, y_known)
    assert numbers["map"] == pytest.approx(ranker.score(X, y))
    assert numbers["accuracy"] == pytest.approx(classifier.score(X, y))
    plain = BregmanRanker("sqeuclidean").fit(X_known, y_known).score(X, y)
    scaler = StandardScaler().fit(X_known)
    fair = BregmanRanker().fit(scaler.transform(X_known), y_known).score(scaler.transform(X), y)
    assert numbers["retrieval"]["Euclid"]["mAP"] == pytest.approx(fair)
    assert numbers["retrieval"]["Euclid, raw features"]["mAP"] == pytest.approx(plain)
    assert (numbers["baseline"], numbers["baseline_map"]) == ("Euclid", pytest.approx(max(plain, fair)))
    assert f"{numbers['map']:.3f}" in made.html


def test_rivals_are_those_of_scikit_learn(made, wine):
    X_known, y_known, X, y = wine
    scaler = StandardScaler().fit(X_known)
    known, new = scaler.transform(X_known), scaler.transform(X)
    lda = LinearDiscriminantAnalysis().fit(known, y_known)
    nca = NeighborhoodComponentsAnalysis(7, max_iter=50, random_state=0).fit(known, y_known)
    for name, method in {"LDA": lda, "NCA": nca}.items():
        near = KNeighborsClassifier().fit(method.transform(known), y_known)
        found = made.numbers["retrieval"][name]
        assert found["accuracy"] == pytest.approx(near.score(method.transform(new), y))
        products = -cdist(method.transform(new), method.transform(known), "sqeuclidean")
        assert found["mAP"] == pytest.approx(mean_precision(products, y, y_known))
    logistic = LogisticRegression(max_iter=1000).fit(known, y_known)
    products = logistic.predict_proba(new) @ logistic.predict_proba(known).T
    found = made.numbers["retrieval"]["class probabilities"]
    assert found["mAP"] == pytest.approx(mean_precision(products, y, y_known))


def mean_precision(scores, y, y_known):
    return np.mean([average_precision_score(y_known == label, row) for label, row in zip(y, scores, strict=True)])


def test_what_is_gained_and_where_it_loses():
    won = np.tile([0.0, 0.1], 50)
    scores = Scores(
        "purity", {"ours": 0.95, "plain": 0.5, "best": 0.99}, {"ours": won, "plain": won + 0.4, "best": won - 0.1}
    )
    assert scores.best == Verdict("purity", 0.95, "best", 0.99, "behind")
    said = summary("ours", 100, [scores], "plain")
    assert said == (
        "On 100 rows, compared with plain, ours gains in purity (0.950 against 0.500). Against the best of 2 rivals in"
        " each measure, it loses in purity (0.950 against 0.990 of best)."
    )
    rng = np.random.default_rng(0)
    near = Scores("purity", {"ours": 0.9, "other": 0.9}, {"ours": won, "other": rng.permutation(won)})
    assert near.best.way == "level"
    assert "is level in purity" in summary("ours", 100, [near], "other")


def test_a_losing_card_looks_like_one():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2))
    y = (X[:, 0] > 0).astype(int)
    bad = divergence(SquaredEuclidean([1e-6, 1.0]))  # sees the idle feature only
    made = report(bad, X[:60], y[:60], X_known=X[60:], y_known=y[60:])
    assert made.numbers["verdicts"]["map"]["way"] == "behind"
    assert made.html.count('<div class="tile behind">') == 2
    assert "▼ behind" in made.html
    assert "loses in mean average precision" in made.numbers["summary"]
    assert "The class in which it is most behind" in made.numbers["summary"]
    assert made.numbers["summary"].split(" (")[0] in made.html


def test_rows_are_called_as_the_index_of_a_frame_does(wine):
    X_known, y_known, X, y = wine
    names = [f"bottle {number}" for number in range(len(X))]
    made = report("sqeuclidean", pandas.DataFrame(X, index=names), y, X_known=X_known, y_known=y_known, baseline=None)
    assert re.search(r"<small>bottle \d+</small>", made.html)
    assert re.search(r"<small>row \d+ · ", made.html)
    titles = re.findall(r"<title>(bottle \d+): (\d)</title>", made.html)
    assert sorted(titles) == sorted((name, str(label)) for name, label in zip(names, y, strict=True))


def test_pairs_of_pictures_have_one_size_and_one_scale(made):
    for kind in ("matrix", "map"):
        pair = [made.html[made.html.index(f'aria-labelledby="{kind}-{place}-title') :] for place in (0, 1)]
        pair = [text[: text.index("</svg>")] for text in pair]
        ticks = [re.findall(r">([\d.]+)</text>", text) for text in pair]
        assert ticks[0] == ticks[1]
        paths = [re.search(r'-patch_2">\s*<path d="([^"]+)"', text)[1] for text in pair]
        frames = [[float(number) for number in re.findall(r"[\d.]+", path)] for path in paths]
        assert frames[0] == pytest.approx(frames[1], abs=0.01)  # points of which 72 are an inch
    assert "divergence / mean of all pairs" in made.html


def test_blocks_of_the_matrix_have_tooltips(model, wine):
    X, y = wine[2], wine[3]
    made = report(model, X, y, baseline=None, class_names=["a", "b", "c"])
    found = model.divergence_.pairwise(X)
    mean = found[~np.eye(len(X), dtype=bool)].mean()
    middle = np.median(found[np.ix_(y == 0, y == 2)]) / mean
    assert f"<title>a from c: median {middle:.3g}, largest" in made.html


def test_figures_are_those_of_the_fit(made, model):
    numbers, result = made.numbers, model.result_
    assert (numbers["gap"], numbers["objective"], numbers["dual_bound"]) == (
        result.gap,
        result.objective,
        result.dual_bound,
    )
    assert (numbers["iterations"], numbers["seconds"], numbers["status"]) == (
        result.n_iter,
        result.seconds,
        result.status,
    )
    assert (numbers["alpha"], numbers["temperature"], numbers["pieces"]) == (0.03, 0.1, model.function_.n_pieces)
    assert (numbers["features"], numbers["rows"], numbers["known_rows"], numbers["classes"]) == (7, 88, 90, 3)
    assert numbers["versions"]["bregnet"] == bregnet.__version__
    assert result.status in made.html
    assert json.loads(json.dumps(numbers)) == numbers


def test_markup_is_self_contained_and_ids_are_unique(made):
    page = Page(made.html)
    ids = page.values("id")
    assert len(ids) == len(set(ids)) > 50
    targets = [value[1:] for value in page.values("href") if value.startswith("#")]
    targets += re.findall(r"url\(#([^)]*)\)", made.html)
    assert len(targets) > 20
    assert set(targets) <= set(ids)
    others = [value for value in page.values("href") + page.values("src") if not value.startswith("#")]
    assert others
    assert all(value.startswith("data:") for value in others)
    assert "script" not in page.tags
    assert "http" not in re.sub(r"base64,[^\"]*", "", made.html)
    assert len(made.html) < 2_000_000


def test_every_picture_is_told_in_words(made):
    page = Page(made.html)
    pictures = [value.split() for value in page.values("aria-labelledby") if " " in value]
    assert len(pictures) == page.tags.count("svg") == 7
    for title, about in pictures:
        assert {title, about} <= set(page.values("id"))
    sections = [value for key, value in page.attributes if key == "aria-labelledby" and " " not in value]
    assert sections == [
        f"{name}-heading"
        for name in ["comparison", "retrieval", "certificate", "matrix", "map", "features", "examples", "numbers"]
    ]


def test_hostile_names_are_text(made):
    page = Page(made.html)
    text = "".join(page.text)
    assert "img" not in page.tags
    for name in (HOSTILE, "a & b", "$x^{", "_hidden", 'id="x" #000000', "名前", CLASSES[0], TITLE):
        assert name[:27] in text
    assert "\x00" not in made.html


def test_each_row_is_a_query_against_the_others_and_classes_keep_their_order(model, wine):
    X, y = wine[2:]
    made = report(model, X, y, class_names={0: "z", 1: "m", 2: "a"}, baseline=None)
    assert made.numbers["map"] == pytest.approx(model.score(X, y))
    nearest = BregmanKNeighborsClassifier(model.divergence_).fit(X, y).kneighbors(return_distance=False)
    votes = [np.bincount(y[ids]).argmax() for ids in nearest]
    assert made.numbers["accuracy"] == pytest.approx(np.mean(votes == y))
    assert "baseline" not in made.numbers
    picture = made.html[made.html.index('aria-labelledby="map-0-title') :]
    assert re.findall(r">([zma])</text>", picture[: picture.index("</svg>")]) == ["z", "m", "a"]


def test_comparison_marks_the_best_of_each_column(made):
    table = made.html[made.html.index('id="comparison"') :]
    table = table[: table.index("</table>")]
    assert re.findall(r'<td class="best">(\S+)', table) == ["0.100", "0.970"]
    rows = [{"name": "a", "mAP": 1}, {"name": "b", "mAP": None, "extra": True}]
    html = report("sqeuclidean", np.eye(4), [0, 0, 1, 1], baseline=None, comparison=rows).html
    assert re.search(r'<th scope="row">b</th><td>-</td><td>yes</td>', html)


def test_nothing_global_is_touched_and_threads_do_not_get_in_each_others_way():
    X, y = np.eye(4), [0, 0, 1, 1]
    before = dict(matplotlib.rcParams), list(warnings.filters), pyplot.get_fignums()
    with matplotlib.rc_context({"text.color": "red", "svg.fonttype": "path"}):
        expected = report("sqeuclidean", X, y).html
        assert matplotlib.rcParams["text.color"] == "red"
    found = in_threads(lambda: report("sqeuclidean", X, y).html, 2)
    assert found == [expected] * 2  # the user's style does not matter, and nothing is drawn at random
    assert (dict(matplotlib.rcParams), list(warnings.filters), pyplot.get_fignums()) == before


def test_saving_is_whole_or_not_at_all(made, tmp_path):
    made.save(tmp_path / "made.html")
    assert (tmp_path / "made.html").read_text(encoding="utf-8") == made.html
    with pytest.raises(FileNotFoundError, match="path must lie in a folder that exists"):
        made.save(tmp_path / "nowhere" / "made.html")
    with pytest.raises(TypeError, match="path must be a path, got 7"):
        made.save(7)
    assert [each.name for each in tmp_path.iterdir()] == ["made.html"]
    report("sqeuclidean", np.eye(4), [0, 0, 1, 1], tmp_path / "other.html")
    assert (tmp_path / "other.html").stat().st_size > 10_000


def test_notebooks_show_the_page_in_a_frame(made):
    page = Page(made._repr_html_())
    assert page.tags == ["iframe"]
    assert page.values("srcdoc") == [made.html]
    assert "sandbox" in dict(page.attributes)
    assert repr(made) == f"Report({len(made.html) / 1000:.0f} kB about PBDL)"


def test_searchers_searches_and_pipelines(wine):
    X_known, y_known, X, y = wine
    learner = PBDL(alpha=0.1, temperature=0.1, tol=0.5)
    scaled = make_pipeline(StandardScaler(), BregmanKNeighborsClassifier(learner)).fit(X_known, y_known)
    found = report(scaled, X, y, X_known=X_known, y_known=y_known).numbers
    assert (found["estimator"], found["learner"], found["alpha"]) == ("BregmanKNeighborsClassifier", "PBDL", 0.1)
    assert found["accuracy"] == pytest.approx(scaled.score(X, y))
    assert list(found["retrieval"])[:2] == ["BregmanKNeighborsClassifier", "Euclid"]
    assert "Euclid, raw features" not in found["retrieval"]  # of one scale already
    search = GridSearchCV(BregmanRanker("kl"), {"side": ["left"]}, cv=2).fit(X_known, y_known)
    found = report(search, X, y, X_known=X_known, y_known=y_known, baseline=None).numbers
    assert found["map"] == pytest.approx(search.score(X, y))
    assert "gap" not in found
    chosen = PBDLCV([0.1], feature_map=None, cv=2, refinements=0, temperatures=[0.3], tol=0.5).fit(X_known, y_known)
    found = report(chosen, X, y, baseline=None).numbers
    assert (found["alpha"], found["temperature"], found["cross_validation_fits"]) == (0.1, 0.3, 2)
    assert found["map"] == pytest.approx(chosen.score(X, y))


def test_regressions():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.abs(X[:, 0])
    model = ConvexRegressor(0.01).fit(X[:40], y[:40])
    made = report(model, X[40:], y[40:], feature_names=["used", "idle"])
    assert made.numbers["r2"] == pytest.approx(model.score(X[40:], y[40:]))
    assert made.numbers["gap"] == model.gap_
    sections = re.findall(r'<section id="(\w+)"', made.html)
    assert sections == ["predictions", "residuals", "partial", "certificate", "features", "numbers"]
    chosen = DCRegressorCV([0.01], cv=2, refinements=0, temperatures=[0.0]).fit(X, y)
    assert report(chosen, X, y).numbers["r2"] == pytest.approx(chosen.score(X, y))
    neighbors = BregmanKNeighborsRegressor("sqeuclidean").fit(X, y)
    found = report(neighbors, X, y).numbers
    assert found["r2"] == pytest.approx(neighbors.score(X, y))
    assert "gap" not in found


def test_rivals_and_parts_of_a_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(90)
    model = DCRegressor(0.01, tol=0.1).fit(X[:60], y[:60])
    made = report(model, X[60:], y[60:], X_known=X[:60], y_known=y[:60], feature_names=["used", "idle"])
    near = make_pipeline(StandardScaler(), KNeighborsRegressor(5)).fit(X[:60], y[:60])
    assert made.numbers["regression"]["5 nearest neighbors"]["R²"] == pytest.approx(near.score(X[60:], y[60:]))
    assert made.numbers["regression"]["DCRegressor"]["R²"] == pytest.approx(made.numbers["r2"])
    assert made.numbers["summary"].startswith("On 30 rows, compared with linear regression, DCRegressor gains in R²")
    assert re.findall(r">(convex part|concave part)</text>", made.html) == ["convex part", "concave part"] * 2
    worst = np.abs(y[60:] - model.predict(X[60:])).argmax()
    table = made.html[made.html.index('<section id="residuals"') :]
    assert re.findall(r'<th scope="row">(row \d+)</th>', table)[0] == f"row {worst}"
    assert f"<title>row {worst}: true " in made.html


def test_prices_are_written_without_powers_of_ten():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = 300_000 + 90_000 * X[:, 0] + 20_000 * rng.standard_normal(60)
    model = DCRegressor(0.1, tol=0.5).fit(X[:40], y[:40])
    made = report(model, X[40:], y[40:], X_known=X[:40], y_known=y[:40])
    error = np.abs(model.predict(X[40:]) - y[40:])
    assert f"mean absolute error ({error.mean():,.0f} against " in made.numbers["summary"]
    assert f"within ±{np.median(error):,.0f}" in made.html
    assert f"<td>{y[40 + error.argmax()]:,.0f}</td>" in re.sub(r"<td[^>]*>\s*(\S+)\s*</td>", r"<td>\1</td>", made.html)
    assert not re.search(r"\de\+0", re.sub(r"<style.*?</style>|<path[^>]*>", "", made.html, flags=re.DOTALL))


def test_shown_numbers_keep_their_digits():
    assert [shown_number(9999.6), shown_number(-3030, 3), shown_number(3.2e9)] == ["10,000", "-3,030", "3.2e+09"]
    rng = np.random.default_rng(0)
    for value in rng.choice([-1, 1], 500) * 10 ** rng.uniform(-9, 12, 500):
        assert float(shown_number(value).replace(",", "")) == pytest.approx(value, rel=5e-4)


def test_data_frames_and_tensors(wine):
    X_known, y_known, X, y = wine
    columns = [f"<{number}>" for number in range(7)]
    labels = pandas.Series(np.array(["one", "two", "three"])[y])
    model = PBDL(alpha=0.1, temperature=0.1, tol=0.5).fit(pandas.DataFrame(X_known, columns=columns), y_known)
    frame = pandas.DataFrame(X, columns=columns)
    made = report(model, frame, labels, baseline=None)
    text = "".join(Page(made.html).text)
    assert all(name in text for name in [*columns, "one", "two", "three"])
    tensors = report(model.divergence_, torch.as_tensor(X), torch.as_tensor(y), baseline=None).numbers
    assert tensors["map"] == made.numbers["map"] == pytest.approx(model.score(frame, y))
    with pytest.raises(ValueError, match="feature names should match"):
        report(model, frame[columns[::-1]], labels)
    with pytest.raises(TypeError, match="y_known must hold values of one kind"):
        report(model, frame, labels, X_known=frame, y_known=y)
    regressor = ConvexRegressor(0.1, tol=0.5).fit(frame, X[:, 0])
    assert report(regressor, frame, X[:, 0]).numbers["r2"] == pytest.approx(regressor.score(frame, X[:, 0]))


def test_many_rows_are_thinned_and_the_page_says_so():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [3000, 1000])
    X = rng.standard_normal((4000, 2)) + 3 * y[:, None]
    some = np.linspace(0, 3999, 3000).round().astype(int)
    made = report("sqeuclidean", X, y, baseline=None)
    assert "3,000 of 4,000 rows are looked at" in made.html
    assert made.numbers["rows"] == 4000
    nearest = BregmanKNeighborsClassifier().fit(X[some], y[some]).kneighbors(return_distance=False)
    assert made.numbers["accuracy"] == np.mean((y[some][nearest].mean(1) > 0.5) == y[some])


def test_a_baseline_of_the_same_class_is_shown(model, wine):
    X, y = wine[2][:24], wine[3][:24]
    other = PBDL(alpha=0.3, temperature=0.1, tol=0.5).fit(wine[0][:40], wine[1][:40])
    found = report(model, X, y, baseline=other).numbers
    assert list(found["retrieval"]) == ["PBDL", "PBDL, baseline"]
    assert found["baseline_map"] == pytest.approx(other.score(X, y))
    assert "baseline" not in report(model, X, y, baseline=model).numbers


def test_rows_of_a_comparison_with_names_that_look_the_same_stay_apart():
    found = table({"a\n": {"accuracy": 0.5}, "a": {"accuracy": 0.75}})
    assert found.rows == [("a", [("0.500", False)]), ("a", [("0.750", True)])]


def test_fewer_neighbors_than_five_are_counted():
    made = report("sqeuclidean", [[0.0], [0.1], [1.0]], [0, 0, 1], baseline=None)
    assert made.numbers["neighbors"] == 2
    assert "2-NN accuracy" in made.html
    assert "accuracy of 2 nearest neighbors" in made.html


def test_regressions_of_one_row_and_of_many():
    X = np.linspace(-1, 1, 20)[:, None]
    regressor = DCRegressor(0.1, tol=0.5).fit(X, X[:, 0] ** 2)
    one = report(regressor, X[:1], X[:1, 0]).numbers
    assert one["r2"] is None
    assert one["mean_absolute_error"] == pytest.approx(abs(regressor.predict(X[:1])[0] - X[0, 0]))
    parts = regressor.function_
    assert one["pieces"] == parts.convex.n_pieces + parts.concave.n_pieces
    many = np.tile(X, (550, 1))
    assert "10,000 of 11,000 rows are looked at, evenly spaced." in report(regressor, many, many[:, 0] ** 2).html
    with pytest.raises(ValueError, match="y must be finite"):
        report(regressor, X, np.full(20, np.nan))
    with pytest.raises(TypeError, match="y must hold real numbers"):
        report(regressor, X, ["a"] * 20)


def test_columns_of_known_rows_are_those_of_the_queries():
    frame = pandas.DataFrame(np.eye(4), columns=list("abcd"))
    with pytest.raises(ValueError, match="X_known must have the columns of X in their order"):
        report("sqeuclidean", frame, [0, 0, 1, 1], X_known=frame[list("abdc")], y_known=[0, 0, 1, 1])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"y_known": [0, 1]}, ValueError, "X_known and y_known must be given together"),
        ({"X_known": np.eye(3), "y_known": [0, 1, 2]}, ValueError, r"X_known must have shape \(n_samples, 4\)"),
        ({"X_known": np.eye(4), "y_known": [0, 1, 2]}, ValueError, r"y_known must have shape \(4,\)"),
        ({"feature_names": ["a"]}, ValueError, "names must have one entry for each of 4 features, got 1"),
        ({"class_names": ["a"]}, ValueError, "class_names must have one entry for each of 2 classes"),
        ({"baseline": 3}, TypeError, "baseline must be a BregmanDivergence"),
        ({"comparison": [1, 2]}, TypeError, "comparison must be a dict of dicts or a list of dicts"),
        ({"comparison": []}, ValueError, "comparison must have rows"),
    ],
)
def test_bad_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        report(divergence("sqeuclidean"), np.eye(4), [0, 0, 1, 1], **options)


def test_bad_estimators_and_rows_are_named():
    with pytest.raises(TypeError, match="estimator must be a BregmanDivergence"):
        report(object(), np.eye(4), [0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"y must have shape \(4,\)"):
        report("sqeuclidean", np.eye(4), [0, 0, 1])
    with pytest.raises(ValueError, match="X must have at least 2 rows"):
        report("sqeuclidean", [[1.0]], [0])
    regressor = ConvexRegressor(0.1).fit(np.eye(4), [0.0, 1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"y_known must have shape \(4,\)"):
        report(regressor, np.eye(4), [0.0, 1.0, 2.0, 3.0], X_known=np.eye(4), y_known=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"y must have shape \(4,\)"):
        report(regressor, np.eye(4), [0.0])
    for unfitted in (ConvexRegressor(), PBDL(), BregmanRanker()):
        with pytest.raises(NotFittedError):
            report(unfitted, np.eye(4), [0, 0, 1, 1])


CONTRASTS = """() => {
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).map(channel);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if ((numbers(colour)[3] ?? 1) > 0.5) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), drawn = element instanceof SVGElement;
    const [a, b] = [light(drawn ? style.fill : style.color), light(ground(element))];
    found.push({text, drawn, ink: a, ratio: (Math.max(a, b) + .05) / (Math.min(a, b) + .05)});
  }
  return found;
}"""


CUT_OFF = """() => [...document.querySelectorAll("svg.plot")].flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
      box.bottom > frame.bottom + 1;
  }).map((text) => text.textContent);
})"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip(f"the report is not looked at: there is none of {', '.join(names)}")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("dark", 390)])
def test_in_a_browser_without_network(browser, made, tmp_path, scheme, width):
    made.save(tmp_path / "made.html")
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}, offline=True)
    page = context.new_page()
    messages, requested = [], []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("requestfailed", lambda request: messages.append(request.url))
    page.on("request", lambda request: requested.append(request.url))
    page.goto((tmp_path / "made.html").as_uri())
    assert messages == []
    assert [url for url in requested if not url.startswith("data:")] == [(tmp_path / "made.html").as_uri()]
    assert page.title().startswith("</title><script>")  # as text: it did not run

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for element in page.locator("section, section svg, h1, .tile").all():
        box = element.bounding_box()
        assert element.is_visible()
        assert min(box["width"], box["height"]) > 20
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert page.locator("section svg").count() == 7
    if width == 1280:  # a table that scrolls has cut-off columns
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
    assert page.evaluate(CUT_OFF) == []
    widths = [each.bounding_box()["width"] for each in page.locator(".examples thead th").all()]
    assert max(widths) - min(widths) < 1  # the columns of all queries stand below each other
    assert min(widths) >= 90

    contrasts = page.evaluate(CONTRASTS)
    assert min(contrasts, key=lambda each: each["ratio"])["ratio"] >= 4.5
    drawn = [each for each in contrasts if each["drawn"]]
    assert any("certified lower bound" in each["text"] for each in drawn)
    assert all((each["ink"] > 0.2) == (scheme == "dark") for each in contrasts)
    context.close()


def test_in_a_notebook_frame_nothing_runs(browser, made):
    context = browser.new_context(offline=True)
    page = context.new_page()
    messages = []
    page.on("console", lambda message: messages.append(message.text))
    page.set_content(f"<!DOCTYPE html><title>notebook</title>{made._repr_html_()}")
    frame = page.frame_locator("iframe")
    assert frame.locator("h1").inner_text() == TITLE
    assert frame.locator("section svg").count() == 7
    assert page.title() == "notebook"
    assert messages == []
    context.close()


def test_features_of_a_regression_are_compared_in_unit_variance():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 2))
    y = 3 * np.abs(X[:, 0]) + 0.3 * np.abs(X[:, 1])
    apart = X * [1000.0, 0.001]
    page = report(ConvexRegressor(0.001, tol=0.05).fit(apart, y), apart, y, feature_names=["much", "little"])
    assert page.numbers["features_used"] == 2
    assert page.html.index("largest first: much, little") > 0
