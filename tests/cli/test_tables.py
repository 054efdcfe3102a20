"""Tables as people have them: categories, gaps, dates, ids, separators, and rows by their numbers in the file."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

import bregnet
from bregnet import PBDL, BregmanKNeighborsClassifier, DCRegressor
from bregnet.cli.features import _order
from bregnet.cli.output import table
from tests.support.cli_runs import FEW, LABELS, NAMES, SAME, X, Y, error_of, run

SIZES = ["small", "medium", "large"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mixed():
    """Numbers and categories, with gaps."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame["color"], frame["size"] = rng.choice(["red", "green", "blue"], 60), rng.choice(SIZES, 60)
    frame.loc[[4, 9], "b"] = np.nan
    frame.loc[7, "color"] = None
    return frame


def by_hand(frame):
    """The same numbers by scikit-learn."""
    made = make_column_transformer(
        (SimpleImputer(strategy="median"), ["a", "b"]),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(sparse_output=False)), ["color"]),
        (OrdinalEncoder(categories=[SIZES]), ["size"]),
    )
    return made.fit_transform(frame.astype({"color": object, "size": object}).fillna({"color": np.nan}))


class TestEncoding:
    OPTIONS = ("--one-hot", "color", "--ordinal", "size=small,medium,large", "--impute", "median")

    @pytest.mark.parametrize("kind", ["csv", "parquet", "xlsx"])
    def test_as_by_hand(self, folder, kind):
        frame = mixed().assign(y=Y)
        path = f"mixed.{kind}"
        {"csv": frame.to_csv, "parquet": frame.to_parquet, "xlsx": frame.to_excel}[kind](path, index=False)
        result = run("fit", path, "--target", "y", "-o", "model", *self.OPTIONS, *FEW)
        line = result.stderr.splitlines()[1]
        assert line == (
            "'color' one-hot encoded, in 3 columns; 'size' numbered small < medium < large;"
            " gaps are filled: numbers by the median, categories by the most frequent"
        )
        expected = DCRegressor(**SAME).fit(by_hand(mixed()), Y)
        run("predict", "model", path, "-o", "out.npy")
        np.testing.assert_allclose(np.load("out.npy"), expected.predict(by_hand(mixed())), atol=1e-9)
        found = json.loads(run("info", "model", "--json").stdout)
        assert (found["kind"], found["features"], found["preprocessing"]) == ("DCRegressor", 6, line)
        assert found["feature_names"] == ["a", "b", "color", "size"]

    def test_the_file_is_a_pipeline_without_pickle(self, folder):
        mixed().assign(y=Y).to_csv("mixed.csv", index=False)
        run("fit", "mixed.csv", "--target", "y", "-o", "model", *self.OPTIONS, *FEW)
        loaded = bregnet.load("model")
        assert isinstance(loaded, Pipeline)
        run("predict", "model", "mixed.csv", "-o", "out.npy")
        np.testing.assert_array_equal(loaded.predict(mixed()), np.load("out.npy"))
        bregnet.save(loaded, "again")
        np.testing.assert_array_equal(bregnet.load("again").predict(mixed()), np.load("out.npy"))
        assert b"pickle" not in (folder / "model").read_bytes()

    def test_all_commands_take_raw_tables(self, folder):
        frame = mixed()
        frame.assign(kind=LABELS, name=NAMES).to_csv("mixed.csv", index=False)
        run("fit", "mixed.csv", "--target", "kind", "--id", "name", "-o", "model", *self.OPTIONS, *FEW)
        numbers = by_hand(frame)
        learner = PBDL(**SAME).fit(numbers, LABELS)
        index = bregnet.BregmanIndex(learner)
        index.add(numbers)
        ids = index.search(numbers[:5], 1)[1][:, 0]
        frame[:5].assign(name=NAMES[:5]).to_csv("new.csv", index=False)
        run("search", "model", "mixed.csv", "--queries", "new.csv", "--id", "name", "-k", 1, "-o", "found.csv")
        assert pd.read_csv("found.csv")["id"].tolist() == NAMES[ids].tolist()
        scores = json.loads(run("evaluate", "model", "mixed.csv", "--target", "kind", "--json").stdout)["scores"]
        nearest = BregmanKNeighborsClassifier(learner).fit(numbers, LABELS)
        assert scores["PBDL"]["accuracy"] == nearest.score(None, LABELS)
        run("predict", "model", "new.csv", "--known", "mixed.csv", "--target", "kind", "-o", "out.csv")
        assert pd.read_csv("out.csv")["prediction"].tolist() == nearest.predict(numbers[:5]).tolist()
        run("cluster", "model", "mixed.csv", "-k", 2, "-o", "clusters.csv")
        assert pd.read_csv("clusters.csv")["row"].tolist() == list(range(60))

    def test_auto_is_all_columns_of_text(self, folder):
        mixed().assign(y=Y).to_csv("mixed.csv", index=False)
        fit = ("fit", "mixed.csv", "--target", "y", "-o", "model", "--impute", "mean", *FEW)
        assert "'color', 'size' one-hot encoded, in 6 columns" in run(*fit, "--one-hot", "auto").stderr
        assert "'color' numbered blue < green < red; 'size' numbered" in run(*fit, "--ordinal", "auto").stderr
        said = run(*fit, "--one-hot", "auto", "--ordinal", "size").stderr
        assert "'color' one-hot encoded, in 3 columns; 'size' numbered large < medium < small" in said

    def test_codes_can_be_categories(self, folder):
        codes = np.random.default_rng(2).choice(["007", "07", "7"], 60)
        pd.DataFrame(X, columns=list("abc")).assign(code=codes, y=Y).to_csv("codes.csv", index=False)
        run("fit", "codes.csv", "--target", "y", "-o", "model", "--one-hot", "code", *FEW)
        assert bregnet.load("model")[-1].feature_names_in_.tolist()[3:] == ["code_007", "code_07", "code_7"]

    def test_numbers_stay_the_same_category_in_other_tables(self, folder):
        frame = pd.DataFrame(X, columns=list("abc")).assign(code=np.arange(60) % 3 + 1, y=Y)
        frame.to_parquet("codes.parquet")
        run("fit", "codes.parquet", "--target", "y", "-o", "model", "--one-hot", "code", "--impute", "mean", *FEW)
        frame.loc[0, "code"] = np.nan  # now of floating-point numbers
        frame[:2].to_parquet("new.parquet")
        frame[:2].to_csv("new.csv", index=False)
        results = [run("predict", "model", f"new.{kind}") for kind in ("csv", "parquet")]
        assert results[0].output == results[1].output
        assert "no row of the fit had" not in results[0].output

    def test_values_that_no_row_of_the_fit_had(self, folder):
        mixed().assign(y=Y).to_csv("mixed.csv", index=False)
        run("fit", "mixed.csv", "--target", "y", "-o", "model", *self.OPTIONS, *FEW)
        new = mixed()[:4]
        new.loc[2, "color"] = "pink"
        new.to_csv("new.csv", index=False)
        said = run("predict", "model", "new.csv", "-o", "out.csv").stderr
        assert "1 row has a value of 'color' that no row of the fit had: 'pink' in row 2; it counts as none" in said
        new.loc[3, "size"] = "huge"
        new.to_csv("new.csv", index=False)
        found = run("predict", "model", "new.csv", "-o", "out.csv", code=1).stderr
        assert "column 'size' must hold 'small', 'medium', 'large', got 'huge' in row 3" in found

    def test_held_out_rows_teach_nothing(self, folder):
        frame = mixed().assign(y=Y)
        out = np.sort(train_test_split(np.arange(60), test_size=0.3, random_state=0)[1])
        frame.loc[out, "a"] = 1000.0
        frame.loc[out[0], "color"] = "pink"
        frame.to_csv("mixed.csv", index=False)
        run("fit", "mixed.csv", "--target", "y", "-o", "model", *self.OPTIONS, "--holdout", 0.3, *FEW)
        columns = bregnet.load("model")[0]
        known = frame.drop(index=out)
        assert columns.named_transformers_["numbers"].statistics_[0] == np.median(known["a"])
        assert columns.named_transformers_["one-hot"][-1].categories_[0].tolist() == ["blue", "green", "red"]


