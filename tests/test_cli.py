import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import bregnet
from bregnet import PBDL, ConvexRegressor, DCRegressor
from bregnet.checkpoints import Checkpoint
from bregnet.cli import main
from bregnet.distributed import RankLostError

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 3))
Y = X[:, 0] ** 2 - np.abs(X[:, 1]) + 0.1 * RNG.standard_normal(60)
LABELS = np.where(X[:, 0] > 0, "high", "low")
FEW = ("--n-pieces", "6", "--tol", "0.1")
SAME = {"n_pieces": 6, "tol": 0.1, "random_state": 0}


def run(*arguments, code=0):
    """The command, which must end with an exit code; no error but those of the command line may leave it."""
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def error_of(*arguments, code=1):
    """What a command says that must fail, and in one line."""
    result = run(*arguments, code=code)
    lines = result.stderr.splitlines()
    if code != 2:
        assert len(lines) == 1
        assert lines[0].startswith("error: ")
    return lines[-1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of data, the current one."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.assign(y=Y).to_csv("numbers.csv", index=False)
    frame.assign(y=Y).to_parquet("numbers.parquet")
    frame.assign(kind=LABELS).to_csv("labels.csv", index=False)
    np.savez("numbers.npz", X=X, y=Y, kind=LABELS)
    np.save("X.npy", X)
    np.save("Y.npy", Y)
    np.save("labels.npy", LABELS)
    return tmp_path


@pytest.fixture
def model(folder):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = DCRegressor(**SAME).fit(frame, Y)
    bregnet.save(fitted, "model")
    return fitted


class TestEntryPoints:
    def test_module(self, folder):
        done = subprocess.run(
            [sys.executable, "-m", "bregnet", "fit", "labels.csv", "--target", "kind", "-o", "model", *FEW],
            capture_output=True,
            text=True,
            check=True,
        )
        first, *others = done.stdout.splitlines()
        assert first == "fitting PBDL to labels.csv: 60 rows, 3 features, 2 classes (the target 'kind' holds labels)"
        fitted = bregnet.load("model")
        assert others[0] == fitted.result_.status
        assert others[-1] == "written to model"
        assert done.stderr == ""  # no progress bar but on a terminal

    def test_errors_have_no_traceback(self, folder):
        command = [sys.executable, "-m", "bregnet"]
        fit = ["fit", "labels.csv", "--target", "sort", "-o", "model"]
        done = subprocess.run([*command, *fit], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "error: labels.csv must have the column 'sort', got 'a', 'b', 'c', 'kind'\n"
        done = subprocess.run([*command, "--debug", *fit], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "Traceback" in done.stderr

    def test_help(self):
        text = run("--help").output
        assert all(command in text for command in ("fit", "predict", "info"))
        for command in ("fit", "predict", "info"):
            assert f"{command} [OPTIONS]" in run(command, "--help").output

    def test_version(self):
        assert run("--version").output == f"bregnet, version {bregnet.__version__}\n"


class TestFit:
    @pytest.mark.parametrize("data", ["numbers.csv", "numbers.parquet", "numbers.npz", "X.npy"])
    def test_regression_from_all_kinds_of_files(self, folder, data):
        target = {"X.npy": "Y.npy"}.get(data, "y")
        said = run("fit", data, "--target", target, "-o", "model", *FEW).stdout
        assert said.startswith(f"fitting DCRegressor to {data}: 60 rows, 3 features (the target {target!r} holds float")
        fitted, expected = bregnet.load("model"), DCRegressor(**SAME).fit(X, Y)
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

    def test_checkpoint_and_scratch_are_for_one_run(self, folder, monkeypatch):
        seen, fit = [], DCRegressor.fit
        monkeypatch.setattr(DCRegressor, "fit", lambda self, X, y: seen.append(self.get_params()) or fit(self, X, y))
        (folder / "large").mkdir()
        options = ("--checkpoint", "kept", "--scratch", "large", *FEW)
        for resume in ([], ["--resume"]):
            run("fit", "numbers.npz", "-o", "model", *options, *resume)
        kept = [Checkpoint(Path("kept"), resume=resume) for resume in (False, True)]
        assert [each["checkpoint"] for each in seen] == kept
        assert [each["scratch"] for each in seen] == [Path("large")] * 2
        found = bregnet.load("model")
        assert (found.checkpoint, found.scratch) == (None, None)
        np.testing.assert_allclose(found.predict(X), DCRegressor(**SAME).fit(X, Y).predict(X), atol=1e-9)

    def test_whole_numbers_are_labels(self, folder):
        pd.DataFrame(X, columns=list("abc")).assign(kind=(LABELS == "low").astype(int)).to_csv("whole.csv", index=False)
        assert "fitting PBDL" in run("fit", "whole.csv", "--target", "kind", "-o", "model", *FEW).output
        said = run("fit", "whole.csv", "--target", "kind", "-o", "model", "--learner", "convex", *FEW).output
        assert said.startswith("fitting ConvexRegressor to whole.csv: 60 rows, 3 features\n")

    def test_a_fit_that_does_not_converge_is_written_with_a_warning(self, folder):
        result = run("fit", "numbers.csv", "--target", "y", "-o", "model", "--max-iter", 5, "--tol", 1e-6)
        fitted = bregnet.load("model")
        assert result.stderr == f"warning: DCRegressor {fitted.result_.status}; raise max_iter or tol\n"
        assert fitted.result_.status in result.stdout

    def test_quiet(self, folder):
        assert run("fit", "numbers.csv", "--target", "y", "-o", "model", "--quiet", *FEW).output == ""
        assert (folder / "model").is_file()


class TestRanks:
    @pytest.fixture
    def ranks(self, monkeypatch):
        """Makes this process one of two."""

        def join(rank):
            @contextmanager
            def joined():
                yield SimpleNamespace(rank=rank, size=2)

            monkeypatch.setattr("bregnet.cli._fit.joined", joined)

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
        assert result.stderr == "error: rank 1 of 2 does not answer\n"
        assert not (folder / "model").exists()

    def test_others_say_who_they_are(self, folder, ranks, monkeypatch):
        ranks(1)
        monkeypatch.setenv("RANK", "1")
        result = run("fit", "none.csv", "--target", "y", "-o", "model", code=1)
        assert result.stderr == "error (rank 1): no such file: none.csv\n"

    def test_two_processes(self, folder):
        command = ["fit", "numbers.npz", "-o", "model", "--n-pieces", "6", "--tol", "0.01"]
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        done = subprocess.run([*launch, "-m", "bregnet", *command], capture_output=True, text=True, check=True)
        assert done.stdout.count("fitting DCRegressor") == done.stdout.count("written to model") == 1
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
        assert "inconsistent numbers of samples" in self.fit("X.npy", "short.npy")

    def test_missing_values(self, folder):
        frame = pd.read_csv("numbers.csv")
        frame.loc[[4, 9], "b"] = np.nan
        frame.to_csv("missing.csv", index=False)
        said = "column 'b' must have a number in every row, got none in 2 of them, the first of which is row 5"
        assert self.fit("missing.csv") == f"error: missing.csv: {said}"
        assert "column 'b' must have a value in every row" in self.fit("missing.csv", "b")
        np.savez("missing.npz", X=frame[["a", "b"]].to_numpy(), y=Y)
        assert self.fit("missing.npz") == "error: Input X contains NaN."

    def test_features(self, folder):
        assert "column 'kind' must hold numbers, got '" in self.fit("labels.csv", "a")
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
        assert self.fit("numbers.csv", "y", "model", "--quiet", *FEW) == "error: model: No space left on device"

    @pytest.mark.parametrize("module", ["pandas", "pyarrow"])
    def test_without_optional_packages(self, folder, monkeypatch, module):
        def missing(*_, **__):
            raise ImportError(module)

        if module == "pandas":
            monkeypatch.setitem(sys.modules, "pandas", None)
        else:
            monkeypatch.setattr(pd, "read_parquet", missing)
        assert f"needs {module}: pip install {module}" in self.fit("numbers.parquet")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--learner", "forest"], "'forest' is not one of 'pbdl', 'convex', 'dc'"),
            (["--alpha", "0"], "0.0 is not in the range x>0"),
            (["--n-pieces", "many"], "'many' is not 'auto', 'all' or a positive number"),
            (["--n-pieces", "0"], "'0' is not 'auto', 'all' or a positive number"),
            (["--balanced"], "--balanced is for the learner pbdl, not for dc"),
            (["--resume"], "--resume needs --checkpoint"),
            (["--colour"], "No such option"),
        ],
    )
    def test_usage(self, arguments, message):
        assert message in self.fit("numbers.csv", "y", "model", *arguments, code=2)

    def test_usage_of_files(self):
        assert "--target must name a column of numbers.csv" in error_of("fit", "numbers.csv", "-o", "model", code=2)
        assert "--target must be a .npy file" in error_of("fit", "X.npy", "-o", "model", code=2)
        assert "DATA must end in .csv" in error_of("fit", "numbers.txt", "-o", "model", code=2)
        assert "Missing option '-o'" in error_of("fit", "numbers.npz", code=2)


class TestPredict:
    def test_values(self, model, folder):
        said = run("predict", "model", "numbers.csv", "-o", "out.csv").stdout
        assert said == "60 predictions written to out.csv\n"
        expected = model.function_(X)
        first, *others = (folder / "out.csv").read_text().splitlines()
        assert first == "prediction"
        np.testing.assert_array_equal([float(each) for each in others], expected)
        run("predict", "model", "X.npy", "-o", "out.npy")
        np.testing.assert_array_equal(np.load("out.npy"), expected)
        run("predict", "model", "numbers.npz", "-o", "out.npy")
        np.testing.assert_array_equal(np.load("out.npy"), expected)

    def test_columns_are_found_by_name(self, model):
        pd.read_csv("numbers.csv")[["c", "y", "b", "a"]].to_csv("mixed.csv", index=False)
        run("predict", "model", "mixed.csv", "-o", "out.npy")
        np.testing.assert_array_equal(np.load("out.npy"), model.function_(X))

    def test_a_model_without_names(self, folder):
        bregnet.save(ConvexRegressor(**SAME).fit(X, Y), "model")
        pd.DataFrame(X).to_csv("plain.csv", index=False)
        run("predict", "model", "plain.csv", "-o", "out.npy")
        np.testing.assert_array_equal(np.load("out.npy"), bregnet.load("model").predict(X))
        assert "must have the 3 features of the model, got 4" in error_of(
            "predict", "model", "numbers.csv", "-o", "out.npy"
        )

    def test_errors(self, model, folder):
        pd.DataFrame(X[:, :2], columns=["a", "d"]).to_csv("other.csv", index=False)
        said = "error: other.csv must have the columns of the model, got none named 'b', 'c'"
        assert error_of("predict", "model", "other.csv", "-o", "out.csv") == said
        np.save("narrow.npy", X[:, :2])
        assert "3 features of the model, got 2" in error_of("predict", "model", "narrow.npy", "-o", "out.csv")
        np.save("nan.npy", X * np.nan)
        assert error_of("predict", "model", "nan.npy", "-o", "out.csv") == "error: Input X contains NaN."
        assert "none" in error_of("predict", "none", "X.npy", "-o", "out.csv")
        assert "is not a model of bregnet" in error_of("predict", "X.npy", "X.npy", "-o", "out.csv")
        bregnet.save(PBDL(**SAME).fit(X, LABELS), "learner")
        said = "error: predict needs a regression model, got learner, which holds a PBDL"
        assert error_of("predict", "learner", "X.npy", "-o", "out.csv") == said
        assert "--output must end in .csv or .npy" in error_of("predict", "model", "X.npy", "-o", "out.txt", code=2)
        assert not list(folder.glob("out*"))


class TestInfo:
    def test_text(self, model):
        lines = run("info", "model").stdout.splitlines()
        found = {line[:15].strip(): line[15:] for line in lines}
        assert found == {
            "kind": "DCRegressor",
            "generator": repr(model.function_),
            "features": "3",
            "feature names": "a, b, c",
            "pieces": "12",
            "alpha": "0.01",
            "gap": f"{model.gap_:.6g}",
            "status": model.result_.status,
            "written by": f"bregnet {bregnet.__version__}",
            "format": "1",
        }

    def test_json(self, folder):
        fitted = PBDL(**SAME, companion=bregnet.SquaredEuclidean()).fit(X, LABELS)
        fitted.threshold_ = np.inf
        bregnet.save(fitted, "model")
        found = json.loads(run("info", "model", "--json").stdout)
        assert found["kind"] == "PBDL"
        assert found["generator"] == repr(fitted.divergence_.generator)
        assert found["pieces"] == fitted.function_.n_pieces
        assert found["classes"] == ["high", "low"]
        assert found["threshold"] == "inf"
        assert found["gap"] == fitted.gap_

    def test_generators(self, folder):
        bregnet.save(bregnet.divergence("kl"), "model")
        found = json.loads(run("info", "model", "--json").stdout)
        assert found == {
            "kind": "BregmanDivergence",
            "generator": "KullbackLeibler()",
            "written_by": f"bregnet {bregnet.__version__}",
            "format": 1,
        }

    def test_errors(self, folder):
        assert "No such file" in error_of("info", "none")
        assert "is not a model of bregnet" in error_of("info", "X.npy")
        assert "is a folder" in error_of("info", ".")
