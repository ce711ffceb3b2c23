"""Delta tables.

`format.py` is what `LakeSink` calls. `merge.py` merges epochs by files and deletion vectors, without a MERGE
by Spark. `commits.py` finds our commits in a table and writes new ones. `files.py` describes data files to
Delta, `vectors.py` writes and finds deletion vectors, and `checksum.py` reads Delta's checksum files.
"""
