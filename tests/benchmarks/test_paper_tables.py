"""The command that sets the paper's tables beside ours: its rule, its baselines and its tables."""

import math
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LassoCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neighbors import NearestCentroid

from benchmarks import baselines, ours, paper, paper_tables, paper_timing, paper_units
from benchmarks.data import inner_folds
from benchmarks.paper_figures import TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5
from benchmarks.paper_tables import Sheet, behind_lines, outcome, sheet_lines, sheets
from benchmarks.rows import Outcome, Store
from bregnet import ConvexRegressor, DCRegressor
from bregnet.datasets import PAPER_SETS, Fold


def fold_of(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.abs(X[:, 0]) + 0.1 * rng.standard_normal(n)
    half = n // 2
    return Fold(X[:half], y[:half], X[half:], y[half:])


# the paper's figures


def test_figures_are_those_of_the_paper():
    assert [len(table) for table in (TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5)] == [5, 5, 22, 6, 8]
    assert [row.d for row in TABLE_1] == [row.d for row in TABLE_2] == [2, 4, 8, 16, 32]
    assert TABLE_2[-1].seconds == {"paper baseline": 823.2, "paper": 4.42}
    scores = {(row.key, row.target): (row.dc, row.lasso, row.forest, row.xgboost) for row in TABLE_3}
    assert len(scores) == 22
    assert scores["solar_flare", 2] == (-6.1, -2.1, -17.0, 2.1)
    assert scores["air_quality", 4] == (81.7, 84.0, 78.1, 80.7)
    assert TABLE_4[-1].scores["paper pbdl0"] is None
    assert max(row.pbdl0_seconds or 0 for row in TABLE_4) == 224407
    assert sum(row.admm for row in TABLE_5) == pytest.approx(58.4)


@pytest.mark.parametrize(
    ("table", "task"), [(TABLE_3, "regression"), (TABLE_4, "classification"), (TABLE_5, "regression")]
)
def test_every_row_is_of_a_known_set(table, task):
    assert {row.key for row in table} <= {name for name, about in PAPER_SETS.items() if about.task == task}


def test_sizes_agree_between_tables():
    sizes = {row.key: (row.n, row.d) for row in TABLE_3}
    assert all(sizes[row.key] == (row.n, row.d) for row in TABLE_5)


# the stopping rule


def test_rule_stops_when_the_last_n_iterations_gained_too_little():
    rule = paper_timing.StoppingRule(100)
    errors = {25: 0.5, 50: 0.4, 75: 0.3, 125: 0.2, 150: 0.1995, 175: 0.1992, 225: 0.1991}
    assert [rule(iteration, error) for iteration, error in errors.items()] == [False] * 6 + [True]


def test_rule_never_stops_before_n_iterations():
    rule = paper_timing.StoppingRule(1000)
    assert not any(rule(iteration, 0.3) for iteration in range(25, 1000, 25))


def test_rule_stops_after_n_iterations_no_better_than_the_mean():
    rule = paper_timing.StoppingRule(50)
    assert [rule(iteration, 1.2) for iteration in (25, 49, 50)] == [False, False, True]


def test_rule_compares_best_errors_so_that_swings_do_not_count():
    rule = paper_timing.StoppingRule(10)
    assert [rule(iteration, error) for iteration, error in ((5, 0.2), (10, 0.9), (15, 0.5), (20, 0.2))] == [
        False,
        False,
        True,
        True,
    ]
    assert not rule(30, 0.1)


@pytest.fixture
def untimed(monkeypatch):
    """No fit here is timed, so that none of them has to wait until everything is compiled."""
    monkeypatch.setattr(paper_timing, "compile_first", lambda: None)


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize("dc", [False, True])
def test_timed_fit_to_a_gap_is_the_estimators(dc):
    fold = fold_of()
    outcome = paper_timing.timed_fit(fold, dc=dc, stop="gap", max_iter=2000)
    model = (DCRegressor if dc else ConvexRegressor)(0.01, n_pieces=None, max_iter=2000).fit(fold.X, fold.y)
    assert outcome.gap == pytest.approx(model.gap_)
    assert outcome.gap <= 0.01
    assert outcome.extra["objective"] == pytest.approx(model.result_.objective)
    assert outcome.score == pytest.approx(model.score(fold.X_test, fold.y_test))


@pytest.mark.usefixtures("untimed")
def test_timed_fit_stops_by_the_rule(monkeypatch):
    asked = []

    class Impatient(paper_timing.StoppingRule):
        def __call__(self, iteration, error):
            asked.append((iteration, error))
            return len(asked) == 2

    monkeypatch.setattr(paper_timing, "StoppingRule", Impatient)
    monkeypatch.setitem(paper_timing.SETTINGS, "finest_gap", 1e-9)
    outcome = paper_timing.timed_fit(fold_of(), dc=True, stop="rule", max_iter=2000)
    assert outcome.extra["iterations"] == asked[-1][0]
    assert outcome.score == pytest.approx(1 - asked[-1][1])
    assert "stopped" in outcome.extra["status"]


# the baselines


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 10, 23, 68, 122])
def test_features_of_the_forest_lie_in_the_papers_interval(d):
    counts = baselines.feature_counts(d, 5)
    assert counts == sorted(set(counts))
    assert 1 <= len(counts) <= 5
    assert counts[0] == math.ceil(d**0.25)
    assert counts[-1] <= max(counts[0], d**0.75)
    if d**0.75 - d**0.25 > 5:
        assert len(counts) == 5
        assert counts[-1] == math.floor(d**0.75)