class TestRefused:
    def fit(self, frame, *options, target="y", path="table.csv"):
        frame.to_csv(path, index=False)
        return error_of("fit", path, "--target", target, "-o", "model", *options)

    def table(self, **columns):
        return pd.DataFrame(X, columns=list("abc")).assign(**columns, y=Y)

    def test_a_bad_cell_is_named(self, folder):
        column = X[:, 1].round(3).astype(object)
        column[41] = "1.2.3 ?"
        said = "column 'b' must hold numbers, got '1.2.3 ?' in row 41 (line 43); --missing '1.2.3 ?' takes it for a gap"
        assert self.fit(self.table(b=column)) == f"error: table.csv: {said}"
        assert self.fit(self.table(b=column), "--one-hot", "auto") == f"error: table.csv: {said}"
        column[50] = "x" * 100
        assert self.fit(self.table(b=column)).endswith("in row 41 (line 43) and text in 1 more row")
        column[[41, 50]] = 0.0, np.inf
        assert self.fit(self.table(b=column)).endswith("must hold finite numbers, got inf in row 50 (line 52)")

    def test_lines_are_those_of_the_file(self, folder):
        rows = [f'"two\nlines",{number},{number / 2}' for number in range(8)]
        rows[6] = '"two\nlines",six,3.0'
        (folder / "table.csv").write_text("\n\nnote,a,y\n" + "\n\n".join(rows) + "\n")
        said = error_of("fit", "table.csv", "--target", "y", "-o", "model", "--drop", "note")
        assert "column 'a' must hold numbers, got 'six' in row 6 (line 22)" in said
        assert (folder / "table.csv").read_text().splitlines()[21:23] == ['"two', 'lines",six,3.0']

    def test_dates(self, folder):
        days = pd.date_range("2020-01-28", periods=60)
        for form in ("%Y-%m-%d", "%d/%m/%Y", "%Y-%m-%d %H:%M:%S", "%d %b %Y", "%d-%b-%y", "%B %d, %Y", "%d. %B %Y"):
            column = days.strftime(form)
            said = self.fit(self.table(day=column), "--one-hot", "auto")
            assert f"column 'day' holds dates, {column[0]!r} in row 0 (line 2); make numbers of them first" in said
            assert said.endswith("or leave out with --drop day")
        self.table(day=days).to_parquet("table.parquet")
        said = error_of("fit", "table.parquet", "--target", "y", "-o", "model")
        assert "column 'day' holds dates" in said

    def test_words_like_months_are_no_dates(self, folder):
        words = np.where(np.arange(60) % 2, "Mayer 12", "3 marching")
        assert "column 'b' holds dates" not in self.fit(self.table(b=words))

    def test_names_are_not_encoded(self, folder):
        said = self.fit(self.table(name=NAMES), "--one-hot", "auto")
        assert "'name' has another text in every row" in said
        assert "--id name takes it for names of the rows, and --drop name leaves it out" in said

    def test_one_error_says_all_that_is_to_be_added(self, folder):
        said = self.fit(mixed().assign(y=Y))
        assert "'color', 'size' hold text" in said
        assert "'b' has no value in 2 rows, the first of which is row 4 (line 6), and 'color' has gaps, too" in said
        assert "--one-hot auto encodes categories, --impute median fills gaps" in said
        said = self.fit(self.table(name=NAMES))
        assert "('row 0, 0' in row 0 (line 2)); --id name takes names of rows, or leave out with --drop name" in said

    def test_columns_without_values(self, folder):
        said = self.fit(self.table(b=np.nan), "--impute", "median")
        assert said == "error: table.csv: column 'b' has no value in any row; --drop b leaves it out"

    def test_advice_can_be_pasted_into_a_shell(self, folder):
        said = self.fit(pd.DataFrame(X[:, :1], columns=["a"]).assign(**{"b (cm)": np.nan}, y=Y))
        assert said.endswith("--drop 'b (cm)' leaves it out")
        said = self.fit(self.table(**{"first name": NAMES}))
        assert "; --id 'first name' takes names of rows, or leave out with --drop 'first name'" in said

    def test_names_with_commas(self, folder):
        frame = self.table(**{"b, in cm": ["one", "two"] * 30})
        said = self.fit(frame)
        assert said.endswith("""or leave out with --drop '"b, in cm"'""")
        assert "'y', 'b'" not in self.fit(frame.assign(c="word"), "--drop", '"b, in cm"')
        run("fit", "table.csv", "--target", "y", "-o", "model", "--one-hot", 'c, "b, in cm"', *FEW)
        assert len(bregnet.load("model")[0].named_transformers_["one-hot"].categories_) == 2

    def test_commas_between_thousands(self, folder):
        said = self.fit(self.table(b=[f"1,{number}" for number in range(100, 160)]))
        assert said.endswith("the decimal mark; where it separates thousands, leave it out of the file")
        assert "got '1,234,567.5' in row 0" in self.fit(self.table(b=["1,234,567.5"] * 60))
        assert self.fit(self.table(b=["0,125"] * 60)).endswith("--decimal , reads a comma as the decimal mark")

    @pytest.mark.parametrize("sep", [",", " "])
    def test_more_columns_than_names(self, folder, sep):
        lines = [sep.join(["a", "b", "y"]), *(sep.join(map(str, [n, 0.5 * n, n % 7, n % 2])) for n in range(60))]
        name = "table.csv" if sep == "," else "table.txt"
        (folder / name).write_text("\n".join(lines))
        said = error_of("fit", name, "--target", "y", "-o", "model")
        assert "must have a name for every column, got 3 names in the first line and 4 columns in the next" in said

    def test_new_tables_with_gaps_for_a_model_of_numbers(self, folder):
        self.table().to_csv("table.csv", index=False)
        run("fit", "table.csv", "--target", "y", "-o", "model", *FEW)
        self.table(b=np.where(np.arange(60) == 3, np.nan, 1.0)).to_csv("new.csv", index=False)
        said = error_of("predict", "model", "new.csv", "-o", "out.csv")
        assert "'b' has no value in row 3 (line 5); the model was fitted to numbers without gaps" in said

    def test_usage(self, folder):
        self.table().to_csv("table.csv", index=False)
        fit = ("fit", "table.csv", "--target", "y", "-o", "model")
        assert "can be auto" in error_of(*fit, "--one-hot", "auto", "--ordinal", "auto", code=2)
        assert "'a=' is not a column" in error_of(*fit, "--ordinal", "a=", code=2)
        assert "'d' cannot be encoded, for the features are 'a', 'b', 'c'" in error_of(*fit, "--one-hot", "d")
        assert "got 'a' in both" in error_of(*fit, "--one-hot", "a", "--ordinal", "a")
        np.save("X.npy", X)
        np.save("Y.npy", Y)
        matrix = ("fit", "X.npy", "--target", "Y.npy", "-o", "model", "--impute", "mean")
        assert "are for tables, got X.npy" in error_of(*matrix, code=2)


