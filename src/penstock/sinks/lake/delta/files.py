"""Writes files of Delta tables without Spark, and describes them in Delta's log."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from datetime import date, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.sinks.files import FIELD_ID, FileWriter, Value, WrittenFile
from penstock.sinks.lake.access import Access
from penstock.sinks.lake.delta.commits import Action
from penstock.sinks.lake.sessions import java_map
from penstock.store.files import Folder

STATS_TEXT_MAX = 32
"""Texts with more characters get no bounds in statistics. Delta's own default."""
STATS_COLUMNS_MAX = 32
"""Number of columns that have statistics. Delta's own default."""

_ARROW = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}
"""Delta's names of the types that a target can have, except decimals, which have parameters."""

_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_ID = "delta.columnMapping.id"

_KNOWN_OF_FIELDS = {_PHYSICAL_NAME, _ID, "delta.typeChanges", "comment"}
"""Metadata of columns whose values are written as they are. Generated and identity columns have others."""

_KNOWN_FEATURES = {
    "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck",
    # These have no effect unless a property (below) or a column's metadata turns them on.
    "appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "identityColumns", "invariants",
}  # fmt: skip

_FLAGS = ("delta.appendOnly", "delta.enableChangeDataFeed")
_CONSTRAINTS = "delta.constraints."


def file_writer(spark: SparkSession, access: Access, snapshot: Any) -> FileWriter | None:
    """A writer for data files of a table. None: the table needs Spark's writer, because it has partitions or
    a feature that is not supported here, or is in a store that Penstock cannot reach by itself."""
    folder, metadata = data_folder(access, snapshot), snapshot.metadata()
    if folder is None or not _is_plain(spark, snapshot) or metadata.partitionColumns().nonEmpty():
        return None
    fields, names = [], []
    for column in json.loads(metadata.schemaString())["fields"]:
        kind, known = _arrow_type(column["type"]), column["metadata"]
        if kind is None or not column["nullable"] or not {_PHYSICAL_NAME, _ID} <= set(known):
            return None
        if set(known) - _KNOWN_OF_FIELDS:
            return None
        fields.append(pa.field(known[_PHYSICAL_NAME], kind, metadata={FIELD_ID: str(known[_ID])}))
        names.append(column["name"])
    return FileWriter(folder, pa.schema(fields), optional=frozenset(names), sources=tuple(names), strict=True)


def key_writer(writer: FileWriter, key: tuple[str, ...]) -> FileWriter | None:
    """A writer for files of keys, in the target's types. None: the target lacks a column of the key, or the
    column holds floating-point numbers, of which the source takes 0 and -0 as equal."""
    if not set(key) <= set(writer.columns):
        return None
    fields = [writer.fields.field(writer.columns.index(name)) for name in key]
    if any(pa.types.is_floating(field.type) for field in fields):
        return None
    return replace(writer, fields=pa.schema(fields), sources=key, optional=frozenset(), strict=False)


def takes_vectors(snapshot: Any) -> bool:
    """Whether deletion vectors are enabled for the table."""
    wanted = snapshot.metadata().configuration().get("delta.enableDeletionVectors")
    return bool(wanted.isDefined() and wanted.get() == "true")


def data_folder(access: Access, snapshot: Any) -> Folder | None:
    """The table's directory. None: Penstock cannot write there by itself."""
    url = snapshot.deltaLog().dataPath().toUri()
    if url.getScheme() in (None, "file"):
        return access.folder(str(url.getPath()))
    return access.folder(f"{url.getScheme()}://{url.getAuthority()}{url.getPath()}".rstrip("/"))


def location_of(folder: Folder, path: str) -> str | None:
    """Where a file is that the log of the table in `folder` names. None: it is not in the table's
    directory, as files of a shallow clone."""
    url = urlsplit(path)
    if url.scheme or url.netloc or url.path.startswith("/"):
        return None
    return f"{folder.location}/{unquote(url.path)}"


def _is_plain(spark: SparkSession, snapshot: Any) -> bool:
    """Whether the table needs nothing from writers but what is done here."""
    protocol = json.loads(snapshot.protocol().json())["protocol"]
    features = {*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())}
    if protocol["minWriterVersion"] != 7 or features - _KNOWN_FEATURES:
        return False
    convert = spark._jvm.scala.jdk.javaapi.CollectionConverters  # type: ignore[union-attr]
    properties = java_map(spark, convert.asJava(snapshot.metadata().configuration()))
    if properties.get("delta.columnMapping.mode") != "name":
        return False
    if any(name.startswith(_CONSTRAINTS) for name in properties):
        return False
    return all(properties.get(name, "false") == "false" for name in _FLAGS)


def _arrow_type(name: Any) -> pa.DataType | None:
    if not isinstance(name, str):
        return None
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", name)
    return _ARROW.get(name) if decimal is None else pa.decimal128(int(decimal[1]), int(decimal[2]))


def added(file: WrittenFile, fields: pa.Schema) -> Action:
    """The log entry that adds a data file. The file is in the table's directory itself."""
    return {
        "add": {
            "path": file.location.rpartition("/")[2],
            "partitionValues": {},
            "size": file.size,
            "modificationTime": _now_ms(),
            "dataChange": True,
            "stats": json.dumps(statistics(file, fields)),
        }
    }


def removed(file: dict[str, Any]) -> Action:
    """The log entry that removes a data file. `file`: the entry that added it."""
    kept = ("path", "partitionValues", "size", "tags", "deletionVector", "stats")
    known = {name: file[name] for name in kept if file.get(name) is not None}
    new = {"deletionTimestamp": _now_ms(), "dataChange": True, "extendedFileMetadata": True}
    return {"remove": {**known, **new}}


def with_vector(file: dict[str, Any], stats: dict[str, Any], vector: dict[str, Any]) -> Action:
    """The log entry that gives a data file another deletion vector."""
    wider = {**stats, "tightBounds": False}
    return {"add": {**file, "dataChange": True, "stats": json.dumps(wider), "deletionVector": vector}}


def statistics(
    file: WrittenFile,
    fields: pa.Schema,
    *,
    text_max: int = STATS_TEXT_MAX,
    columns_max: int = STATS_COLUMNS_MAX,
) -> dict[str, Any]:
    """A file's statistics in Delta's form: the numbers of rows and NULLs, and the bounds of integers, dates,
    and texts of at most `text_max` characters. Columns have their names in the file."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field, column in list(zip(fields, file.columns, strict=True))[:columns_max]:
        if column.nulls is None:
            continue
        nulls[field.name] = column.nulls
        if column.least is None or column.greatest is None:
            continue
        low = _bound(column.least, field.type, text_max)
        high = _bound(column.greatest, field.type, text_max)
        if low is not None and high is not None:
            least[field.name], greatest[field.name] = low, high
    return {
        "numRecords": file.rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
        "tightBounds": True,
    }


def _bound(value: Value, kind: pa.DataType, text_max: int) -> int | str | None:
    """A value that Parquet stores, in the form of Delta's statistics. None: it has no such form."""
    if isinstance(value, bytes):
        text = value.decode() if kind == pa.string() else None
        return text if text is not None and len(text) <= text_max else None
    if pa.types.is_integer(kind):
        return int(value)
    if kind == pa.date32():
        try:
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        except OverflowError:  # MySQL has a year 0
            return None
    return None


def _now_ms() -> int:
    return int(time.time() * 1000)
