"""Writes files of Delta tables without Spark, and describes them in Delta's log."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.sinks.base import GENERATION
from penstock.sinks.files import BOUND_BYTES_MAX, FIELD_ID, FileWriter, Value, WrittenFile
from penstock.sinks.lake.access import Access
from penstock.sinks.lake.delta.commits import Action
from penstock.sinks.lake.iceberg.layout import Layout
from penstock.sinks.lake.terms import Term
from penstock.sinks.spark_sessions import java_map
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
"""Delta's names of the types that a target can have, except decimals and arrays, which have parameters."""

PHYSICAL_NAME = "delta.columnMapping.physicalName"
_ID = "delta.columnMapping.id"

_KNOWN_OF_FIELDS = {PHYSICAL_NAME, _ID, "delta.typeChanges", "comment"}
"""Metadata of columns whose values are written as they are. Generated and identity columns have others."""

_KNOWN_FEATURES = {
    "clustering", "columnMapping", "deletionVectors", "domainMetadata", "timestampNtz", "typeWidening",
    "v2Checkpoint", "vacuumProtocolCheck",
    # These have no effect unless a property (below) or a column's metadata turns them on.
    "appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "identityColumns", "invariants",
}  # fmt: skip

_FLAGS = ("delta.appendOnly", "delta.enableChangeDataFeed")
_CONSTRAINTS = "delta.constraints."


def file_writer(spark: SparkSession, access: Access, snapshot: Any) -> FileWriter | None:
    """A writer for data files of a table. None: the table needs Spark's writer, because it has a feature or
    partitions that are not supported here, or is in a store that Penstock cannot reach by itself."""
    folder, metadata = data_folder(access, snapshot), snapshot.metadata()
    if folder is None or not _is_plain(spark, snapshot):
        return None
    fields, names, physical = [], [], dict[str, str]()
    for column in json.loads(metadata.schemaString())["fields"]:
        kind, known = _arrow_type(column["type"]), column["metadata"]
        if kind is None or not column["nullable"] or not {PHYSICAL_NAME, _ID} <= set(known):
            return None
        if set(known) - _KNOWN_OF_FIELDS:
            return None
        fields.append(pa.field(known[PHYSICAL_NAME], kind, metadata={FIELD_ID: str(known[_ID])}))
        names.append(column["name"])
        physical[column["name"]] = known[PHYSICAL_NAME]
    schema = pa.schema(fields)
    by = [physical[name] for name in partitions(spark, snapshot)]
    if not all(_is_partition_type(schema.field(name).type) for name in by):
        return None
    clustered = clustering(spark, snapshot)
    if not all(name in schema.names and _has_bounds(schema.field(name).type) for name in clustered):
        return None
    return FileWriter(
        folder, schema, optional=frozenset(names), sources=tuple(names), strict=True,
        layout=Layout(tuple(Term("identity", name) for name in by), ()) if by else None,
    )  # fmt: skip


def partitions(spark: SparkSession, snapshot: Any) -> list[str]:
    """The columns by which the table is partitioned."""
    convert: Any = spark._jvm.scala.jdk.javaapi.CollectionConverters  # type: ignore[union-attr]
    return [str(name) for name in convert.asJava(snapshot.metadata().partitionColumns())]


def clustering(spark: SparkSession, snapshot: Any) -> tuple[str, ...]:
    """The columns by which OPTIMIZE clusters the table, by their names in files. Source: PROTOCOL.md,
    "Clustered Table": writers give their statistics in each file."""
    if "clustering" not in _features(snapshot):
        return ()  # to read the domains is a Spark job
    convert: Any = spark._jvm.scala.jdk.javaapi.CollectionConverters  # type: ignore[union-attr]
    for one in convert.asJava(snapshot.domainMetadata()):
        if one.domain() == "delta.clustering" and not one.removed():
            columns = json.loads(one.configuration())["clusteringColumns"]
            return tuple(".".join(parts) for parts in columns)
    return ()


def _is_partition_type(kind: pa.DataType) -> bool:
    """Whether values of this type are the same after they were texts in the log. An empty text is NULL
    then."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or kind == pa.date32())


def _has_bounds(kind: pa.DataType) -> bool:
    """Whether values of this type have bounds in `statistics`."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or kind in (pa.date32(), pa.string())
    )


def key_writer(writer: FileWriter, key: tuple[str, ...]) -> FileWriter | None:
    """A writer for files of keys, in the target's types. None: the target lacks a column of the key, has
    partitions by one, or the column holds floating-point numbers, of which the source takes 0 and -0 as
    equal."""
    if not set(key) <= set(writer.columns):
        return None
    by = {term.column for term in writer.layout.partitions} if isinstance(writer.layout, Layout) else set()
    if by & {writer.fields.field(writer.columns.index(name)).name for name in key}:
        return None  # files that Spark has written lack the columns of partitions
    fields = [writer.fields.field(writer.columns.index(name)) for name in key]
    if any(pa.types.is_floating(field.type) for field in fields):
        return None
    return replace(
        writer, fields=pa.schema(fields), sources=key, optional=frozenset(), strict=False, layout=None
    )