class TestFiles:
    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_text_for_missing_values(self, folder, kind):
        frame = pd.DataFrame(X, columns=list("abc")).assign(y=Y)
        frame["b"] = frame["b"].map(repr).where(frame.index % 7 != 3, "?")
        frame.to_csv("table.csv", index=False)
        frame.to_parquet("table.parquet")
        fit = ("fit", f"table.{kind}", "--target", "y", "-o", "model")
        assert "got '?' in row 3" in (said := error_of(*fit))
        assert said.endswith("and the same in 8 more rows; --missing '?' takes it for a gap")
        run(*fit, "--missing", "?", "--impute", "mean", *FEW)
        filled = pd.to_numeric(frame["b"], errors="coerce").fillna(pd.to_numeric(frame["b"], errors="coerce").mean())
        expected = DCRegressor(**SAME).fit(np.column_stack([X[:, 0], filled, X[:, 2]]), Y)
        np.testing.assert_allclose(bregnet.load("model")[-1].function_(X), expected.function_(X), atol=1e-9)

    @pytest.mark.parametrize(
        ("name", "sep", "option"),
        [
            ("table.tsv", "\t", ()),
            ("table.txt", ";", ()),
            ("table.txt", " ", ()),
            ("table.csv", ";", ("--sep", ";")),
            ("table.csv", "\t", ("--sep", "tab")),
            ("table.txt.gz", "|", ()),
            ("table.tsv.gz", "\t", ()),
        ],
    )
    def test_separators(self, folder, name, sep, option):
        frame = pd.DataFrame(X, columns=list("abc")).assign(y=Y)
        frame.to_csv(name, index=False, sep=sep)
        run("fit", name, "--target", "y", "-o", "model", *option, *FEW)
        run("predict", "model", name, "-o", "out.npy", *option)
        np.testing.assert_allclose(np.load("out.npy"), DCRegressor(**SAME).fit(X, Y).predict(X), atol=1e-9)

    def test_spaces_after_commas_belong_to_nothing(self, folder):
        pd.DataFrame(X, columns=list("abc")).assign(y=LABELS).to_csv("plain.csv", index=False)
        Path("spaced.csv").write_text(Path("plain.csv").read_text().replace(",", ", "))
        for name in ("plain", "spaced"):
            run("fit", f"{name}.csv", "--target", "y", "-o", name, *FEW)
        plain, spaced = bregnet.load("plain"), bregnet.load("spaced")
        assert list(spaced.feature_names_in_) == list(plain.feature_names_in_)
        assert list(spaced.classes_) == list(plain.classes_)

    def test_a_comma_as_the_decimal_mark(self, folder):
        frame = pd.DataFrame(X, columns=list("abc")).assign(y=Y)
        frame.to_csv("point.csv", index=False)
        frame.to_csv("comma.csv", index=False, sep=";", decimal=",")
        with_comma = ("comma.csv", "--sep", ";", "--decimal", ",")
        run("fit", *with_comma, "--target", "y", "-o", "model")
        run("fit", "point.csv", "--target", "y", "-o", "same")
        assert run("predict", "model", *with_comma).stdout == run("predict", "same", "point.csv").stdout
        said = error_of("fit", *with_comma[:3], "--target", "y", "-o", "model")
        assert "column 'a' must hold numbers, got" in said
        assert said.endswith("in row 0 (line 2); --decimal , reads a comma as the decimal mark")
        said = error_of("fit", "comma.csv", "--decimal", ",", "--target", "y", "-o", "model", code=2)
        assert "',' cannot be the decimal mark and separate columns: give --sep, too" in said
        assert "'4' is not a decimal mark" in error_of(
            "fit", "comma.csv", "--decimal", "4", "--target", "y", "-o", "m", code=2
        )

    def test_a_separator_that_does_not_fit_is_named(self, folder):
        pd.DataFrame(X, columns=list("abc")).assign(y=Y).to_csv("table.csv", index=False, sep=";")
        said = error_of("fit", "table.csv", "--target", "y", "-o", "model")
        found = "must have its columns separated by commas, but its first line, 'a;b;c;y', has semicolons"
        assert said == f"error: table.csv {found}: add --sep ';'"
        (folder / "table.csv").write_text("a;b;y\n1,5;2;3\n1;2,5;3,5\n")  # commas are decimal points
        assert "has semicolons: add --sep ';'" in error_of("fit", "table.csv", "--target", "y", "-o", "model")
        for given in ("tab", ":"):
            said = error_of("fit", "table.csv", "--sep", given, "--target", "y", "-o", "model")
            assert said.endswith("has semicolons: add --sep ';'")

    def test_files_in_another_encoding_and_tables_of_one_class(self, folder):
        (folder / "table.csv").write_bytes("a,y\n1,é\n2,b\n".encode("latin-1"))
        said = error_of("fit", "table.csv", "--target", "y", "-o", "model")
        assert "not a text file in UTF-8" in said
        assert said.endswith("save it as UTF-8")
        (folder / "table.csv").write_text("a,y\n1,b\n2,b\n")
        said = run("fit", "table.csv", "--target", "y", "-o", "model", code=1).stderr
        assert "2 rows, 1 feature, 1 class (the target 'y' holds labels)" in said

    def test_empty_files_are_called_empty(self, folder):
        for name, text in (("table.csv", ""), ("table.tsv", "\n \n")):
            (folder / name).write_text(text)
            assert error_of("fit", name, "--target", "y", "-o", "model") == f"error: {name} is empty"
        with gzip.open("table.csv.gz", "wt"):
            pass
        assert error_of("fit", "table.csv.gz", "--target", "y", "-o", "model") == "error: table.csv.gz is empty"

    def test_damaged_files(self, folder):
        for name in ("table.csv.gz", "table.xlsx"):
            (folder / name).write_bytes(b"nothing of the kind")
            assert f"{name} is damaged" in error_of("fit", name, "--target", "y", "-o", "model")


