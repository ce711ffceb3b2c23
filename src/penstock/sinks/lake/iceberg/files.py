"""Writes files of Iceberg tables without Spark, and describes them to Iceberg."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from penstock.sinks.files import FIELD_ID, FileWriter, field_id

BOUND_BYTES_MAX = 256
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
RESERVED_IDS = 2147483447
"""Field ids from here on are reserved for Iceberg's own columns. Source: Iceberg's specification, "Reserved
Field IDs"."""
CODEC = "write.parquet.compression-codec"

_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
"""Iceberg's names of the types that a target can have, except decimals, which have parameters."""


def file_writer(classes: Classes, target: Any) -> FileWriter | None:
    """A writer for data files of a table. None: the table needs Spark's writer, because it has partitions or
    another file format, or is not in a local directory."""
    wanted, codec = target.properties().get("write.format.default"), target.properties().get(CODEC)
    folder = data_folder(target)
    if folder is None or wanted not in (None, "parquet") or not target.spec().isUnpartitioned():
        return None
    fields = []
    for column in schema_fields(classes, target):
        kind = _arrow_type(column["type"]) if isinstance(column["type"], str) else None
        if kind is None:
            return None
        fields.append(pa.field(column["name"], kind, metadata={FIELD_ID: str(column["id"])}))
    if codec is None:
        codec = "zstd"
    elif codec not in ("zstd", "gzip", "snappy", "lz4"):
        codec = "none"
    return FileWriter(str(folder), pa.schema(fields), codec)


def key_writer(writer: FileWriter, key: tuple[str, ...]) -> FileWriter | None:
    """A writer for files of keys, in the target's types. None: the target lacks a column of the key, or the
    column holds floating-point numbers, of which the source takes 0 and -0 as equal."""
    fields = []
    for name in key:
        place = writer.fields.get_field_index(name)
        if place < 0 or pa.types.is_floating(writer.fields.field(place).type):
            return None
        fields.append(writer.fields.field(place))
    return FileWriter(writer.directory, pa.schema(fields), writer.compression)


def schema_fields(classes: Classes, target: Any) -> list[dict[str, Any]]:
    """The columns of a table (`id`, `name`, `type`), read from the JVM in one call."""
    fields: list[dict[str, Any]] = json.loads(classes.schema_json(target.schema()))["fields"]
    return fields


def is_directory_catalog(spark: SparkSession, catalog: str, path: Path) -> bool:
    """Whether a catalog is a Hadoop catalog in this directory, which has a directory for each table."""
    prefix = f"spark.sql.catalog.{catalog}"
    kind, place = (spark.conf.get(f"{prefix}.{name}", "") for name in ("type", "warehouse"))
    return kind == "hadoop" and place == str(path)


def is_half_made(path: Path) -> bool:
    """Whether a directory contains only the remains of an interrupted creation of a table.

    A Hadoop catalog writes the first metadata file under a temporary name and then renames it, which creates
    the table. If the process is killed in between, the temporary file remains, and the table can still be
    created."""
    if [entry.name for entry in path.iterdir()] != ["metadata"]:
        return False
    names = [file.name for file in (path / "metadata").iterdir()]
    return all(re.fullmatch(r"\.?[0-9a-f-]{36}\.metadata\.json(\.crc)?", name) for name in names)


def data_folder(target: Any) -> Path | None:
    """The directory of a table's data files. None: it is not local."""
    location = target.locationProvider().newDataLocation("file")
    if _SCHEME.match(location) and not location.startswith("file:"):
        return None
    return local_path(location).parent


def local_path(location: str) -> Path:
    """The local path for a location in Iceberg's metadata. A location looks like a URL but is none: `%`, `?`
    and `#` in it are ordinary characters. So a table called `x%2F..%2Fy` has its files in its own
    directory."""
    if not location.startswith("file:"):
        return Path(location)
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def java_items(found: Any) -> Iterator[Any]:
    """Iterates over a Java `Iterable`."""
    one_by_one = found.iterator()
    while one_by_one.hasNext():
        yield one_by_one.next()


def closeable_items(found: Any) -> Iterator[Any]:
    """Iterates over a Java `CloseableIterable` and closes it."""
    try:
        yield from java_items(found)
    finally:
        found.close()


def _arrow_type(name: str) -> pa.DataType | None:
    decimal = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", name)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _ARROW.get(name)


_REFUSALS = ("ValidationException", "CommitFailedException")


@contextmanager
def removed_if_refused(paths: Iterable[str]) -> Iterator[None]:
    """Deletes files that were written for a commit if the commit certainly failed: Iceberg refused it, or an
    error came before it. If this is unknown (the catalog did not answer, the JVM has ended), the files are
    kept. `paths` may grow during the `with` block."""
    try:
        yield
    except Exception as error:
        if isinstance(error, Py4JJavaError):
            refused = error.java_exception.getClass().getSimpleName() in _REFUSALS
        else:
            refused = not isinstance(error, Py4JError | OSError)
        if refused:
            for path in paths:
                local_path(path).unlink(missing_ok=True)
        raise