def generation(snapshot: Any) -> int:
    """The generation for which the table was fenced; 0: it never was."""
    found = snapshot.metadata().configuration().get(GENERATION)
    return int(found.get()) if found.isDefined() else 0


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
    """The location of a file that the log of the table in `folder` names. None: it is outside of the table's
    directory, like files of a shallow clone."""
    url = urlsplit(path)
    if url.scheme or url.netloc or url.path.startswith("/"):
        return None
    return f"{folder.location}/{unquote(url.path)}"


def _protocol(snapshot: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(snapshot.protocol().json())["protocol"]
    return found


def _features(snapshot: Any) -> set[str]:
    protocol = _protocol(snapshot)
    return {*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())}


def _is_plain(spark: SparkSession, snapshot: Any) -> bool:
    """Whether the table demands nothing of writers that is not implemented here."""
    if _protocol(snapshot)["minWriterVersion"] != 7 or _features(snapshot) - _KNOWN_FEATURES:
        return False
    convert = spark._jvm.scala.jdk.javaapi.CollectionConverters  # type: ignore[union-attr]
    properties = java_map(spark, convert.asJava(snapshot.metadata().configuration()))
    if properties.get("delta.columnMapping.mode") != "name":
        return False
    if any(name.startswith(_CONSTRAINTS) for name in properties):
        return False
    return all(properties.get(name, "false") == "false" for name in _FLAGS)


def _arrow_type(kind: Any) -> pa.DataType | None:
    if isinstance(kind, dict) and kind["type"] == "array" and kind["containsNull"]:
        element = _arrow_type(kind["elementType"]) if isinstance(kind["elementType"], str) else None
        return None if element is None else pa.list_(pa.field("element", element))
    if not isinstance(kind, str):
        return None
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    return _ARROW.get(kind) if decimal is None else pa.decimal128(int(decimal[1]), int(decimal[2]))


def added(file: WrittenFile, writer: FileWriter, clustered: Sequence[str] = ()) -> Action:
    """The log entry that adds a data file of the writer. The file is in the table's directory itself."""
    by = [term.column for term in writer.layout.partitions] if isinstance(writer.layout, Layout) else []
    values = {name: _partition_text(value) for name, value in zip(by, file.partition, strict=True)}
    stats = statistics(file, writer.fields, without=values, always=clustered)
    return {
        "add": {
            "path": file.location.rpartition("/")[2],
            "partitionValues": values,
            "size": file.size,
            "modificationTime": _now_ms(),
            "dataChange": True,
            "stats": json.dumps(stats),
        }
    }


def _partition_text(value: Any) -> str | None:
    """Source: PROTOCOL.md, "Partition Value Serialization"."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def removed(file: Mapping[str, Any]) -> Action:
    """The log entry that removes a data file. `file`: the entry that added it."""
    kept = ("path", "partitionValues", "size", "tags", "deletionVector", "stats")
    known = {name: file[name] for name in kept if file.get(name) is not None}
    new = {"deletionTimestamp": _now_ms(), "dataChange": True, "extendedFileMetadata": True}
    return {"remove": {**known, **new}}


def with_vector(file: Mapping[str, Any], stats: Mapping[str, Any], vector: dict[str, Any]) -> Action:
    """The log entry that gives a data file another deletion vector."""
    wider = {**stats, "tightBounds": False}
    return {"add": {**file, "dataChange": True, "stats": json.dumps(wider), "deletionVector": vector}}


def statistics(
    file: WrittenFile,
    fields: pa.Schema,
    *,
    text_max: int = STATS_TEXT_MAX,
    columns_max: int = STATS_COLUMNS_MAX,
    without: Container[str] = (),
    always: Sequence[str] = (),
) -> dict[str, Any]:
    """A file's statistics in Delta's form: the numbers of rows and NULLs, and the bounds of integers, times,
    and texts of at most `text_max` characters. Columns have their names in the file. `without`: columns that
    have none. `always`: columns that have them wherever they stand and however long their texts are."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for place, (field, column) in enumerate(zip(fields, file.columns, strict=True)):
        if (place >= columns_max and field.name not in always) or field.name in without:
            continue
        if column.nulls is None:
            continue
        longest = BOUND_BYTES_MAX if field.name in always else text_max
        nulls[field.name] = column.nulls
        if column.least is None or column.greatest is None:
            continue
        low = _bound(column.least, field.type, longest)
        high = _bound(column.greatest, field.type, longest)
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
    if pa.types.is_timestamp(kind):
        return _time(int(value), with_zone=kind.tz is not None)
    return None


def _time(micros: int, *, with_zone: bool) -> str | None:
    """Delta rounds times down to milliseconds, the greatest, too, which its readers know."""
    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=micros)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds") + ("Z" if with_zone else "")


def _now_ms() -> int:
    return int(time.time() * 1000)