class TestRows:
    @pytest.fixture
    def shown(self, monkeypatch):
        """The arguments of reports."""
        given = []
        monkeypatch.setattr("bregnet.cli.output.report", lambda *args, **more: given.append((args, more)))
        return given

    @pytest.mark.parametrize("learner", ["pbdl", "dc"])
    def test_held_out_rows_have_the_numbers_of_the_file(self, folder, shown, learner):
        y = {"pbdl": LABELS, "dc": Y}[learner]
        pd.DataFrame(X, columns=list("abc")).assign(y=y).to_csv("table.csv", index=False)
        options = ("--holdout", 0.2, "--report", "r.html", "--seed", 3, *FEW)
        said = run("fit", "table.csv", "--target", "y", "-o", "model", *options).stderr
        stratified = {"stratify": y} if learner == "pbdl" else {}
        inside, out = train_test_split(np.arange(60), test_size=0.2, random_state=3, **stratified)
        assert "12 rows were held out; model.held-out.csv has their numbers, from 0" in said
        assert pd.read_csv("model.held-out.csv")["row"].tolist() == sorted(out)
        ((_, reported, targets, _), more) = shown[0]
        assert reported.index.tolist() == sorted(out)
        np.testing.assert_allclose(reported.to_numpy(), X[reported.index])
        assert (targets == y[reported.index]).all()
        if learner == "pbdl":
            assert more["X_known"].index.tolist() == sorted(inside)

    def test_ids_take_their_place(self, folder, shown):
        pd.DataFrame(X, columns=list("abc")).assign(y=Y, name=NAMES).to_csv("table.csv", index=False)
        run(
            "fit", "table.csv", "--target", "y", "--id", "name", "-o", "m", "--holdout", 0.2, "--report", "r.html", *FEW
        )
        found = pd.read_csv("m.held-out.csv")
        assert found["name"].tolist() == NAMES[found["row"]].tolist() == shown[0][0][1].index.tolist()
        run("evaluate", "m", "table.csv", "--target", "y", "--id", "name", "--report", "e.html")
        assert shown[1][0][1].index.tolist() == NAMES.tolist()
        run("predict", "m", "table.csv", "--id", "name", "-o", "out.csv")
        assert pd.read_csv("out.csv")["name"].tolist() == NAMES.tolist()

    def test_matrices(self, folder, shown):
        np.save("X.npy", X)
        np.save("labels.npy", LABELS)
        run("fit", "X.npy", "--target", "labels.npy", "-o", "m", "--holdout", 0.2, "--report", "r.html", *FEW)
        reported = shown[0][0][1]
        np.testing.assert_array_equal(reported.to_numpy(), X[reported.index])

    def test_a_regression_with_a_report_of_held_out_rows(self, folder):
        pd.DataFrame(X, columns=list("abc")).assign(price=Y).to_csv("cont.csv", index=False)
        options = ("--target", "price", "-o", "m", "--holdout", 0.2, "--report", "r.html")
        result = run("fit", "cont.csv", *options, *FEW)
        assert "report written to r.html" in result.stderr
        assert "held-out rows of cont.csv" in (folder / "r.html").read_text()