class Described:
    """Describes Parquet files of one unpartitioned table to Iceberg, with row counts and bounds."""

    def __init__(self, classes: Classes, target: Any) -> None:
        self._classes = classes
        self._io = target.io()
        self._spec = target.spec()
        self._metrics = classes.metrics_for(target)

    def data(self, path: str) -> Any:
        file = self._io.newInputFile(path)
        metrics = self._classes.file_metrics(file, self._metrics)
        builder = self._classes.data_file(self._spec).withInputFile(file).withFormat("parquet")
        return builder.withMetrics(metrics).build()


def small_file(classes: Classes, spec: Any, path: str, deletes_by: Sequence[int] = ()) -> Any:
    """Describes a Parquet file of an unpartitioned table to Iceberg, from its footer. Iceberg's own reader
    would load Hadoop's configuration for each file, which takes as long as the rest of a small commit.
    `deletes_by`: the file contains equality deletes by these field ids."""
    footer = pq.read_metadata(path)
    lower, upper = bounds(footer)
    described: dict[str, Any] = {
        "spec-id": spec.specId(),
        "content": "EQUALITY_DELETES" if deletes_by else "DATA",
        "file-path": path,
        "file-format": "PARQUET",
        "partition": {},
        "file-size-in-bytes": Path(path).stat().st_size,
        "record-count": footer.num_rows,
        "lower-bounds": {"keys": list(lower), "values": [value.hex() for value in lower.values()]},
        "upper-bounds": {"keys": list(upper), "values": [value.hex() for value in upper.values()]},
    }
    if deletes_by:
        described["equality-ids"] = list(deletes_by)
    return classes.described(described, spec)


def bounds(footer: pq.FileMetaData) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """The least and greatest values of columns by field id, in Iceberg's single-value serialization. Only for
    types that Iceberg, Parquet and Arrow order in the same way."""
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for place, field in enumerate(footer.schema.to_arrow_schema()):
        form, number = _bound_form(field.type), field_id(field)
        groups = [footer.row_group(at).column(place) for at in range(footer.num_row_groups)]
        found = [group.statistics for group in groups if group.is_stats_set]
        complete = bool(found) and len(found) == len(groups) and all(one.has_min_max for one in found)
        if form is None or number is None or number >= RESERVED_IDS or not complete:
            continue
        least, greatest = form(min(one.min_raw for one in found)), form(max(one.max_raw for one in found))
        if max(len(least), len(greatest)) <= BOUND_BYTES_MAX:
            lower[number], upper[number] = least, greatest
    return lower, upper


def _bound_form(kind: pa.DataType) -> Callable[[Any], bytes] | None:
    """Serializes a value from Parquet's raw form. Python's own form has no dates before the year 1, which
    MySQL has. None: the type has no bounds here."""
    if kind in (pa.int32(), pa.date32()):
        return lambda value: struct.pack("<i", value)
    if kind == pa.int64():
        return lambda value: struct.pack("<q", value)
    return bytes if kind == pa.string() else None


class Classes:
    """Iceberg's Java classes and methods, looked up once. Each lookup asks the JVM for each part of a
    name."""

    def __init__(self, jvm: Any) -> None:
        iceberg = jvm.org.apache.iceberg
        self.data_file = iceberg.DataFiles.builder
        self.metrics_for = iceberg.MetricsConfig.forTable
        self.file_metrics = iceberg.parquet.ParquetUtil.fileMetrics
        self.content_json = iceberg.ContentFileParser.toJson
        self._content_file = iceberg.ContentFileParser.fromJson
        self._json = iceberg.util.JsonUtil.mapper()
        self.schema_json = iceberg.SchemaParser.toJson
        self.data_manifest = iceberg.ManifestFiles.read
        self.delete_manifest = iceberg.ManifestFiles.readDeleteManifest
        self.everything = iceberg.expressions.Expressions.alwaysTrue()
        self.equal = iceberg.expressions.Expressions.equal
        self._list = jvm.java.util.ArrayList
        self._lister = iceberg.io.SupportsPrefixOperations
        self._jvm = jvm

    def described(self, described: Mapping[str, Any], spec: Any) -> Any:
        """A data or delete file from its description, which has the form of `content_json`."""
        return self._content_file(self._json.readTree(json.dumps(described)), spec)

    def list_of(self, values: Sequence[str]) -> Any:
        """A Java list."""
        found = self._list()
        for value in values:
            found.add(value)
        return found

    def lists_files(self, io: Any) -> bool:
        """Whether a `FileIO` of Iceberg can list a directory."""
        return bool(self._lister._java_lang_class.isInstance(io))

    def collector(self) -> tuple[Any, Any]:
        """A Java list, and a Java `Consumer` that adds to it."""
        found, java = self._list(), self._jvm.java.lang
        handles, kind = java.invoke.MethodHandles.publicLookup(), java.Class.forName
        adds = java.invoke.MethodType.methodType(java.Boolean.TYPE, kind("java.lang.Object"))
        add = handles.bind(found, "add", adds)
        consumer = kind("java.util.function.Consumer")
        return found, java.invoke.MethodHandleProxies.asInterfaceInstance(consumer, add)
