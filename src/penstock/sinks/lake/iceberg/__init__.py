"""Iceberg tables.

`small_commit.py` commits small epochs without a Spark job, as equality deletes. `fold_deletes.py` turns those
into deletion vectors. `maintenance.py` does that beside the stream, and also expires snapshots (`expire.py`)
and puts small files together (`pack_files.py`). `commits.py` says which commits a table holds, `manifests.py`
which files, and `files.py` makes new files known to Iceberg.
"""
