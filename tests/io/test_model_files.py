"""Model files that earlier versions wrote, and files with something wrong in them."""

import json
import os
import pickle
import random
import resource
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import bregnet
from bregnet import BregmanIndex, Generator, KullbackLeibler, UnreadableFileError
from bregnet.io.kinds import KINDS
from bregnet.retrieval.inner_product import InnerProductForm
from tests.support import make_model_files
from tests.support.make_model_files import EXPECTED, FOLDER, LABELS, QUERIES, RELEASE, ROWS, TABLE, TARGETS, answers
from tests.support.mutations import Parts, mutated
from tests.support.selecting import some_slow
from tests.support.threads import in_threads

FILES = sorted(FOLDER.glob("*/*.bregnet"))
WHOLE = {path: path.read_bytes() for path in FILES}
MUTANTS, CHUNKS = 10_000, 10
TABULAR = (Pipeline, ColumnTransformer)
SAID = ("must", "overflow", "unique", "surrogates", "columns are missing", "unknown categories", "Cannot use")
METHODS = ("predict", "predict_proba", "transform", "score_samples", "kneighbors", "rank", "pair_distance", "score")


def name_of(path):
    return f"{path.parent.name}/{path.stem}"


class TestKeptFiles:
    def test_every_kind_has_one(self):
        kept = {type(bregnet.load(path)) for path in FILES}
        assert {kind for kind in kept if not issubclass(kind, Generator)} == {*KINDS, StandardScaler}
        assert all(path.stem.split("-")[0] == type(bregnet.load(path)).__name__ for path in FILES)

    def test_every_kind_of_this_version_has_one(self):
        kept = {path.stem.split("-")[0] for path in FILES if path.parent.name == RELEASE}
        assert kept >= {kind.__name__ for kind in KINDS}

    @pytest.mark.parametrize("path", FILES, ids=name_of)
    def test_answers_are_those_of_then(self, path):
        expected = json.loads((path.parent / EXPECTED).read_text())[path.stem]
        found = answers(bregnet.load(path))
        assert found.keys() == expected.keys()
        for method, answer in found.items():
            wanted = np.array(expected[method])
            if wanted.dtype.kind == "f":  # another machine rounds otherwise
                exact = (
                    1e-12 if np.asarray(answer).dtype == np.float64 and "InnerProductForm" not in path.stem else 1e-5
                )
                np.testing.assert_allclose(answer, wanted, rtol=exact, atol=exact)
            else:
                np.testing.assert_array_equal(answer, wanted)

    @pytest.mark.parametrize("path", FILES, ids=name_of)
    def test_what_was_read_can_be_saved_again(self, tmp_path, path):
        model = bregnet.load(path)
        bregnet.save(model, tmp_path / "saved")
        found = bregnet.load(tmp_path / "saved")
        assert repr(found) == repr(model)
        expected = answers(model)
        for each in (found, pickle.loads(pickle.dumps(model))):
            answered = answers(each)
            assert answered.keys() == expected.keys()
            for method, answer in answered.items():
                if each is found:
                    np.testing.assert_array_equal(answer, expected[method])
                elif np.asarray(answer).dtype.kind == "f":  # an index in a pickle is made anew
                    np.testing.assert_allclose(answer, expected[method], rtol=1e-6, atol=1e-6)
        if isinstance(model, BaseEstimator):
            assert repr(clone(found).get_params()) == repr(model.get_params())

    @pytest.mark.parametrize("mmap", [False, True])
    @pytest.mark.parametrize("path", sorted(FOLDER.parent.glob(f"indexes/{RELEASE}/*")), ids=lambda path: path.name)
    def test_folders_of_indexes_answer_as_their_files(self, path, mmap):
        told = answers(bregnet.BregmanIndex.load(path, mmap=mmap))
        expected = answers(bregnet.load(FOLDER / RELEASE / f"{path.name}.bregnet"))
        assert told.keys() == expected.keys()
        for method, answer in told.items():
            np.testing.assert_array_equal(answer, expected[method])

    @pytest.mark.parametrize("path", FILES, ids=name_of)
    def test_feature_names_are_checked(self, path):
        model = bregnet.load(path)
        if not hasattr(model, "feature_names_in_") or isinstance(model, TABULAR):
            return
        import pandas as pd

        frame = pd.DataFrame(ROWS, columns=model.feature_names_in_)
        others = (frame[frame.columns[::-1]], frame.rename(columns={"width": "depth"}))
        asked = [method for method in METHODS if hasattr(model, method)]
        assert asked
        for method in asked:
            for other in others:
                with pytest.raises(ValueError, match="feature names should match"):
                    use(model, method, other)

    @pytest.mark.slow
    def test_the_script_writes_files_of_these_names(self, tmp_path, monkeypatch):
        monkeypatch.setattr(make_model_files, "FOLDER", tmp_path / "models")
        make_model_files.main()
        folder = tmp_path / "models" / RELEASE
        expected = json.loads((folder / EXPECTED).read_text())
        assert {path.stem for path in folder.glob("*.bregnet")} == expected.keys()
        assert expected.keys() == {path.stem for path in FILES if path.parent.name == RELEASE}
        before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.bregnet")}
        make_model_files.main()
        assert {path.name: path.stat().st_mtime_ns for path in folder.glob("*.bregnet")} == before


