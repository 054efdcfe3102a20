"""What notebooks show."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bregnet import (
    PBDL,
    PBDLCV,
    BregmanDivergence,
    BregmanIndex,
    BregmanKNeighborsClassifier,
    Check,
    ConvexRegressor,
    DCRegressor,
    MaxAffine,
    Result,
    divergence,
)
from bregnet._core.notebook import shown_in_notebooks
from bregnet.plotting._fits import level_range
from bregnet.reporting.cards import html_card, sparkline

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 15)
    return rng.standard_normal((30, 2)) + 2 * y[:, None], y


@pytest.fixture(scope="module")
def model(data):
    return PBDL(alpha=0.01, temperature=0.1).fit(*data)


def card(html):
    """The card behind scikit-learn's own form."""
    return html[html.rindex('<div style="display: inline-flex') :]


def test_a_fitted_learner_shows_parameters_and_certificate(model):
    html = model._repr_html_()
    assert "sk-container" in html
    assert model.result_.status in html
    assert f"gap <b>{100 * model.gap_:.2g}%</b>" in card(html)
    assert f"pieces <b>{model.function_.n_pieces}</b> · features <b>2</b> · temperature <b>0.1</b>" in card(html)
    bundle = model._repr_mimebundle_()
    assert bundle["text/plain"] == repr(model)
    assert card(bundle["text/html"]) == card(html)
    assert repr(model) == "PBDL(temperature=0.1)"


def test_an_unfitted_learner_shows_parameters_only():
    html = PBDL()._repr_html_()
    assert "sk-container" in html
    assert "certified gap" not in html


def test_searches_show_what_they_chose(data):
    chosen = PBDLCV([0.1], feature_map=None, cv=2, refinements=0, temperatures=[0.3], tol=0.5).fit(*data)
    assert "alpha <b>0.1</b> · temperature <b>0.3</b>" in card(chosen._repr_html_())


def test_a_difference_shows_the_pieces_of_both_parts(data):
    model = DCRegressor(0.1).fit(data[0], data[0][:, 0])
    n_pieces = f"{model.function_.convex.n_pieces} + {model.function_.concave.n_pieces}"
    assert f"pieces <b>{n_pieces}</b> · features <b>2</b>" in card(model._repr_html_())


def test_a_pipeline_shows_its_steps_as_before(data):
    steps = make_pipeline(StandardScaler(), ConvexRegressor(0.1)).fit(data[0], data[0][:, 0])
    assert "ConvexRegressor" in steps._repr_html_()


def test_results_divergences_and_indices(model, data):
    html = model.result_._repr_html_()
    for value in (f"{model.result_.objective:.4g}", f"{model.result_.dual_bound:.4g}", model.result_.status):
        assert value in html
    assert f"of {model.function_!r}" in model.divergence_._repr_html_()
    assert "of KullbackLeibler()" in divergence("kl")._repr_html_()
    index = BregmanIndex(model.divergence_, side="left")
    index.add(data[0])
    html = index._repr_html_()
    assert "exact search by D(item, query)" in html
    assert "items <b>30</b> · features <b>2</b> · kind <b>flat</b>" in html
    assert index._repr_mimebundle_() == {"text/plain": repr(index), "text/html": html}
    assert "features <b>any</b>" in BregmanIndex("kl")._repr_html_()


def test_text_display_is_respected(model):
    index = BregmanIndex("kl")
    with config_context(display="text"):
        for shown in (model, model.result_, model.divergence_, index):
            assert not hasattr(shown, "_repr_html_")
            assert shown._repr_mimebundle_() == {"text/plain": repr(shown)}


def test_text_is_escaped(model):
    class Named(MaxAffine):
        def __repr__(self):
            return HOSTILE

    function = Named([[1.0]], [0.0])
    result = replace(model.result_, status=HOSTILE)
    index = BregmanIndex(function)
    for html in (BregmanDivergence(function)._repr_html_(), result._repr_html_(), index._repr_html_()):
        assert HOSTILE not in html
        assert "&lt;script&gt;" in html


def points(svg, tag):
    return [
        np.array([pair.split(",") for pair in each.attrib["points"].split()], dtype=float) for each in svg.iter(tag)
    ]


def test_the_small_plot_shows_every_look(model):
    history = model.result_.history
    svg = ElementTree.fromstring(sparkline(history))
    upper, lower = points(svg, "polyline")
    assert len(upper) == len(lower) == len(history)
    (between,) = points(svg, "polygon")
    assert len(between) == 2 * len(history)
    assert (np.diff(upper[:, 0]) >= 0).all()
    assert (upper[:, 1] <= lower[:, 1] + 1e-9).all()  # pixels count downwards
    width, height = (float(svg.attrib[name]) for name in ("width", "height"))
    for places in (upper, lower):
        assert ((places >= 0) & (places <= [width, height])).all()
    assert svg.attrib["role"] == "img"
    assert re.match("Objective and certified lower bound", svg.find("title").text)


def test_fits_with_nothing_to_plot():
    one = Check(1, 1.0, 0.5, 0.5)
    for history in ((), (one,), (one, Check(2, 1.0, -np.inf, np.inf)), (one, Check(2, np.nan, 0.5, np.nan))):
        assert sparkline(history) == ""
        assert "<svg" not in Result("status", True, False, 1, 1.0, 0.5, 0.5, history, 0.1)._repr_html_()


def test_levels_show_how_the_gap_closes_even_where_the_start_is_far_off():
    far = [Check(1, 1e6, -1e6, 2.0), Check(50, 2.0, 0.5, 0.75), Check(100, 1.0, 0.99, 0.01)]
    lowest, highest = level_range(far)
    assert -5 < lowest <= 0.5
    assert 2.0 <= highest < 10
    lowest, highest = level_range([Check(1, 1.0, 1.0, 0.0)] * 2)  # nothing between them
    assert lowest < 1.0 < highest


def test_facts_of_a_search_are_shown_once(data):
    search = PBDLCV([0.1], feature_map=None, temperatures=[0.1, 0.2], tol=0.5, cv=2).fit(*data)
    shown = card(search._repr_html_())
    assert shown.count("temperature <b>") == 1
    assert f"temperature <b>{search.temperature_:.3g}</b>" in shown


def test_neighbors_show_the_certificate_of_their_learner(data):
    model = BregmanKNeighborsClassifier(PBDL(temperature=0.1, tol=0.5)).fit(*data)
    shown = card(model._repr_html_())
    assert "<b>PBDL</b>" in shown
    assert model.learner_.result_.status in shown
    plain = BregmanKNeighborsClassifier().fit(*data)._repr_html_()
    assert "sk-container" in plain
    assert "inline-flex; flex-wrap" not in plain


def test_forms_are_registered_not_inherited():
    for cls in (Result, BregmanDivergence, BregmanIndex):
        assert cls.__mro__ == (cls, object)

    @shown_in_notebooks
    class Own:
        pass

    with pytest.raises(TypeError, match="shown must be of a class with a registered form"):
        Own()._repr_html_()
    html_card.register(Own, lambda shown: "<p>own</p>")
    assert Own()._repr_mimebundle_()["text/html"] == "<p>own</p>"
