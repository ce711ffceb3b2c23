"""Iceberg tables.

`format.py` is what `LakeSink` calls. `small_commit.py` commits small epochs without a Spark job, as equality
deletes. `merge.py` merges larger epochs by files and deletion vectors. `maintenance.py` runs in the
background: it converts equality deletes into deletion vectors (`fold_deletes.py`), merges small files
(`pack_files.py`) and expires snapshots (`expire.py`). `commits.py` finds our commits in a table,
`manifests.py` lists its files, and `files.py` describes new files to Iceberg.
"""
