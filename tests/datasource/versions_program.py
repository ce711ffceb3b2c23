"""A user's program over `mysql_cdc`, for `test_versions.py`. It prints what it has seen, as JSON.

It starts as `MODE FOLDER PORT USER PASSWORD`. Spark gives its own processes up on a busy machine. So queries
that ended for another reason than a change of columns are started again, as a user would do.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pymysql
import pyspark
from pyspark.sql import SparkSession

TABLE = "d.t"
TRIES = 5
ONE = {"table": TABLE, "chunkRows": "100"}


class Queries:
    """Queries that write changes to Parquet files, each with a name."""

    def __init__(self, mode: str, folder: Path, account: dict[str, str]) -> None:
        builder: Any = SparkSession.builder
        builder = builder.remote("local[2]") if mode == "connect" else builder.master("local[2]")
        self.spark = builder.config("spark.ui.enabled", "false").getOrCreate()
        self._folder = folder
        self._account = account

    def start(self, name: str, options: dict[str, str], **trigger: Any) -> Any:
        reader = self.spark.readStream.format("mysql_cdc").options(**self._account, **options)
        writer = reader.option("state", f"{self._folder}/{name}").load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", f"{self._folder}/{name}-checkpoint")
        writer = writer.option("path", f"{self._folder}/{name}-out")
        return (writer.trigger(**trigger) if trigger else writer).start()

    def once(self, name: str, options: dict[str, str]) -> dict[str, int]:
        """Runs until the query has everything."""
        for tries in range(TRIES):
            try:
                assert self.start(name, options, availableNow=True).awaitTermination(300)
                break
            except Exception as error:
                if tries == TRIES - 1:
                    raise
                print(f"again: {str(error)[:300]}", file=sys.stderr)
        return self.seen(name)

    def seen(self, name: str) -> dict[str, int]:
        """The number of changes of each type."""
        if not (self._folder / f"{name}-out" / "_spark_metadata").exists():
            return {}
        rows = self.spark.read.parquet(f"{self._folder}/{name}-out").groupBy("_change_type").count().collect()
        return dict(sorted((row[0], row[1]) for row in rows))

    def until_insert(self) -> Any:
        """A query that runs on, once it has seen an insert."""
        query = self.start("one", ONE)
        deadline = time.monotonic() + 300
        while "insert" not in self.seen("one") and time.monotonic() < deadline:
            if not query.isActive:
                query = self.start("one", ONE)
            time.sleep(0.5)  # looks again, with a limit
        return query

    def ends(self, query: Any) -> bool:
        """Whether the query ends because columns have changed."""
        for _ in range(TRIES):
            try:
                query.awaitTermination(300)
            except Exception as error:
                if f"columns of {TABLE} have changed" in str(error):
                    return True
            query = self.start("one", ONE)
        return False


def main(mode: str, folder: Path, port: str, user: str, password: str) -> dict[str, Any]:
    queries = Queries(mode, folder, {"host": "127.0.0.1", "port": port, "user": user, "password": password})
    source = pymysql.connect(
        host="127.0.0.1", port=int(port), user=user, password=password, autocommit=True
    ).cursor()

    def execute(*statements: str) -> None:
        for statement in statements:
            source.execute(statement)

    execute("CREATE DATABASE d", f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, a INT)")
    execute(f"INSERT INTO {TABLE} VALUES " + ",".join(f"({number},0)" for number in range(1000)))
    found: dict[str, Any] = {"version": pyspark.__version__, "first run": queries.once("one", ONE)}
    found["many"] = queries.once("many", {"tables": "d.*"})
    execute(f"UPDATE {TABLE} SET a = 1 WHERE id < 10", f"DELETE FROM {TABLE} WHERE id = 5")
    found["second run"] = queries.once("one", ONE)
    execute(f"INSERT INTO {TABLE} VALUES (5000, 1)")
    query = queries.until_insert()
    found["runs on"] = queries.seen("one")
    execute(f"ALTER TABLE {TABLE} ADD b INT", f"INSERT INTO {TABLE} VALUES (6000, 1, 1)")
    found["ends"] = queries.ends(query)
    found["goes on"] = queries.once("one", ONE)
    queries.spark.stop()
    return found


if __name__ == "__main__":
    mode, folder, port, user, password = sys.argv[1:]
    print(json.dumps(main(mode, Path(folder), port, user, password)))
