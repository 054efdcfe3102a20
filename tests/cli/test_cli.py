import os
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

import bregnet
from bregnet import PBDL, PBDLCV, ConvexRegressor, ConvexRegressorCV, DCRegressor
from bregnet.__main__ import main as program
from bregnet.cli import main
from bregnet.distributed import RankLostError
from bregnet.solver.checkpoints import Checkpoint
from tests.support.cli_runs import FEW, LABELS, SAME, X, Y, error_of, run, write_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of data, the current one."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


class TestEntryPoints:
    def test_the_program_is_this_one(self):
        project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
        assert project["scripts"] == {"bregnet": f"{program.__module__}:{program.__name__}"}

    def test_a_pipe_that_closes_ends_the_program_silently(self, folder):
        bregnet.save(bregnet.divergence("sqeuclidean"), "plain")
        np.save("many.npy", np.random.default_rng(0).standard_normal((3000, 3)))
        command = [sys.executable, "-m", "bregnet", "search", "plain", "many.npy", "-k", "5"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "query,rank,id,divergence\n"
            process.stdout.close()
            assert process.stderr.read() == ""  # neither a traceback nor a progress bar
        assert process.returncode == 1

    def test_errors_have_no_traceback(self, folder):
        fit = ["fit", "labels.csv", "--target", "sort", "-o", "model"]
        result = run(*fit, code=1)
        assert result.stdout == ""
        assert result.stderr == "error: labels.csv must have the column 'sort', got 'a', 'b', 'c', 'kind'\n"
        with pytest.raises(ValueError, match="must have the column 'sort'"):
            CliRunner().invoke(main, ["--debug", *fit], catch_exceptions=False)

    def test_errors_that_nobody_thought_of(self, folder, monkeypatch):
        def fail(*_):
            raise ZeroDivisionError("division by zero\nand more")

        monkeypatch.setattr(DCRegressor, "fit", fail)
        said = error_of("fit", "numbers.npz", "-o", "model")
        assert said == "error: ZeroDivisionError: division by zero (bregnet --debug shows where)"

    def test_interruption(self, folder, monkeypatch):
        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(DCRegressor, "fit", interrupt)
        result = run("fit", "numbers.npz", "-o", "model", "--quiet", code=130)
        assert result.output == "error: interrupted\n"
        assert not (folder / "model").exists()

    def test_help(self):
        text = run("--help").output
        names = ("demo", "fit", "evaluate", "search", "cluster", "predict", "info")
        listed = text[text.index("Commands:") :].splitlines()
        assert [line.split()[0] for line in listed[1 : 1 + len(names)]] == list(names)
        assert "_BREGNET_COMPLETE=bash_source" in text
        for command in names:
            said = run(command, "--help").output
            assert f"{command} [OPTIONS]" in said
            assert f"Examples:\n    bregnet {command}" in said

    def test_version(self):
        assert run("--version").output == f"bregnet, version {bregnet.__version__}\n"

    def test_completion(self):
        shell = {"_BREGNET_COMPLETE": "bash_complete", "COMP_WORDS": "bregnet cl", "COMP_CWORD": "1"}
        assert "cluster" in CliRunner().invoke(main, prog_name="bregnet", env=shell).output


class TestFit:
    @pytest.mark.parametrize("data", ["numbers.csv", "numbers.parquet", "numbers.npz", "X.npy"])
    def test_regression_from_all_kinds_of_files(self, folder, data):
        target = {"X.npy": "Y.npy"}.get(data, "y")
        result = run("fit", data, "--target", target, "-o", "model", *FEW)
        said = result.stderr
        assert said.startswith(f"fitting DCRegressor to {data}: 60 rows, 3 features (the target {target!r} holds float")
        fitted, expected = bregnet.load("model"), DCRegressor(**SAME).fit(X, Y)
        assert said.endswith("written to model\n")
        assert result.stdout.splitlines()[0] == fitted.result_.status
        np.testing.assert_allclose(fitted.function_(X), expected.function_(X), atol=1e-9)
        named = ["a", "b", "c"] if "numbers" in data and data != "numbers.npz" else None
        assert (fitted.feature_names_in_.tolist() if named else None) == named
        assert hasattr(fitted, "feature_names_in_") == (named is not None)

    @pytest.mark.parametrize(
        ("data", "target"), [("labels.csv", "kind"), ("numbers.npz", "kind"), ("X.npy", "labels.npy")]
    )
    def test_divergences_from_all_kinds_of_files(self, folder, data, target):
        run("fit", data, "--target", target, "-o", "model", *FEW)
        fitted, expected = bregnet.load("model"), PBDL(**SAME).fit(X, LABELS)
        assert fitted.classes_.tolist() == ["high", "low"]
        np.testing.assert_allclose(fitted.divergence_.pairwise(X), expected.divergence_.pairwise(X), atol=1e-9)

    def test_matrices_stay_in_their_files(self, folder, monkeypatch):
        given, fit = [], DCRegressor.fit
        monkeypatch.setattr(DCRegressor, "fit", lambda self, X, y: given.extend([X, y]) or fit(self, X, y))
        run("fit", "X.npy", "--target", "Y.npy", "-o", "model", *FEW)
        assert [type(each) for each in given] == [np.memmap, np.memmap]

    def test_y_is_the_default_target_of_archives(self, folder):
        run("fit", "numbers.npz", "-o", "model", *FEW)
        assert isinstance(bregnet.load("model"), DCRegressor)

    def test_options_reach_the_estimator(self, folder):
        options = "--alpha 0.05 --n-pieces all --temperature 0.2 --tol 0.3 --max-iter 300 --seed 7 --no-standardize"
        run("fit", "numbers.csv", "--target", "y", "--learner", "convex", "-o", "model", *options.split())
        fitted = bregnet.load("model")
        assert isinstance(fitted, ConvexRegressor)
        found = fitted.get_params()
        expected = ConvexRegressor(
            0.05, n_pieces=None, temperature=0.2, tol=0.3, max_iter=300, random_state=7, standardize=False
        )
        assert found == expected.get_params()
        run("fit", "labels.csv", "--target", "kind", "-o", "model", "--no-balanced", "--n-pieces", "auto", "--tol", 0.5)
        assert bregnet.load("model").get_params() == PBDL(balanced=False, tol=0.5, random_state=0).get_params()

    def test_a_checkpoint_is_for_one_run(self, folder, monkeypatch):
        seen, fit = [], DCRegressor.fit
        monkeypatch.setattr(DCRegressor, "fit", lambda self, X, y: seen.append(self.get_params()) or fit(self, X, y))
        (folder / "large").mkdir()
        options = ("--checkpoint", "kept", *FEW)
        for resume in ([], ["--resume"]):
            run("fit", "numbers.npz", "-o", "model", *options, *resume)
        kept = [Checkpoint(Path("kept"), resume=resume) for resume in (False, True)]
        assert [each["checkpoint"] for each in seen] == kept
        found = bregnet.load("model")
        assert found.checkpoint is None
        np.testing.assert_allclose(found.predict(X), DCRegressor(**SAME).fit(X, Y).predict(X), atol=1e-9)

    def test_whole_numbers_are_labels(self, folder):
        pd.DataFrame(X, columns=list("abc")).assign(kind=(LABELS == "low").astype(int)).to_csv("whole.csv", index=False)
        assert "fitting PBDL" in run("fit", "whole.csv", "--target", "kind", "-o", "model", *FEW).output
        said = run("fit", "whole.csv", "--target", "kind", "-o", "model", "--learner", "convex", *FEW).output
        assert said.startswith("fitting ConvexRegressor to whole.csv: 60 rows, 3 features\n")

    def test_a_fit_that_does_not_converge_is_written_with_a_warning(self, folder):
        result = run("fit", "numbers.csv", "--target", "y", "-o", "model", "--max-iter", 5, "--tol", 1e-6)
        fitted = bregnet.load("model")
        assert f"warning: DCRegressor {fitted.result_.status}; raise max_iter or tol\n" in result.stderr
        assert fitted.result_.status in result.stdout

    def test_quiet(self, folder):
        assert run("fit", "numbers.csv", "--target", "y", "-o", "model", "--quiet", *FEW).output == ""
        assert (folder / "model").is_file()


class TestColumns:
    def test_choice(self, folder):
        named = ("fit", "named.csv", "--target", "kind", "-o", "model", *FEW)
        run(*named, "--drop", "name")
        assert bregnet.load("model").feature_names_in_.tolist() == ["a", "b", "c"]
        run(*named, "--features", "c, a")
        assert bregnet.load("model").feature_names_in_.tolist() == ["c", "a"]
        run(*named, "--features", "c,a", "--drop", "a,name")
        assert bregnet.load("model").feature_names_in_.tolist() == ["c"]


class TestPairsAndTriplets:
    PAIRS = np.array([[0, 1, 1], [2, 3, 1], [0, 2, 0], [4, 9, 0], [5, 6, 1], [7, 30, 0]])
    TRIPLETS = np.array([[0, 1, 2], [3, 4, 5], [9, 8, 7]])

    @pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "npy"])
    def test_pairs(self, folder, kind):
        frame = pd.DataFrame(self.PAIRS, columns=["i", "j", "similar"])
        if kind == "csv":
            frame.assign(similar=frame.similar.astype(bool), note="x").to_csv("pairs.csv", index=False)
        elif kind == "parquet":
            frame.to_parquet("pairs.parquet")
        elif kind == "npz":
            np.savez("pairs.npz", i=self.PAIRS[:, 0], j=self.PAIRS[:, 1], similar=self.PAIRS[:, 2])
        else:
            np.save("pairs.npy", self.PAIRS)
        said = run("fit", "X.npy", "--pairs", f"pairs.{kind}", "-o", "model", *FEW).stderr
        assert said.startswith(f"fitting PBDL to X.npy: 60 rows, 3 features, pairs of pairs.{kind}\n")
        expected = PBDL(**SAME).fit_pairs(X, self.PAIRS[:, :2], self.PAIRS[:, 2] == 1)
        found = bregnet.load("model").divergence_
        np.testing.assert_allclose(found.pairwise(X), expected.divergence_.pairwise(X), atol=1e-9)

    def test_triplets(self, folder):
        frame = pd.DataFrame(self.TRIPLETS, columns=["anchor", "nearer", "farther"])
        frame[["farther", "anchor", "nearer"]].to_csv("triplets.csv", index=False)
        run("fit", "labels.csv", "--drop", "kind", "--triplets", "triplets.csv", "-o", "model", *FEW)
        fitted, expected = bregnet.load("model"), PBDL(**SAME).fit_triplets(X, self.TRIPLETS)
        assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
        np.testing.assert_allclose(fitted.divergence_.pairwise(X), expected.divergence_.pairwise(X), atol=1e-9)

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([[0, 1, 1], [2, 3, 4]], "pairs.npy: 'similar' must hold 0 and 1, got 4"),
            ([[0, 1.5, 1]], "pairs.npy: 'j' must hold whole numbers, got 1.5"),
            ([[0, np.nan, 1]], "pairs.npy: 'j' must hold whole numbers, got nan"),
            ([[0, 60, 1]], "pairs must hold row numbers of X from 0 to 59, got 60"),
            ([[0, 1]], "pairs.npy must have the columns i, j, similar, got shape (1, 2)"),
        ],
    )
    def test_faults(self, folder, rows, message):
        np.save("pairs.npy", np.array(rows))
        assert message in error_of("fit", "X.npy", "--pairs", "pairs.npy", "-o", "model")
        assert not (folder / "model").exists()

    def test_faults_of_tables(self, folder):
        (folder / "pairs.csv").write_text("i,j,similar\n0,1,yes\n")
        fit = ("fit", "X.npy", "-o", "model")
        assert "'similar' must hold whole numbers, got 'yes'" in error_of(*fit, "--pairs", "pairs.csv")
        assert "must have the column 'anchor', got 'i', 'j'" in error_of(*fit, "--triplets", "pairs.csv")

    @pytest.mark.parametrize("option", [["--cv", "3"], ["--report", "x.html"], ["--holdout", "0.2"]])
    def test_usage(self, folder, option):
        fit = ("fit", "X.npy", "--pairs", "none.npy", "-o", "model")
        assert f"{option[0]} needs --target, got --pairs" in error_of(*fit, *option, code=2)
        assert "the learner dc needs --target, got --pairs" in error_of(*fit, "--learner", "dc", code=2)