def test_grid_of_xgboost_is_the_papers():
    assert baselines.FULL.depths == tuple(range(1, 11))
    assert baselines.FULL.rates == (0.05, 0.1, 0.5)


def test_lasso_is_scikit_learns():
    fold = fold_of()
    outcome = baselines.lasso(fold, KFold(5), quick=False)
    expected = LassoCV(cv=5).fit(fold.X, fold.y)
    assert outcome.score == pytest.approx(expected.score(fold.X_test, fold.y_test))
    assert outcome.extra["penalty"] == pytest.approx(expected.alpha_)


def test_forest_chooses_inside_the_training_part():
    fold = fold_of(d=10)
    outcome = baselines.forest(fold, KFold(5), quick=True)
    blind = baselines.forest(fold._replace(y_test=fold.y_test[::-1]), KFold(5), quick=True)
    assert outcome.extra["max_features"] in baselines.feature_counts(10, 2)
    assert outcome.extra["max_features"] == blind.extra["max_features"]
    assert 0 < outcome.seconds_per_fit < outcome.seconds_all


class CodedCentroid:
    """Stands in for XGBoost's classifier, and is as strict about classes."""

    def __init__(self, max_depth, learning_rate, n_jobs):
        self.model = NearestCentroid()

    def fit(self, X, y):
        assert np.array_equal(np.unique(y), np.arange(y.max() + 1))
        self.model.fit(X, y)

    def predict(self, X):
        return self.model.predict(X)


