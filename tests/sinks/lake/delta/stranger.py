"""Another Spark that writes a Delta table on S3, with Penstock's log store and nothing else of it.

`stranger.py TABLE STOP OPTIONS`, where OPTIONS is a JSON object with options of Spark. It adds rows with
negative ids and compacts the table, again and again, until the file STOP exists. It prints how many rows it
has added."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main(table: str, stop: Path, options: dict[str, str]) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    added = 0
    print("ready", flush=True)
    while not stop.exists():
        for statement in (
            f"INSERT INTO delta.`{table}` (id, name, _sequence) VALUES ({-added - 1}, 'stranger', 0)",
            f"OPTIMIZE delta.`{table}`",
        ):
            try:
                spark.sql(statement)
            except (PySparkException, Py4JJavaError) as error:
                if "Concurrent" not in str(error):
                    raise
                continue
            added += statement.startswith("INSERT")
    print(added, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
