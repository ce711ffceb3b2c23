"""Lake tables: each target is a copy of its source table.

`sink.py` has the sink, `format.py` says what it needs of a table format, and `iceberg/` and `delta/` are the
two formats. `shards.py` lets several source tables share a target.
"""