class TestTargets:
    def test_whole_numbers_of_which_most_differ_are_numbers(self, folder):
        frame = pd.DataFrame(X, columns=list("abc"))
        frame.assign(price=np.arange(60) * 3).to_csv("table.csv", index=False)
        said = run("fit", "table.csv", "--target", "price", "-o", "model", *FEW).stderr
        assert "60 distinct whole numbers, taken for numbers to predict; --learner pbdl takes it otherwise" in said
        assert isinstance(bregnet.load("model"), DCRegressor)
        frame.assign(price=np.arange(60) % 20).to_csv("table.csv", index=False)
        said = run("fit", "table.csv", "--target", "price", "-o", "model", *FEW).stderr
        assert "20 distinct whole numbers, taken for labels; --learner dc takes it otherwise" in said
        frame.assign(price=1).to_csv("table.csv", index=False)
        said = run("fit", "table.csv", "--target", "price", "-o", "model", code=1).stderr
        assert "'price' holds a single whole number, taken for labels; --learner dc takes it otherwise" in said

    def test_a_class_of_one_row_does_not_prevent_a_holdout(self, folder):
        labels = LABELS.astype(object)
        labels[17] = "alone"
        pd.DataFrame(X, columns=list("abc")).assign(kind=labels).to_csv("table.csv", index=False)
        run("fit", "table.csv", "--target", "kind", "-o", "model", "--holdout", 0.2, *FEW)
        out = pd.read_csv("model.held-out.csv")["row"]
        assert 17 not in out.tolist()
        assert bregnet.load("model").classes_.tolist() == ["alone", "high", "low"]

    def test_more_classes_than_held_out_rows(self, folder):
        pd.DataFrame(X, columns=list("abc")).assign(kind=np.arange(60) % 20).to_csv("table.csv", index=False)
        said = run("fit", "table.csv", "--target", "kind", "-o", "model", "--holdout", 0.1, *FEW)
        assert "6 held out" in said.stdout

    def test_ids_among_the_features_are_pointed_out(self, folder):
        frame = pd.DataFrame(X, columns=list("abc")).assign(y=Y)
        frame.assign(customer=np.arange(60)[::-1], store_id=1 + np.arange(60) % 3).to_csv("table.csv", index=False)
        said = run("fit", "table.csv", "--target", "y", "-o", "model", *FEW).stderr
        assert "note: 'customer', 'store_id' look like ids and are features" in said
        assert "--id customer takes it for names of the rows, --drop customer,store_id leaves them out" in said
        said = run(
            "fit", "table.csv", "--target", "y", "--id", "customer", "--drop", "store_id", "-o", "m", *FEW
        ).stderr
        assert "note:" not in said
        frame.assign(width=np.arange(60), grid=1.5).to_csv("table.csv", index=False)
        assert "'grid'" not in run("fit", "table.csv", "--target", "y", "-o", "model", *FEW).stderr


