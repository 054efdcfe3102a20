"""A learned divergence in vector stores that know nothing of it: LanceDB, Qdrant and DuckDB, searching inner products.

Run with ``python examples/vector_store.py``; it takes ``pip install 'bregnet[stores]'``. A store is a class with two
methods: it takes vectors and metadata, and finds the largest inner products. Everything else is the same for all.
"""

import duckdb
import lancedb
import numpy as np
import pyarrow as pa
from qdrant_client import QdrantClient, models
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bregnet import PBDL, BregmanIndex

K, CANDIDATES = 10, 20


def as_table(form, **columns):
    """Ids, vectors and metadata as an Arrow table."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(form.items.ravel()), form.width)
    return pa.table({"id": form.ids, "vector": vectors, **columns})


class LanceDB:
    """A table in memory; on a disk, the path of a folder takes the place of the address."""

    def __init__(self, form, year):
        self.table = lancedb.connect("memory://").create_table("items", as_table(form, year=year))

    def search(self, vectors, k, since, distance="dot"):
        """Inner products and ids, largest first, (n_queries, k) each, of items since a year."""
        search = self.table.search(vectors).distance_type(distance).limit(k)
        found = search.where(f"year >= {since}", prefilter=True).to_arrow()
        found = found.sort_by([("query_index", "ascending"), ("_distance", "ascending")])
        distances, ids = (found[name].to_numpy().reshape(len(vectors), k) for name in ("_distance", "id"))
        return 1.0 - distances.astype(float), ids  # its distance is 1 minus the inner product


class Qdrant:
    """A collection in memory; with a server, its address takes the place of ":memory:"."""

    def __init__(self, form, year):
        self.client = QdrantClient(":memory:")
        of_vectors = models.VectorParams(size=form.width, distance=models.Distance.DOT)
        self.client.create_collection("items", vectors_config=of_vectors)
        payload = [{"year": int(each)} for each in year]
        self.client.upload_collection("items", vectors=form.items, ids=form.ids.tolist(), payload=payload)

    def search(self, vectors, k, since):
        """As that of LanceDB."""
        only = models.Filter(must=[models.FieldCondition(key="year", range=models.Range(gte=since))])
        asked = [models.QueryRequest(query=vector.tolist(), limit=k, filter=only) for vector in vectors]
        found = [answer.points for answer in self.client.query_batch_points("items", asked)]
        scores, ids = ([[getattr(p, name) for p in points] for points in found] for name in ("score", "id"))
        return np.array(scores), np.array(ids)


class DuckDB:
    """A table of a database in memory, searched by SQL."""

    def __init__(self, form, year):
        self.database = duckdb.connect()
        self.database.register("given", as_table(form, year=year))
        self.database.execute("CREATE TABLE items AS SELECT * FROM given")

    def search(self, vectors, k, since):
        """As that of LanceDB."""
        asked = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
        self.database.register("queries", pa.table({"number": np.arange(len(vectors)), "query": asked}))
        found = self.database.execute(
            """
            SELECT id, array_inner_product(vector, query)::DOUBLE AS score FROM queries, items WHERE year >= $since
            QUALIFY row_number() OVER (PARTITION BY number ORDER BY score DESC) <= $k ORDER BY number, score DESC
            """,
            {"since": since, "k": k},
        ).fetchnumpy()
        return tuple(found[name].reshape(len(vectors), k) for name in ("score", "id"))


STORES = (LanceDB, Qdrant, DuckDB)


def ranked_again(divergence, side, X, Q, ids, k):
    """The k nearest of the ids that a store has found, by divergences in double precision."""
    items, queries = X[ids.ravel()], np.repeat(Q, ids.shape[1], axis=0)
    exact = divergence.paired(queries, items) if side == "right" else divergence.paired(items, queries)
    return np.take_along_axis(ids, exact.reshape(ids.shape).argsort(axis=1, kind="stable"), axis=1)[:, :k]


def recall(ids, wanted):
    """Share of the wanted ids that were found."""
    return np.mean([len(set(found) & set(each)) / len(each) for found, each in zip(ids, wanted, strict=True)])


def compare(make_store, divergence, side, since, X, Q, year):
    """Recall of a store alone and ranked again, share of places with the same id, error of D, and the ids."""
    index = BregmanIndex(divergence, side=side)
    index.add(X)
    form = index.to_inner_product()
    scores, ids = make_store(form, year).search(form.encode(Q), CANDIDATES, since)
    index.remove(index.ids[year < since])
    divergences, wanted = index.search(Q, K)
    again = ranked_again(divergence, side, X, Q, ids, K)
    error = np.abs(form.divergences(Q, scores)[:, :K] - divergences).max()
    return recall(ids[:, :K], wanted), recall(again, wanted), np.mean(again == wanted), error, again


def main():
    X, y = load_digits(return_X_y=True)
    X, Q, y, y_queries = train_test_split(X / 16, y, test_size=300, random_state=0, stratify=y)
    year = 2015 + np.arange(len(X)) % 10  # made up, to filter by
    learner = PBDL(alpha=0.03, n_pieces=60, temperature=0.05, tol=0.2, random_state=0).fit(X, y)

    print(f"{len(X)} images of digits; the {K} nearest of {len(Q)} queries by a learned divergence")
    print(f"PBDL {learner.result_.status}\n")
    columns = ("the store", "ranked again", "all places", "error of D", "same digit")
    print(f"{'':<36} {'recall, by':>12} {f'of {CANDIDATES},':>12} {'same ids in':>12}")
    print(f"{'search':<36} {' '.join(f'{column:>12}' for column in columns)}")
    for make_store in STORES:
        for side, meaning in (("right", "D(query, item)"), ("left", "D(item, query)")):
            for since in (2015, 2020):
                found = compare(make_store, learner.divergence_, side, since, X, Q, year)
                alone, again, places, error, ids = found
                search = f"{make_store.__name__:<7} {meaning}" + (f" since {since}" if since > 2015 else "")
                right = np.mean(y[ids] == y_queries[:, None])
                print(f"{search:<36} {alone:>12.2%} {again:>12.2%} {places:>12.2%} {error:>12.1e} {right:>12.1%}")

    euclid = BregmanIndex("sqeuclidean")
    euclid.add(X)
    right = np.mean(y[euclid.search(Q, K)[1]] == y_queries[:, None])
    print(f"{'Euclid, without learning':<36} {'':>51} {right:>12.1%}")
    print(f"\nStores compute in single precision: neighbors nearly as far may swap places. So ask for {CANDIDATES},")
    print("and rank them by BregmanDivergence.paired.")


if __name__ == "__main__":
    main()
