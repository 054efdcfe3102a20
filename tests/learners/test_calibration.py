import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bregnet.learners.calibration import similarity_threshold

STEP = np.nextafter(1.0, 2.0)


@st.composite
def judged_pairs(draw):
    """Distances with ties, neighboring floating-point numbers and extremes, and pairs of both kinds."""
    some = st.sampled_from([0.0, 5e-324, 0.5, 1.0, STEP, np.nextafter(STEP, 2.0), 1e20, 1.7e308, np.inf])
    n = draw(st.integers(2, 12))
    distances = draw(st.lists(some | st.floats(0, 3), min_size=n, max_size=n))
    similar = draw(st.lists(st.booleans(), min_size=n - 2, max_size=n - 2))
    return np.array(distances), np.array(draw(st.permutations([*similar, True, False])))


def rates(distances, similar, threshold):
    """Shares of the similar and of the dissimilar pairs up to a threshold."""
    near = distances <= threshold
    return near[similar].mean(), near[~similar].mean()


def every_choice(distances, similar):
    """The rates of all thresholds there are, (m, 2): at each distance, and below all."""
    return np.array([rates(distances, similar, at) for at in [-np.inf, *np.unique(distances)]])


@given(judged_pairs())
@example((np.array([STEP, np.nextafter(STEP, 2.0)]), np.array([True, False])))  # their mean rounds up to the second
@example((np.array([1e20, 2e20]), np.array([False, True])))  # 1e20 - 1 is 1e20
@settings(max_examples=300, deadline=None)
def test_most_pairs_are_classified_correctly(case):
    distances, similar = case
    found, wrong = every_choice(distances, similar).T
    shares = similar.mean(), 1 - similar.mean()
    a, b = rates(distances, similar, similarity_threshold(distances, similar, strategy="accuracy"))
    assert shares[0] * a - shares[1] * b == pytest.approx(np.max(shares[0] * found - shares[1] * wrong), abs=1e-12)
    a, b = rates(distances, similar, similarity_threshold(distances, similar, strategy="balanced_accuracy"))
    assert a - b == pytest.approx(np.max(found - wrong), abs=1e-12)


@given(judged_pairs(), st.floats(0, 1) | st.sampled_from([0.0, 1 / 3, 0.5, 1.0]))
@settings(max_examples=300, deadline=None)
def test_a_rate_is_kept_and_the_other_is_the_best_there_is(case, rate):
    distances, similar = case
    choices = every_choice(distances, similar)

    found, wrong = rates(
        distances, similar, similarity_threshold(distances, similar, strategy="true_positive_rate", rate=rate)
    )
    assert found >= rate
    assert wrong == choices[choices[:, 0] >= rate, 1].min()
    assert found == choices[choices[:, 1] == wrong, 0].max()  # no more similar pairs for the same price

    found, wrong = rates(
        distances, similar, similarity_threshold(distances, similar, strategy="false_positive_rate", rate=rate)
    )
    assert wrong <= rate
    assert found == choices[choices[:, 1] <= rate, 0].max()
    assert wrong == choices[choices[:, 0] == found, 1].min()  # no dissimilar pairs for nothing


@pytest.mark.parametrize("hundredths", [1, 7, 29, 57, 58, 99])
def test_a_rate_that_can_be_met_exactly_is_met_exactly(hundredths):
    distances, rate = np.arange(200.0), hundredths / 100  # 0.07 * 100 > 7 and 0.29 * 100 < 29 in floating point
    similar = np.arange(200) % 2 == 1
    assert (
        rates(distances, similar, similarity_threshold(distances, similar, strategy="true_positive_rate", rate=rate))[0]
        == rate
    )
    similar = np.arange(200) % 2 == 0
    assert (
        rates(distances, similar, similarity_threshold(distances, similar, strategy="false_positive_rate", rate=rate))[
            1
        ]
        == rate
    )


def test_thresholds_lie_midway_and_beyond_all():
    distances = np.array([1.0, 2.0, 4.0])
    assert similarity_threshold(distances, np.array([True, True, False])) == 3.0
    assert similarity_threshold(distances, np.array([False, False, True])) == -np.inf
    assert similarity_threshold(distances, np.array([False, True, True])) == np.inf


@pytest.mark.parametrize("rate", [None, -0.1, 1.1, np.nan, "half"])
@pytest.mark.parametrize("strategy", ["true_positive_rate", "false_positive_rate"])
def test_rates_outside_0_to_1_are_refused(strategy, rate):
    with pytest.raises(ValueError, match=f"rate must be between 0 and 1 for strategy '{strategy}', got"):
        similarity_threshold(np.array([0.0, 1.0]), np.array([True, False]), strategy=strategy, rate=rate)


def test_what_cannot_be_calibrated():
    with pytest.raises(ValueError, match=r"strategy must be one of 'accuracy', .*, got 'f1'"):
        similarity_threshold(np.array([0.0, 1.0]), np.array([True, False]), strategy="f1")
    with pytest.raises(ValueError, match="both kinds are needed, got 2 similar and 0 dissimilar"):
        similarity_threshold(np.array([0.0, 1.0]), np.array([True, True]))


def test_a_rate_goes_with_a_strategy_of_a_rate():
    with pytest.raises(ValueError, match="rate goes with"):
        similarity_threshold(np.array([0.1, 0.2]), np.array([True, False]), strategy="accuracy", rate=0.5)