class TestPredictLabels:
    @pytest.fixture
    def tables(self, folder):
        frame = pd.DataFrame(X, columns=list("abc"))
        frame.assign(kind=LABELS).to_csv("known.csv", index=False)
        frame[::5].to_csv("new.csv", index=False)
        return ("fit", "known.csv", "--target", "kind", "-o", "model", *FEW)

    def test_by_known_rows(self, tables):
        run(*tables)
        said = error_of("predict", "model", "new.csv")
        assert said.endswith("give --known TABLE --target COLUMN, or fit with --keep-rows")
        run("predict", "model", "new.csv", "--known", "known.csv", "--target", "kind", "-k", 3, "-o", "out.csv")
        expected = BregmanKNeighborsClassifier(PBDL(**SAME), 3).fit(X, LABELS).predict(X[::5])
        assert pd.read_csv("out.csv")["prediction"].tolist() == expected.tolist()
        assert "not given" in error_of("predict", "model", "new.csv", "--target", "kind", code=2)
        known = ("--known", "known.csv", "--target", "kind")
        assert "-k must be at most the 60 rows of known.csv" in error_of(
            "predict", "model", "new.csv", *known, "-k", 61
        )

    def test_by_rows_kept_with_the_model(self, tables):
        run(*tables, "--keep-rows", "--holdout", 0.2)
        run("predict", "model", "new.csv", "-o", "out.csv")
        inside = np.setdiff1d(np.arange(60), pd.read_csv("model.held-out.csv")["row"])
        learner = PBDL(**SAME).fit(X[inside], LABELS[inside])
        expected = BregmanKNeighborsClassifier(learner).fit(X, LABELS)
        assert pd.read_csv("out.csv")["prediction"].tolist() == expected.predict(X[::5]).tolist()
        run("search", "model", "--queries", "new.csv", "-k", 1, "-o", "found.csv")
        assert pd.read_csv("found.csv")["id"].tolist() == expected.kneighbors(X[::5], 1)[1][:, 0].tolist()
        run("predict", "model", "new.csv", "-k", 1, "-o", "out.csv")
        expected.set_params(n_neighbors=1)
        assert pd.read_csv("out.csv")["prediction"].tolist() == expected.predict(X[::5]).tolist()

    def test_usage(self, tables):
        pd.DataFrame(X, columns=list("abc")).assign(y=Y).to_csv("numbers.csv", index=False)
        fit = ("fit", "numbers.csv", "--target", "y", "-o", "model", *FEW)
        assert "--keep-rows is for the learner pbdl" in error_of(*fit, "--keep-rows", code=2)
        run(*fit)
        assert "-k is for nearest neighbors" in error_of("predict", "model", "new.csv", "-k", 3, code=2)


