"""`spark.read.format("penstock")` and `spark.readStream.format("penstock")`: a table's changes as rows.

Spark finds the source by `pyspark_penstock`, a module beside this package, and under its earlier name by
`pyspark_mysql_cdc`. `source.py` is what Spark opens, `options.py` reads its options, and `partitions.py` runs
in tasks. A stream is a `ServerStream` (`server.py`) or a `RelayStream` (`relay.py`); a batch query is in
`log.py`.
"""