def use(model, method, points):
    """One answer of a fitted estimator."""
    asked = getattr(model, method)
    if method == "pair_distance":
        return asked(points, points)
    if method == "score":
        classes = hasattr(model, "classes_")
        several = getattr(model, "_targets", TARGETS).ndim == 2
        targets = LABELS if classes else np.column_stack([TARGETS, TARGETS]) if several else TARGETS
        return asked(points, targets[: len(points)])
    return asked(points)


def works(model, rng):
    """Use an object that was read from a file that is not as it was written; it may say that its numbers overflow."""
    n_features = len(model.lift.centre) if isinstance(model, InnerProductForm) else None
    n_features = n_features or getattr(model, "n_features_in_", None) or getattr(model, "n_features", None) or 2
    points = TABLE[:1] if isinstance(model, TABULAR) else QUERIES[:1, [0] * n_features]
    estimator = isinstance(model, BaseEstimator)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        problem = None
        try:
            if isinstance(model, Pipeline):
                answers(model)
            elif estimator:
                use(model, rng.choice([each for each in METHODS[:-1] if hasattr(model, each)]), points)
            else:
                answers(model, points)
        except ValueError as error:
            problem = str(error)
        assert problem is None or any(word in problem for word in SAID)
        if rng.random() < 0.2:
            repr(clone(model) if estimator else model)


class TestMutants:
    @pytest.mark.parametrize("chunk", some_slow(range(CHUNKS), always=(0, 1, 2)))
    def test_are_refused_or_work(self, tmp_path, chunk):
        path, n_read, n_refused = tmp_path / "mutant", 0, 0
        for seed in range(chunk, MUTANTS, CHUNKS):
            rng = random.Random(-1 - seed)
            path.write_bytes(mutated(WHOLE[rng.choice(FILES)], WHOLE[rng.choice(FILES)], seed))
            try:
                found = bregnet.load(path)
            except UnreadableFileError:
                n_refused += 1
                continue
            n_read += 1
            works(found, rng)
        assert n_read + n_refused == MUTANTS // CHUNKS
        assert n_read > 50  # mutations that are all found out at the door would show little
        assert n_refused > 500

    def test_without_a_change_they_are_the_files(self, tmp_path):
        for path in FILES:
            (tmp_path / "same").write_bytes(Parts(WHOLE[path]).whole())
            assert repr(bregnet.load(tmp_path / "same")) == repr(bregnet.load(path))


def hostile(tmp_path, name, change):
    parts = Parts(WHOLE[FOLDER / RELEASE / f"{name}.bregnet"])
    change(parts)
    (tmp_path / "hostile").write_bytes(parts.whole())
    return tmp_path / "hostile"


