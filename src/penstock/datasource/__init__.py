"""`spark.read.format("penstock")` and `spark.readStream.format("penstock")`: a table's changes as rows.

`pyspark_penstock`, a module beside this package, is how Spark finds the source; `pyspark_mysql_cdc` finds it
under an earlier name. `source.py` is what Spark
opens, `options.py` reads its options, and `partitions.py` runs in tasks. A stream is a `ServerStream`
(`server.py`) or a `RelayStream` (`relay.py`); a batch query is in `log.py`.
"""