class TestSearchForAlpha:
    @pytest.fixture(autouse=True)
    def a_small_grid(self, monkeypatch):
        for search in (PBDLCV, ConvexRegressorCV):
            monkeypatch.setattr(search, "_alphas", (0.1,))

    def test_divergences(self, folder):
        options = ("--cv", 3, "--n-pieces", 6, "--temperature", 0.1, "--seed", 4)
        said = run("fit", "labels.csv", "--target", "kind", "-o", "model", *options).stdout
        folds = StratifiedKFold(3, shuffle=True, random_state=4)
        expected = PBDLCV(cv=folds, n_pieces=6, temperatures=(0.1,), random_state=4).fit(X, LABELS)
        fitted = bregnet.load("model")
        assert (fitted.alpha_, fitted.best_score_) == (expected.alpha_, expected.best_score_)
        assert f"chosen: alpha {fitted.alpha_:.4g}, temperature 0.1" in said
        assert f"(score {fitted.best_score_:.4g} in 3 folds)" in said
        np.testing.assert_allclose(fitted.divergence_.pairwise(X), expected.divergence_.pairwise(X), atol=1e-9)

    def test_regression(self, folder):
        options = ("--search-alpha", "--learner", "convex", "--n-pieces", 6)
        run("fit", "numbers.npz", "-o", "model", *options)
        folds = KFold(5, shuffle=True, random_state=0)
        expected = ConvexRegressorCV(cv=folds, n_pieces=6, random_state=0).fit(X, Y)
        fitted = bregnet.load("model")
        assert (fitted.alpha_, fitted.n_splits_) == (expected.alpha_, 5)
        np.testing.assert_allclose(fitted.predict(X), expected.predict(X), atol=1e-9)


