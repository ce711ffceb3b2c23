"""Spark's JDBC source reads a table, twice; the second, warm reading counts. A third counts the rows.

Arguments: driver-jar driver-class url user password table partition-column upper-bound partitions
fetch-size.
"""

from __future__ import annotations

import json
import sys
import time

import pyspark
from pyspark.sql import SparkSession


def main() -> None:
    jar, driver, url, user, password, table, column, upper, partitions, fetch_size = sys.argv[1:]
    spark = (
        SparkSession.builder.master(f"local[{partitions}]")
        .config("spark.driver.extraClassPath", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    options = {
        "url": url, "dbtable": table, "user": user, "password": password,
        "driver": driver, "partitionColumn": column, "lowerBound": "1",
        "upperBound": upper, "numPartitions": partitions,
        "fetchsize": fetch_size,
    }  # fmt: skip
    began = 0.0
    for _ in range(2):
        began = time.monotonic()
        frame = spark.read.format("jdbc").options(**options).load()
        frame.write.format("noop").mode("overwrite").save()
    ended = time.monotonic()
    report = {
        "version": pyspark.__version__,
        "changes": frame.count(),
        "columns": len(frame.columns),
        "began": began,
        "ended": ended,
    }
    spark.stop()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
