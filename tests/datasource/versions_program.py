"""A user's program over `mysql_cdc`, for `test_versions.py`. It prints what it has seen, as JSON.

It starts as `MODE FOLDER PORT USER PASSWORD`.
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


def main(mode: str, folder: Path, port: str, user: str, password: str) -> dict[str, Any]:
    account = {"host": "127.0.0.1", "port": port, "user": user, "password": password}
    builder: Any = SparkSession.builder
    builder = builder.remote("local[2]") if mode == "connect" else builder.master("local[2]")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    source = pymysql.connect(
        host="127.0.0.1", port=int(port), user=user, password=password, autocommit=True
    ).cursor()

    def execute(*statements: str) -> None:
        for statement in statements:
            source.execute(statement)

    def start(name: str, options: dict[str, str], **trigger: Any) -> Any:
        reader = spark.readStream.format("mysql_cdc").options(**account, state=f"{folder}/{name}", **options)
        writer = reader.load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", f"{folder}/{name}-checkpoint")
        writer = writer.option("path", f"{folder}/{name}-out")
        return (writer.trigger(**trigger) if trigger else writer).start()

    def once(name: str, options: dict[str, str]) -> dict[str, int]:
        """Runs until the query has everything. It is started again if Spark gives up a process of its own,
        which it does on a busy machine."""
        for tries in range(TRIES):
            try:
                assert start(name, options, availableNow=True).awaitTermination(300)
                break
            except Exception as error:
                if tries == TRIES - 1:
                    raise
                print(f"again: {str(error)[:300]}", file=sys.stderr)
        return seen(name)

    def seen(name: str) -> dict[str, int]:
        if not (folder / f"{name}-out" / "_spark_metadata").exists():
            return {}
        rows = spark.read.parquet(f"{folder}/{name}-out").groupBy("_change_type").count().collect()
        return dict(sorted((row[0], row[1]) for row in rows))

    one = {"table": TABLE, "chunkRows": "100"}
    execute("CREATE DATABASE d", f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, a INT)")
    execute(f"INSERT INTO {TABLE} VALUES " + ",".join(f"({number},0)" for number in range(1000)))
    found: dict[str, Any] = {"version": pyspark.__version__, "first run": once("one", one)}
    found["many"] = once("many", {"tables": "d.*"})
    execute(f"UPDATE {TABLE} SET a = 1 WHERE id < 10", f"DELETE FROM {TABLE} WHERE id = 5")
    found["second run"] = once("one", one)
    query = start("one", one)
    execute(f"INSERT INTO {TABLE} VALUES (5000, 1)")
    deadline = time.monotonic() + 300
    while "insert" not in seen("one") and time.monotonic() < deadline:
        if not query.isActive:
            query = start("one", one)
        time.sleep(0.5)  # looks again, with a limit
    found["runs on"] = seen("one")
    execute(f"ALTER TABLE {TABLE} ADD b INT", f"INSERT INTO {TABLE} VALUES (6000, 1, 1)")
    found["ends"] = False
    for _ in range(TRIES):
        try:
            query.awaitTermination(300)
        except Exception as error:
            found["ends"] = f"columns of {TABLE} have changed" in str(error)
        if found["ends"]:
            break
        query = start("one", one)
    found["goes on"] = once("one", one)
    spark.stop()
    return found


if __name__ == "__main__":
    mode, folder, port, user, password = sys.argv[1:]
    print(json.dumps(main(mode, Path(folder), port, user, password)))