class TestHoldout:
    def test_divergence(self, folder):
        options = ("--holdout", 0.25, "--seed", 3, "--report", "fit.html", *FEW)
        result = run("fit", "labels.csv", "--target", "kind", "-o", "model", *options)
        head, euclid, learned = result.stdout.splitlines()[-3:]
        assert head.split()[:3] == ["15", "held", "out"]
        assert (euclid.split()[0], learned.split()[0]) == ("Euclid", "PBDL")
        fitted = bregnet.load("model")
        assert 0 <= float(learned.split()[1]) <= 1
        page = (folder / "fit.html").read_text()
        assert "held-out rows of labels.csv" in page
        assert fitted.result_.status in page
        assert "report written to fit.html" in result.stderr

    def test_regression(self, folder):
        result = run("fit", "numbers.csv", "--target", "y", "-o", "model", "--holdout", 0.5, *FEW)
        row = result.stdout.splitlines()[-1].split()
        fitted = bregnet.load("model")
        kept = np.sort(train_test_split(np.arange(60), test_size=0.5, random_state=0)[1])
        frame = pd.read_csv("numbers.csv").loc[kept]
        assert row[:2] == ["DCRegressor", f"{fitted.score(frame[['a', 'b', 'c']], frame['y']):.3f}"]

    def test_a_report_of_the_rows_of_the_fit_says_so(self, folder):
        result = run("fit", "numbers.csv", "--target", "y", "-o", "model", "--report", "fit.html", *FEW)
        assert "the report shows the rows of the fit; --holdout 0.2 would show new ones" in result.stderr
        assert "on the rows it was fitted to, numbers.csv" in (folder / "fit.html").read_text()

    def test_where_to_write_is_looked_at_first(self, folder, monkeypatch):
        monkeypatch.setattr(DCRegressor, "fit", None)
        said = error_of("fit", "numbers.npz", "-o", "model", "--report", "no/fit.html")
        assert said == "error: --report must lie in a folder that exists, got no/fit.html"


