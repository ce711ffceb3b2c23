"""Reads lake tables with a Spark that knows nothing of Penstock: `spark_reader.py JARS WAREHOUSE NAME…`.

A name is that of a table in the Hadoop catalog at WAREHOUSE, or the path of a Delta table. Prints one JSON
line for each."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(jars: str, warehouse: str, *names: str) -> None:
    extensions = "io.delta.sql.DeltaSparkSessionExtension"
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in {
        "spark.driver.extraClassPath": jars,
        "spark.driver.memory": "700m",
        "spark.sql.extensions": extensions,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse,
    }.items():
        session = session.config(name, value)
    spark = session.getOrCreate()
    for name in names:
        frame = spark.read.format("delta").load(name) if name.startswith("/") else spark.table(name)
        rows = [[None if value is None else str(value) for value in row] for row in frame.collect()]
        print(json.dumps(sorted(rows, key=lambda row: int(row[0] or 0))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