class TestHostileFiles:
    def test_labels_of_which_one_is_long(self, tmp_path):
        def change(parts):
            labels = [str(number) for number in range(100_000)]
            parts.about["state"]["fitted"]["classes_"]["text"] = sorted([*labels, "9" * 2_000_000])

        with pytest.raises(UnreadableFileError, match="must have labels of about one length"):  # or 800 GB
            bregnet.load(hostile(tmp_path, "PBDL", change))

    def test_one_tensor_with_many_names(self, tmp_path):
        def change(parts):
            count, one = 2000, "object.0.weights"
            parts.tensors = {one: ("F64", [100_000], bytes(800_000))}
            parts.about["same"] = {f"object.{number}.weights": one for number in range(1, count)}
            generators = [{"type": "SquaredEuclidean"}] * count
            parts.about["state"] = {"type": "GeneratorSum", "weights": [1.0] * count, "generators": generators}

        with pytest.raises(UnreadableFileError, match="its tensors are used too often"):
            bregnet.load(hostile(tmp_path, "GeneratorSum", change))

    def test_many_parts_take_no_longer_than_their_number(self, tmp_path):
        def change(parts):
            count = 3000
            names = {f"object.{number}.weights": ("F64", [2], bytes(16)) for number in range(count)}
            parts.tensors, parts.about["same"] = names, {}
            generators = [{"type": "SquaredEuclidean"}] * count
            parts.about["state"] = {"type": "GeneratorSum", "weights": [1.0] * count, "generators": generators}

        assert len(bregnet.load(hostile(tmp_path, "GeneratorSum", change)).generators) == 3000

    def test_searches_within_searches(self, tmp_path):
        def change(parts):
            state = parts.about["state"]
            for _ in range(150):
                state = {**state, "fitted": {**state["fitted"], "best_estimator_": state}}
            parts.about["state"] = state

        with pytest.raises(UnreadableFileError, match="must be one of ConvexRegressor, DCRegressor, PBDL"):
            bregnet.load(hostile(tmp_path, "PBDLCV", change))

    @pytest.mark.parametrize("learner", ["BregmanKNeighborsClassifier", "ConvexRegressor", "os.system"])
    def test_other_learners(self, tmp_path, learner):
        def change(parts):
            parts.about["state"]["fitted"]["learner_"]["type"] = learner

        with pytest.raises(UnreadableFileError, match="must be one of PBDL, PBDLCV, BregmanNCA, FrozenEstimator, got"):
            bregnet.load(hostile(tmp_path, "BregmanKNeighborsClassifier", change))

    @pytest.mark.parametrize(
        ("name", "tensor", "place", "value"),
        [
            ("BregmanIndex", "ids", 0, 2**63 - 1),
            ("BregmanIndex", "ids", 1, 100),
            ("BregmanIndex", "points", 0, -0.5),
            ("BregmanIndex", "engine.coarse", 0, 3.0),
            ("BregmanIndex", "engine.lift.unit", 0, 0.0),
            ("BregmanIndex-cells", "engine.cells", 0, 3),
            ("BregmanIndex-cells", "engine.cells", 0, -1),
            ("BregmanIndex-pieces", "engine.pieces", 0, 3),
            ("BregmanIndex-pieces", "engine.members", 0, 22),
            ("BregmanIndex-pieces", "engine.members", 0, 1),
            ("BregmanKNeighborsClassifier", "_classes", 0, 2),
            ("BregmanKNeighborsClassifier", "index_.ids", 0, 24),
            ("BregmanKMeans", "cluster_centers_", 0, -1.0),
            ("BregmanKMeans", "labels_", 0, 3),
            ("BregmanMixture", "weights_", 0, -1.0),
            ("BregmanMixture", "concentrations_", 0, 0.0),
            ("InnerProductForm-symmetric", "symmetry.longest", 0, 0.0),
        ],
    )
    def test_numbers_that_cannot_be(self, tmp_path, name, tensor, place, value):
        def change(parts):
            stored = parts.about["same"].get(f"object.{tensor}", f"object.{tensor}")
            dtype, shape, data = parts.tensors[stored]
            values = np.frombuffer(data, {"F64": "<f8", "F32": "<f4", "I64": "<i8"}[dtype]).copy()
            values[place] = value
            parts.tensors[stored] = dtype, shape, values.tobytes()

        with pytest.raises(UnreadableFileError, match="was damaged"):
            bregnet.load(hostile(tmp_path, name, change))

    @pytest.mark.parametrize(
        ("name", "keys", "value"),
        [
            ("PBDLCV", ("fitted", "best_index_"), 99_999),
            ("DCRegressorCV", ("fitted", "best_estimator_", "type"), "ConvexRegressor"),
            ("PBDL", ("fitted", "classes_", "text"), ["low", "high"]),
            ("PBDL", ("fitted", "classes_", "text"), ["low", "low"]),
            ("PBDL", ("fitted", "feature_names_in_"), ["width"]),
            ("BregmanIndex", ("engine", "type"), "CellEngine"),
            ("BregmanIndex", ("engine", "type"), "PieceEngine"),
            ("BregmanIndex", ("engine", "type"), "HNSW"),
            ("BregmanIndex", ("engine",), None),
            ("BregmanIndex", ("next_id",), 0),
            ("BregmanIndex", ("next_id",), 2**63),
            ("BregmanIndex", ("random_state",), 2**32),
            ("BregmanIndex", ("kind",), "hnsw"),
            ("BregmanIndex", ("side",), "up"),
            ("BregmanIndex", ("items",), False),
            ("BregmanIndex-empty", ("engine",), {"type": "FlatEngine"}),
            ("BregmanIndex-empty", ("items",), True),
            ("BregmanKNeighborsClassifier", ("fitted", "n_samples_fit_"), 25),
            ("BregmanKNeighborsClassifier", ("fitted", "index_", "items"), False),
            ("BregmanKNeighborsClassifier", ("parameters", "n_neighbors"), 0),
            ("BregmanKNeighborsClassifier", ("parameters", "weights"), "print"),
            ("BregmanKNeighborsClassifier", ("parameters", "device"), "a toaster"),
            ("BregmanKNeighborsClassifier", ("parameters", "divergence", "learner", "type"), "BregmanRanker"),
            ("BregmanKNeighborsRegressor", ("fitted", "_targets"), 3),
            ("BregmanNearestNeighbors", ("parameters", "radius"), -1.0),
            ("BregmanKMeans", ("fitted", "_seed", "place"), 625),
            ("BregmanKMeans", ("fitted", "_seed"), None),
            ("BregmanKMeans", ("fitted", "n_features_in_"), 3),
            ("BregmanMixture", ("fitted", "converged_"), "yes"),
            ("BregmanMixture", ("fitted", "lower_bound_"), "inf"),
            ("InnerProductForm", ("symmetric",), True),
            ("ColumnTransformer", ("parts", 0, "columns"), ["depth"]),
            ("ColumnTransformer", ("parts", 0, "steps", 0, "values"), ["wide", "narrow"]),
            ("ColumnTransformer", ("parts", 0, "steps", 0, "parameters", "strategy"), "constant"),
            ("ColumnTransformer", ("parts", 1, "steps", 1, "categories"), [[]]),
            ("ColumnTransformer", ("parts", 1, "steps", 1, "type"), "FunctionTransformer"),
            ("ColumnTransformer", ("parts", 2, "steps"), []),
            ("Pipeline", ("steps", 0, 1, "parts", 1, "steps", 1, "categories"), [["a", "b"]]),
            ("Pipeline", ("steps", 0, 1, "parts", 1, "steps", 1, "categories"), [["a", "b", "z"]]),
            ("Pipeline", ("steps", 1, 1, "type"), "Pipeline"),
            ("InnerProductForm-symmetric", ("symmetric",), False),
        ],
    )
    def test_values_that_cannot_be(self, tmp_path, name, keys, value):
        def change(parts):
            inside = parts.about["state"]
            for key in keys[:-1]:
                inside = inside[key]
            inside[keys[-1]] = value

        with pytest.raises(UnreadableFileError, match="was damaged"):
            bregnet.load(hostile(tmp_path, name, change))

    @pytest.mark.parametrize(
        ("name", "tensor", "shape"),
        [
            ("BregmanKMeans", "_running.weights", [2]),
            ("BregmanKMeans", "_running.centres", [2, 2]),
            ("BregmanKMeans", "cluster_centers_", [0, 2]),
            ("BregmanMixture", "weights_", [1]),
            ("InnerProductForm", "items", [22, 1]),
            ("BregmanIndex", "points", [23, 2]),
            ("BregmanIndex-pieces", "engine.members", [3]),
        ],
    )
    def test_shapes_that_cannot_be(self, tmp_path, name, tensor, shape):
        def change(parts):
            stored = parts.about["same"].pop(f"object.{tensor}", f"object.{tensor}")
            dtype, _, data = parts.tensors[stored]
            size = {"F64": 8, "I64": 8, "F32": 4}[dtype] * int(np.prod(shape))
            parts.tensors[f"object.{tensor}"] = dtype, shape, (data * 2)[:size]

        with pytest.raises(UnreadableFileError, match="was damaged"):
            bregnet.load(hostile(tmp_path, name, change))

    def test_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(UnreadableFileError, match="pipe is not a file"):
            bregnet.load(tmp_path / "pipe")

    def test_in_several_threads(self):
        def read():
            return [repr(bregnet.load(path)) for path in FILES]

        assert in_threads(read, 4) == 4 * [read()]


@contextmanager
def files_up_to(n_bytes):
    """No file of this process may grow beyond, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestDisks:
    def test_that_are_full(self, tmp_path):
        bregnet.save(KullbackLeibler(), tmp_path / "saved")
        index = BregmanIndex("sqeuclidean")
        index.add(np.random.default_rng(0).random((200_000, 4)))
        with files_up_to(5_000_000), pytest.raises(OSError, match=r"saved cannot be written: .*(space|large)"):
            bregnet.save(index, tmp_path / "saved")
        assert [each.name for each in tmp_path.iterdir()] == ["saved"]
        assert repr(bregnet.load(tmp_path / "saved")) == "KullbackLeibler()"

    @pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")])
    def test_that_cannot_be_written(self, tmp_path, monkeypatch, error):
        def refuse(*_, **__):
            raise error

        monkeypatch.setattr("bregnet._core.files.open", refuse, raising=False)
        with pytest.raises(type(error), match=f"saved cannot be written: {error.strerror}"):
            bregnet.save(BregmanIndex("kl"), tmp_path / "saved")
        assert not list(tmp_path.iterdir())