class TestRanks:
    @pytest.fixture
    def ranks(self, monkeypatch):
        """Makes this process one of two."""

        def join(rank):
            @contextmanager
            def joined():
                yield SimpleNamespace(rank=rank, size=2)

            monkeypatch.setattr("bregnet.cli.fit.joined", joined)

        return join

    @pytest.mark.parametrize(("rank", "writes"), [(0, True), (1, False)])
    def test_only_the_first_speaks_and_writes(self, folder, ranks, rank, writes):
        ranks(rank)
        result = run("fit", "numbers.csv", "--target", "y", "-o", "model", "--max-iter", 5, "--tol", 1e-6)
        assert bool(result.stdout) == bool(result.stderr) == (folder / "model").is_file() == writes

    def test_a_lost_rank(self, folder, ranks, monkeypatch):
        def fit(*_):
            raise RankLostError("rank 1 of 2 does not answer")

        ranks(0)
        monkeypatch.setattr(DCRegressor, "fit", fit)
        result = run("fit", "numbers.csv", "--target", "y", "-o", "model", code=3)
        assert result.stderr.splitlines()[1:] == ["error: rank 1 of 2 does not answer"]
        assert not (folder / "model").exists()

    def test_others_say_who_they_are(self, folder, ranks, monkeypatch):
        ranks(1)
        monkeypatch.setenv("RANK", "1")
        result = run("fit", "none.csv", "--target", "y", "-o", "model", code=1)
        assert result.stderr == "error (rank 1): no such file: none.csv\n"

    def test_alpha_is_searched_for_by_one(self, folder, ranks):
        ranks(0)
        said = error_of("fit", "numbers.npz", "-o", "model", "--cv", 3, code=2)
        assert said == "Error: alpha is searched for by one process, got several that share the points"

    @pytest.mark.slow
    def test_two_processes(self, folder):
        command = ["fit", "numbers.npz", "-o", "model", "--n-pieces", "6", "--tol", "0.01"]
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        done = subprocess.run([*launch, "-m", "bregnet", *command], capture_output=True, text=True, check=True)
        assert done.stderr.count("fitting DCRegressor") == done.stderr.count("written to model") == 1
        expected = DCRegressor(**{**SAME, "tol": 0.01}).fit(X, Y)
        assert bregnet.load("model").result_.objective == pytest.approx(expected.result_.objective, rel=0.01)


