"""The Delta sink.

`sink.py` is what a pipeline calls; `merge.py` merges epochs by files and deletion vectors, without a MERGE by
Spark; `commits.py` says which commits a table holds and makes those of our own; `files.py` makes files known
to Delta, `vectors.py` writes and finds deletion vectors as Delta has them.
"""
