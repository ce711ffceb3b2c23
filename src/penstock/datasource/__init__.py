"""`spark.read.format("mysql_cdc")` and `spark.readStream.format("mysql_cdc")`: one table's changes as rows.

`pyspark_mysql_cdc`, a module beside this package, is how Spark finds the source. `source.py` is what Spark
opens, `options.py` reads its options, and `partitions.py` runs in tasks. A stream is a `ServerStream`
(`server.py`) or a `RelayStream` (`relay.py`); a batch query is in `log.py`.
"""