class TestBadData:
    @pytest.fixture(autouse=True)
    def nothing_is_left(self, folder):
        """A fit that fails leaves the model that was there, and nothing beside it."""
        (folder / "model").write_text("mine")
        yield
        assert (folder / "model").read_text() == "mine"
        assert [each.name for each in folder.iterdir() if each.name.startswith(".")] == []

    def fit(self, data="numbers.csv", target="y", output="model", *more, code=1):
        return error_of("fit", data, "--target", target, "-o", output, *more, code=code)

    def test_files(self, folder):
        assert self.fit("none.csv") == "error: no such file: none.csv"
        assert self.fit("X.npy", "none.npy") == "error: no such file: none.npy"
        for name in ("bad.parquet", "bad.npz", "bad.npy", "bad.csv"):
            (folder / name).write_bytes(b"\x89\xff\x00\x01")
            assert name in self.fit(name, "Y.npy" if name == "bad.npy" else "y")
        (folder / "empty.csv").write_text("a,y\n")
        assert "must have at least one row" in self.fit("empty.csv")

    def test_pickles_are_not_opened(self, folder):
        np.savez("objects.npz", X=X, y=LABELS.astype(object))
        assert "does not hold plain arrays" in self.fit("objects.npz")
        np.save("objects.npy", LABELS.astype(object))
        assert "does not hold a plain array" in self.fit("X.npy", "objects.npy")

    def test_targets(self, folder):
        assert self.fit(target="z") == "error: numbers.csv must have the column 'z', got 'a', 'b', 'c', 'y'"
        assert self.fit("numbers.npz", "z") == "error: numbers.npz must hold an array 'z', got 'X', 'y', 'kind'"
        assert "needs a target of numbers, but 'kind' holds labels" in self.fit(
            "labels.csv", "kind", "model", "--learner", "dc"
        )
        assert "Unknown label type" in self.fit("numbers.csv", "y", "model", "--learner", "pbdl")
        assert "must have one dimension, got shape (60, 3)" in self.fit("X.npy", "X.npy")
        np.save("short.npy", Y[:-1])
        assert "must have a value for each of the 60 rows of X.npy, got 59" in self.fit("X.npy", "short.npy")

    def test_missing_values(self, folder):
        frame = pd.read_csv("numbers.csv")
        frame.loc[[4, 9], "b"] = np.nan
        frame.to_csv("missing.csv", index=False)
        said = "features must hold numbers, but 'b' has no value in 2 rows, the first of which is row 4 (line 6)"
        advice = "; --impute median fills gaps, or leave out with --drop b"
        assert self.fit("missing.csv") == f"error: missing.csv: {said}{advice}"
        said = "column 'b' must have a value in every row, got none in 2 of them, the first of which is row 4 (line 6)"
        assert self.fit("missing.csv", "b") == f"error: missing.csv: {said}"
        np.savez("missing.npz", X=frame[["a", "b"]].to_numpy(), y=Y)
        assert self.fit("missing.npz") == "error: Input X contains NaN."

    def test_features(self, folder):
        said = "error: named.csv: features must hold numbers, but 'kind', 'name' hold text ('high' in row 0 (line 2))"
        advice = (
            "; --id name takes names of rows, --one-hot auto encodes categories, or leave out with --drop kind,name"
        )
        found = self.fit("named.csv", "a")
        assert found.startswith(said)
        assert found.endswith(advice)
        said = "error: labels.csv must have the column 'd', got 'a', 'b', 'c'"
        assert self.fit("labels.csv", "kind", "model", "--drop", "a,d") == said
        np.savez("flat.npz", X=Y, y=Y)
        assert "X must be a matrix of numbers, got shape (60,)" in self.fit("flat.npz")
        pd.DataFrame({"y": Y}).to_csv("alone.csv", index=False)
        assert "must have a feature beside the target" in self.fit("alone.csv")

    def test_outputs_are_looked_at_before_the_fit(self, folder, monkeypatch):
        monkeypatch.setattr(DCRegressor, "fit", None)
        assert "must lie in a folder that exists" in self.fit(output="no/model")
        assert "must be a file" in self.fit(output=".")

    def test_a_fit_that_cannot_be_written(self, folder, monkeypatch):
        def fail(*_):
            raise OSError(28, "No space left on device", "model")

        monkeypatch.setattr("os.replace", fail)
        assert "model" in (said := self.fit("numbers.csv", "y", "model", "--quiet", *FEW))
        assert said.startswith("error: ")
        assert said.endswith("No space left on device")

    def test_without_optional_packages(self, folder, monkeypatch):
        def missing(*_, **__):
            raise ImportError("pyarrow")

        monkeypatch.setattr(pd, "read_parquet", missing)
        assert "needs the package pyarrow: pip install 'bregnet[tables]'" in self.fit("numbers.parquet")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--learner", "forest"], "'forest' is not one of 'pbdl', 'convex', 'dc'"),
            (["--alpha", "0"], "0.0 is not in the range x>0"),
            (["--n-pieces", "many"], "'many' is not 'auto', 'all' or a positive number"),
            (["--n-pieces", "0"], "'0' is not 'auto', 'all' or a positive number"),
            (["--balanced"], "--balanced is for the learner pbdl, not for dc"),
            (["--feature-map", "rbf"], "--feature-map is for the learner pbdl, not for dc"),
            (["--resume"], "--resume needs --checkpoint"),
            (["--pairs", "pairs.csv"], "only one of --target, --pairs and --triplets can be learned from"),
            (["--cv", "3", "--alpha", "0.1"], "--alpha is for one fit, not for --search-alpha or --cv"),
            (["--search-alpha", "--checkpoint", "kept"], "--checkpoint is for one fit"),
            (["--jobs", "2"], "--jobs is for --search-alpha or --cv"),
            (["--holdout", "1"], "1.0 is not in the range 0<x<1"),
            (["--colour"], "No such option"),
        ],
    )
    def test_usage(self, arguments, message):
        assert message in self.fit("numbers.csv", "y", "model", *arguments, code=2)

    def test_usage_of_files(self):
        assert "--target must name a column of numbers.csv" in error_of("fit", "numbers.csv", "-o", "model", code=2)
        assert "--target must be a .npy file" in error_of("fit", "X.npy", "-o", "model", code=2)
        assert "must be .npy files beside X.npy" in error_of("fit", "X.npy", "--target", "y", "-o", "model", code=2)
        chosen = ("fit", "X.npy", "--target", "Y.npy", "-o", "model", "--drop", "a")
        assert "--features and --drop are for tables" in error_of(*chosen, code=2)
        assert "DATA must end in .csv" in error_of("fit", "numbers.doc", "-o", "model", code=2)
        assert "Missing option '-o'" in error_of("fit", "numbers.npz", code=2)


