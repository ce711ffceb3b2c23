"""Iceberg tables.

`format.py` is what `LakeSink` calls. `small_commit.py` commits small epochs without a Spark job, with the key
indexes (`indexes.py`). `merge.py` merges larger epochs by files. Both mark rows by deletion vectors
(`mark_rows.py`). `maintenance.py` runs in the background: it merges small files (`pack_files.py`), converts
equality deletes of others (`fold_deletes.py`) and expires snapshots (`expire.py`). `commits.py` finds our
commits in a table, `manifests.py` lists its files, `live.py` remembers them, and `files.py` describes new
files to Iceberg.
"""
