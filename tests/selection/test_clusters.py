"""A search on the workers of Dask and of Ray, through joblib, is the search in one process."""

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_wine

from bregnet import PBDLCV

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings of their own at the end


def fitted(n_jobs):
    search = PBDLCV(
        [0.03, 0.1], feature_map=None, cv=3, refinements=0, temperatures=[0.2], tol=0.3, random_state=0, n_jobs=n_jobs
    )
    return search.fit(*load_wine(return_X_y=True))


def compare(there):
    here = fitted(1)
    np.testing.assert_array_equal(there.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(there.function_.slopes, here.function_.slopes)


def test_dask():
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        compare(fitted(2))


def test_ray():
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from ray.util.joblib import register_ray

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        register_ray()
        with joblib.parallel_config("ray"):
            compare(fitted(2))
    finally:
        ray.shutdown()