class TestWords:
    """Labels and ids of a CSV file are what is written there."""

    def test_codes_are_not_numbers(self, tmp_path):
        codes = np.repeat(["01", "1", "2"], 20)
        pd.DataFrame(X, columns=list("abc")).assign(code=codes).to_csv(tmp_path / "codes.csv", index=False)
        run("fit", tmp_path / "codes.csv", "--target", "code", "-o", tmp_path / "model", *FEW)
        assert bregnet.load(tmp_path / "model").classes_.tolist() == ["01", "1", "2"]

    def test_words_for_nothing_are_words(self, tmp_path):
        words = np.where(X[:, 0] > 0, "None", "NA")
        pd.DataFrame(X, columns=list("abc")).assign(word=words).to_csv(tmp_path / "words.csv", index=False)
        run("fit", tmp_path / "words.csv", "--target", "word", "-o", tmp_path / "model", *FEW)
        assert bregnet.load(tmp_path / "model").classes_.tolist() == ["NA", "None"]
        found = run("search", tmp_path / "model", tmp_path / "words.csv", "--id", "word", "-k", "1").stdout
        assert set(pd.read_csv(StringIO(found), keep_default_na=False)["id"]) <= {"None", "NA"}

    def test_numbers_of_rows_are_no_feature(self, tmp_path):
        pd.DataFrame(X, columns=list("abc")).assign(label=LABELS).to_csv(tmp_path / "rows.csv")
        said = run("fit", tmp_path / "rows.csv", "--target", "label", "-o", tmp_path / "model", *FEW).stderr
        assert "numbers the rows: it is left out" in said
        assert bregnet.load(tmp_path / "model").feature_names_in_.tolist() == ["a", "b", "c"]


