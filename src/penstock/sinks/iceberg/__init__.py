"""The Iceberg sink.

`sink.py` is what a pipeline calls; `small.py` commits small epochs without a Spark job, by equality deletes;
`fold.py` turns these into deletion vectors, and `upkeep.py` does that and other housekeeping beside the
stream; `commits.py` says which commits a table holds, `files.py` makes files known to Iceberg.
"""