def test_xgboost_gets_classes_coded_anew_in_every_fold(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", SimpleNamespace(XGBClassifier=CodedCentroid, XGBRegressor=None))
    y = np.repeat([3, 7, 29, 12], [20, 20, 20, 1])  # the last class misses from one inner training part
    X = np.column_stack([y, -y]) + 0.1 * np.random.default_rng(0).standard_normal((len(y), 2))
    test = np.array([[7.0, -7.0], [29.0, -29.0], [50.0, -50.0]])
    shuffled = KFold(5, shuffle=True, random_state=0)
    outcome = baselines.xgboost(Fold(X, y, test, np.array([7, 29, 50])), shuffled, quick=True, classify=True)
    assert outcome.score == pytest.approx(2 / 3)  # a class never seen counts as an error
    assert outcome.extra["max_depth"] in baselines.QUICK.depths


@pytest.mark.parametrize(
    ("y", "classify", "kind", "shuffled"),
    [
        (np.repeat([0, 1], 5), True, StratifiedKFold, True),
        (np.repeat([0, 1], [9, 1]), True, KFold, True),
        (np.linspace(0, 1, 10), False, KFold, False),
    ],
)
def test_inner_folds_suit_the_task(y, classify, kind, shuffled):
    folds = inner_folds(y, classify=classify)
    assert type(folds) is kind
    assert folds.shuffle == shuffled


# the tables and the page


def test_best_is_bold_ties_as_printed_included_and_what_is_missing_is_a_dash():
    rows = [{"set": "a", "x": 1.04, "y": 0.96, "z": 0.5}, {"set": "b", "x": -2.0, "z": -3.0}, {"set": "c"}]
    sheet = Sheet("t", {"set": "3", "x": ".1f", "y": ".1f", "z": ".1f"}, rows, ("x", "y"), max, ("x best: 1 of 1",))
    lines = sheet_lines(sheet)
    assert lines[2:5] == ["| a | **1.0** | **1.0** | 0.5 |", "| b | **-2.0** | - | -3.0 |", "| c | - | - | - |"]
    assert "x best: 1 of 1." in lines
    smallest = Sheet("t", sheet.columns, [{"x": 3.0, "y": 2.0, "z": 1.0}], ("x", "y"), min)
    assert sheet_lines(smallest)[2] == "| - | 3.0 | **2.0** | 1.0 |"


def keep(store, unit, outcome):
    store.add(unit._asdict(), [outcome._asdict()], paper_units.measured(unit))


def concrete_store(path, methods):
    """A store with all folds of concrete finished, at the given score by method."""
    store, (row,) = Store("paper", path), paper_units.chosen_rows(3, False, ["concrete"])
    for method, score in methods.items():
        for index, each in enumerate(paper_units.row_units(3, row, [method], False)):
            keep(store, each, Outcome(score + 0.01 * (index - 2), 1.0, 10.0, 0.02, {"alpha": 10.0**-index}))
    return store, [row]


def test_a_cell_is_the_mean_over_all_folds_or_a_dash(tmp_path):
    store, rows = concrete_store(tmp_path / "rows", {"ours": 0.93, "forest": 0.91, "xgboost": 0.92})
    scores, seconds = sheets(store, 3, rows, False)
    (cells,) = scores.rows
    assert (cells["ours"], cells["paper dc"], cells["gap"]) == pytest.approx((93.0, 91.7, 0.02))
    assert cells["alpha"] == "0.0001 to 1"
    assert "lasso" not in cells
    assert scores.counts == ("ours at least paper dc: 1 of 1", "ours above both forest and xgboost here: 1 of 1")
    assert (seconds.rows[0]["ours: fit"], seconds.rows[0]["ours: all"]) == pytest.approx((1.0, 50.0))
    file = tmp_path / "rows" / "paper.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))  # one fold of ours is not finished
    incomplete = sheets(Store("paper", tmp_path / "rows"), 3, rows, False)[0]
    assert "ours" not in incomplete.rows[0]
    assert incomplete.counts[0] == "ours at least paper dc: 0 of 0"


def test_a_fit_that_ran_out_of_iterations_is_told_and_never_counts_as_faster(tmp_path):
    store, (row,) = Store("paper", tmp_path), paper_units.chosen_rows(5, False, ["concrete"])
    for stop, seconds, reached in (("rule", 1.0, False), ("gap", 2.0, True)):
        extra = {"iterations": 10, "objective": 0.5, "reached": reached, "n": 824}
        keep(store, paper_units.timing_unit(5, row, stop), Outcome(0.9, seconds, seconds, 0.02, extra))
    (sheet,) = sheets(store, 5, [row], False)
    line = "| Concrete Compressive Strength | 1030 | 8 | 824 | 3.28 | > 1.00 | 10 | 0.50000 | 2.00% | **2.00** | 10 |"
    assert sheet_lines(sheet)[2].startswith(line)
    by_rule, to_gap = sheet.counts
    assert by_rule.endswith("0 of 1")
    assert to_gap.endswith("1 of 1")


def test_counts_compare_figures_as_printed(tmp_path):
    store, rows = concrete_store(tmp_path / "rows", {"ours": 0.9166, "forest": 0.9164, "xgboost": 0.5})
    counts = sheets(store, 3, rows, False)[0].counts
    assert counts == ("ours at least paper dc: 1 of 1", "ours above both forest and xgboost here: 1 of 1")
    store, rows = concrete_store(tmp_path / "more", {"ours": 0.9166, "forest": 0.9170, "xgboost": 0.5})
    counts = sheets(store, 3, rows, False)[0].counts
    assert counts == ("ours at least paper dc: 1 of 1", "ours above both forest and xgboost here: 0 of 1")


def test_an_empty_store_has_the_papers_figures_and_dashes_only(tmp_path):
    store = Store("paper", tmp_path)
    shown = [s for t in range(1, 6) for s in sheets(store, t, paper_units.chosen_rows(t, False), False)]
    text = "\n".join(line for sheet in shown for line in sheet_lines(sheet))
    airfoil = next(line for line in text.splitlines() if line.startswith("| Airfoil") and "95.2" in line)
    assert airfoil == "| Airfoil Self-Noise | 1503 | 5 | **95.2** | 51.1 | 93.3 | 95.0 |" + " - |" * 7
    assert "| 1000 | 32 | - | 823.20 | **4.42** |" + " - |" * 8 in text
    assert text.count("0 of 0") == 2 * 3 + 2 + 2 * (3 + 2)  # two methods in table 4


def test_what_is_behind_the_paper_is_listed_with_what_is_known_of_it(monkeypatch):
    monkeypatch.setattr(paper_tables, "REASONS", {"Airfoil": "Noise."})
    columns = {"set": "9", "paper dc": ".1f", "paper forest": ".1f", "ours": ".1f"}
    rows = [
        {"set": "Airfoil", "paper dc": 95.2, "paper forest": 93.3, "ours": 95.12},
        {"set": "Concrete", "paper dc": 91.7, "paper forest": 91.8, "ours": 91.66},  # as printed it is level
        {"set": "Solar", "paper dc": 3.3, "paper forest": -28.0},
    ]
    regression = Sheet("Table 3: regression, R^2 x 100", columns, rows, (), max)
    classes = {"set": "Iris", "paper pbdl": 96.0, "paper pbdl0": 98.7, "paper xgboost": 96.6, "ours": 96.2}
    figures = dict.fromkeys(list(classes)[1:], ".1f")
    classification = Sheet("Table 4: classification", {"set": "9", **figures}, [classes], (), max)
    assert behind_lines([regression, classification]) == [
        "- Table 3, Airfoil: 95.1; paper dc 95.2. Noise.",
        "- Table 4, Iris: 96.2; paper pbdl0 98.7, paper xgboost 96.6.",
    ]


# the command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "6"], "--table got 6; valid: 1, 2, 3, 4, 5"),
        (["--table", "4", "--sets", "iris,ccpp"], "--sets got ccpp; valid: iris, wine"),
        (["--table", "1", "--sets", "iris"], "--sets got iris; valid: d2, d4, d8, d16, d32"),
        (["--methods", "ridge"], "--methods got ridge; valid: ours, PBDLCV, BregmanNCA, lasso, forest, xgboost"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_name_the_valid_ones(arguments, message, capsys):
    with pytest.raises(SystemExit):
        paper.parse(arguments)
    assert message in capsys.readouterr().err


def test_tables_may_be_given_in_two_ways():
    assert paper.parse(["--table", "3,1", "--table", "5"]).table == [1, 3, 5]
    assert paper.parse([]).table == [1, 2, 3, 4, 5]


def test_full_run_has_all_units(monkeypatch):
    monkeypatch.setattr(paper, "HAS_XGBOOST", True)
    units = paper.chosen_units(paper.parse([]))
    by_table = [sum(each.table == table for each in units) for table in range(1, 6)]
    assert by_table == [10, 10, 4 * (13 + 9 * 5), 4 * 6 * 5, 16]
    assert len(set(units)) == len(units)
    monkeypatch.setattr(paper, "HAS_XGBOOST", False)
    assert not any(each.method == "xgboost" for each in paper.chosen_units(paper.parse([])))


@pytest.fixture
def fake(monkeypatch):
    """Folds without data, and a method of ours that counts its calls; from the third on it is interrupted."""
    calls = []

    def regression(fold, inner, quick):
        if len(calls) == fake.limit:
            raise fake.trouble
        calls.append(quick)
        return Outcome(0.5 + 0.1 * len(calls), 1.0, 3.0, 0.01, {"alpha": 0.1, "one_fit": 0.45})

    fake = SimpleNamespace(calls=calls, limit=None, trouble=KeyboardInterrupt())
    monkeypatch.setattr(paper_units, "paper_folds", lambda name, target=0: [fold_of()] * 5)
    monkeypatch.setattr(ours, "regression", regression)
    paper_units._folds.cache_clear()
    yield fake
    paper_units._folds.cache_clear()


def arguments(tmp_path, *more):
    return ["--table", "3", "--sets", "concrete", "--methods", "ours", "--folder", str(tmp_path), *more]


def test_interrupted_run_goes_on_where_it_was(fake, tmp_path, capsys):
    fake.limit = 2
    with pytest.raises(KeyboardInterrupt):
        paper.main(arguments(tmp_path))
    assert len(Store("paper", tmp_path)) == 2
    fake.limit = None
    assert paper.main(arguments(tmp_path)) == 0
    assert len(fake.calls) == 5
    out = capsys.readouterr().out
    assert "5 units of work, 2 of them stored already" in out
    assert "[3/5] table 3 concrete fold 3 ours: score 80.0" in out
    (row,) = paper_units.chosen_rows(3, False, ["concrete"])
    (cells,) = sheets(Store("paper", tmp_path), 3, [row], False)[0].rows
    assert (cells["ours"], cells["one fit"]) == pytest.approx((80.0, 45.0))


def test_nothing_is_done_twice_unless_fresh_or_the_code_has_changed(fake, tmp_path, monkeypatch):
    for expected, more in ((5, ()), (5, ()), (5, ("--no-run",)), (10, ("--fresh",)), (10, ())):
        assert paper.main(arguments(tmp_path, *more)) == 0
        assert len(fake.calls) == expected
    monkeypatch.setattr(paper, "measured", lambda unit: ("benchmarks/data.py",))
    paper.main(arguments(tmp_path))
    assert len(fake.calls) == 15


def test_quick_rows_are_kept_apart(fake):
    quick, full = paper.parse(["--quick"]), paper.parse([])
    assert quick.folder != full.folder
    assert len(paper.chosen_units(quick)) < len(paper.chosen_units(full))


def test_a_unit_that_fails_is_told_and_does_not_end_the_run(fake, tmp_path, capsys):
    fake.limit, fake.trouble = 3, FloatingPointError("too steep")
    assert paper.main(arguments(tmp_path)) == 1
    assert len(Store("paper", tmp_path)) == 3
    output = capsys.readouterr()
    assert output.out.count("FAILED") == 2
    assert "too steep" in output.err


@pytest.mark.slow
def test_processes_give_the_same_rows_and_leave_the_environment_as_it_was(tmp_path, monkeypatch):
    monkeypatch.delenv("BREGNET_DATA", raising=False)  # iris comes with scikit-learn
    before = dict(os.environ)
    chosen = ["--table", "4", "--sets", "iris", "--methods", "forest", "--quick", "--folder", str(tmp_path)]
    assert paper.main([*chosen, "--jobs", "2"]) == 0
    assert dict(os.environ) == before
    (row,) = paper_units.chosen_rows(4, True, ["iris"])
    (each,) = paper_units.row_units(4, row, ["forest"], True)
    found, here = outcome(Store("paper", tmp_path), each), paper_units.compute(each, True)
    assert found["threads"] == 1
    assert found["score"] == pytest.approx(here.score)
    assert found["extra"]["max_features"] == here.extra["max_features"]