class TestOutputs:
    def test_each_is_a_file_of_its_own(self, folder):
        same = ("-o", folder / "both", "--report", folder / "both")
        assert "file of its own" in error_of("fit", folder / "labels.csv", "--target", "kind", *same, code=2)
        assert not (folder / "both").exists()

    def test_models_do_not_go_to_the_standard_output(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        assert "only rows" in error_of("fit", folder / "labels.csv", "--target", "kind", "-o", "-", code=2)
        assert not (folder / "-").exists()

    def test_pipes_are_not_replaced(self, folder):
        os.mkfifo(folder / "pipe")
        assert "a device or a pipe" in error_of("fit", folder / "labels.csv", "--target", "kind", "-o", folder / "pipe")
        assert (folder / "pipe").is_fifo()

    def test_a_private_file_stays_private(self, folder):
        (folder / "model").touch(mode=0o600)
        run("fit", folder / "labels.csv", "--target", "kind", "-o", folder / "model", *FEW)
        assert (folder / "model").stat().st_mode & 0o777 == 0o600

    def test_debug_may_stand_anywhere(self, folder):
        result = CliRunner().invoke(main, ["info", str(folder / "none"), "--debug"])
        assert isinstance(result.exception, FileNotFoundError | ValueError)

    def test_held_out_scores_are_a_result(self, folder):
        options = ("--target", "kind", "-o", folder / "model", "--holdout", "0.3", "--quiet", *FEW)
        assert "mAP" in run("fit", folder / "labels.csv", *options).stdout

    def test_a_divergence_of_nothing_is_told(self, folder):
        options = ("--target", "kind", "-o", folder / "model", "--alpha", "1e6")
        assert "PBDL learned nothing" in run("fit", folder / "labels.csv", *options).stderr
