"""Removes files that Penstock wrote into a table's directory and that no snapshot names.

A process that is killed between writing a file and committing it leaves such a file. Readers never see it,
but it takes space. Iceberg's own action for this compares whole locations, and takes a file as not named if
its location is written in another way (`file:/x` and `/x`, or a `%` in the name of a table). Here only files
are removed whose own names Penstock made, and these are unique (128 bits of chance). So comparing the names
is enough.

Only the table's own directory is looked through: by `write.data.path`, several tables may have their files in
one place.

A catalog may have snapshots that a table's own metadata does not show, on branches of its own. Such a catalog
forbids clients to remove files (`may_remove_files`), and then nothing is removed.
"""

from __future__ import annotations

import re
import time
from typing import Any

from pyspark.sql import SparkSession

from penstock.sinks.lake.iceberg.catalog import may_remove_files
from penstock.sinks.lake.iceberg.files import Classes, java_items

AGE_MS = 3 * 24 * 3_600_000
"""Files younger than this may belong to a commit that is still to come. Three days, as Iceberg's own action
has it: a pipeline may have been suspended over a weekend."""
_OURS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.parquet|-deletes\.puffin)")


def remove_orphans(spark: SparkSession, classes: Classes, name: str, target: Any) -> int:
    """Returns how many files were removed; 0 if the table's store cannot list files, if the catalog forbids
    it, or if the files are not in the table's directory. `name`: the table's in Spark SQL. Snapshots that are
    committed meanwhile name younger files."""
    io = target.io()
    if not classes.lists_files(io) or not may_remove_files(target):
        return 0
    before_ms = int(time.time() * 1000) - AGE_MS
    folder = target.locationProvider().newDataLocation("file").rpartition("/")[0]
    if not folder.startswith(f"{str(target.location()).rstrip('/')}/"):
        return 0
    found: dict[str, str] = {}
    for file in java_items(io.listPrefix(f"{folder}/")):
        location = str(file.location())
        own = location.rpartition("/")[2]
        if _OURS.fullmatch(own) and file.createdAtMillis() < before_ms:
            found[own] = location
    if not found:
        return 0
    named = spark.sql(f"SELECT DISTINCT regexp_extract(file_path, '[^/]+$', 0) FROM {name}.all_files")
    for row in named.toLocalIterator():
        found.pop(row[0], None)
    for location in found.values():
        io.deleteFile(location)
    return len(found)