def test_errors_of_the_command_come_before_the_library_is_imported(tmp_path):
    (tmp_path / "table.csv").write_text("a,y\n1,2\n")
    commands = [
        "--help",
        "fit --help",
        "fit none.csv --target y -o model",
        "fit table.csv -o model",
        "fit table.csv --target y -o model --resume",
        "fit table.csv --target y -o model --colour",
        "fit table.doc --target y -o model",
        "predict none table.csv",
        "info table.csv",
        "evaluate table.csv table.csv --target y --known none.csv",
    ]
    code = f"""
import sys
from bregnet.cli import main
for command in {commands}:
    try:
        main(command.split())
    except SystemExit as end:
        print(end.code, bool({{"torch", "sklearn", "numpy", "pandas"}} & set(sys.modules)))
"""
    root = str(Path(bregnet.__file__).parents[1])
    settings = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": root}, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", code], check=True, **settings)
    ends = [line for line in done.stdout.splitlines() if line.endswith(("True", "False"))]
    assert ends == [f"{code} False" for code in (0, 0, 1, 2, 2, 2, 2, 1, 1, 1)], done.stderr


def test_long_orders_and_large_numbers_are_readable():
    assert _order(list("ABCDEFG")) == "A < B < C < D < E < F < G"
    assert _order(list("ABCDEFGHIJ")) == "A < B < C < D < ... < J"
    (line,) = table({"prices": {"MAE": 11431.4, "RMSE": 2e9, "R^2": 0.5}}).splitlines()[1:]
    assert line.split() == ["prices", "11,431", "2e+09", "0.500"]
