"""A learned divergence in a vector store that knows nothing of it: LanceDB, searching inner products.

Run with ``python examples/vector_store.py``; it takes ``pip install lancedb``.
"""

import tempfile

import lancedb
import numpy as np
import pyarrow as pa
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bregnet import PBDL, BregmanIndex

K, CANDIDATES = 10, 20


def put_into_store(folder, form, **metadata):
    """A table of vectors and metadata, as anyone would make it."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(form.items.ravel()), form.width)
    return lancedb.connect(folder).create_table("digits", pa.table({"id": form.ids, "vector": vectors, **metadata}))


def search_store(table, form, Q, where):
    """Divergences and ids of the nearest, as the store finds them, (n_queries, CANDIDATES) each."""
    search = table.search(form.encode(Q)).distance_type("dot").limit(CANDIDATES)
    found = (search.where(where, prefilter=True) if where else search).to_arrow()
    found = found.sort_by([("query_index", "ascending"), ("_distance", "ascending")])
    distances, ids = (found[name].to_numpy().reshape(len(Q), CANDIDATES) for name in ("_distance", "id"))
    return form.divergences(Q, 1.0 - distances.astype(float)), ids  # its distance is 1 minus the inner product


def ranked_again(divergence, side, X, Q, ids):
    """The same ids by divergences in double precision."""
    items, queries = X[ids.ravel()], np.repeat(Q, CANDIDATES, axis=0)
    exact = divergence.paired(queries, items) if side == "right" else divergence.paired(items, queries)
    return np.take_along_axis(ids, exact.reshape(ids.shape).argsort(axis=1, kind="stable"), axis=1)


def compare(divergence, side, where, kept, X, Q, metadata):
    """Store and index: share of equal ids, the store's alone and ranked again; error of its divergences; ids."""
    index = BregmanIndex(divergence, side=side)
    index.add(X)
    form = index.to_inner_product()
    with tempfile.TemporaryDirectory() as folder:
        divergences, ids = search_store(put_into_store(folder, form, **metadata), form, Q, where)
    index.remove(index.ids[~kept])
    wanted_divergences, wanted = index.search(Q, K)
    again = ranked_again(divergence, side, X, Q, ids)[:, :K]
    error = np.abs(divergences[:, :K] - wanted_divergences).max()
    return np.mean(ids[:, :K] == wanted), np.mean(again == wanted), error, again


def main():
    X, y = load_digits(return_X_y=True)
    X, Q, y, y_queries = train_test_split(X / 16, y, test_size=300, random_state=0, stratify=y)
    year = 2015 + np.arange(len(X)) % 10  # made up, to filter by
    learner = PBDL(alpha=0.03, n_pieces=60, temperature=0.05, tol=0.2, random_state=0).fit(X, y)

    print(f"{len(X)} images of digits in LanceDB; the {K} nearest of {len(Q)} queries by a learned divergence")
    print(f"PBDL {learner.result_.status}\n")
    print(f"{'':<34} {'same ids as BregmanIndex':^27}")
    print(f"{'search':<34} {'by the store':>12} {'ranked again':>14} {'error of D':>11} {'same digit':>11}")
    for side, meaning in (("right", "D(query, item)"), ("left", "D(item, query)")):
        for where, kept in ((None, year > 0), ("year >= 2020", year >= 2020)):
            metadata = {"year": year, "digit": y}
            store, again, error, ids = compare(learner.divergence_, side, where, kept, X, Q, metadata)
            search = meaning + (f" where {where}" if where else "")
            right = np.mean(y[ids] == y_queries[:, None])
            print(f"{search:<34} {store:>12.2%} {again:>14.2%} {error:>11.1e} {right:>11.1%}")

    euclid = BregmanIndex("sqeuclidean")
    euclid.add(X)
    right = np.mean(y[euclid.search(Q, K)[1]] == y_queries[:, None])
    print(f"{'Euclid, without learning':<34} {'':>12} {'':>14} {'':>11} {right:>11.1%}")
    print(f"\nStores compute in single precision: neighbours nearly as far may swap places. So ask for {CANDIDATES},")
    print("and rank them by BregmanDivergence.paired.")


if __name__ == "__main__":
    main()
