"""Writes files of Iceberg tables without Spark, and describes them to Iceberg."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.sinks.files import FIELD_ID, FileWriter, Value, WrittenFile, field_id
from penstock.sinks.lake.access import Access
from penstock.sinks.lake.iceberg.layout import layout_of
from penstock.sinks.lake.java_errors import JAVA_ERRORS, JavaError, class_of
from penstock.sinks.lake.java_loops import Handle, JavaLoops
from penstock.sinks.lake.terms import Term
from penstock.store.files import Files, Folder, remove_quietly

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
"""Iceberg's names of the types that a target can have, except decimals and lists, which have parameters."""


def file_writer(classes: Classes, target: Any) -> FileWriter | None:
    """A writer for data files of a table. None: the table needs Spark's writer, because it has another file
    format, or partitions of a kind that is not supported here, or is in a store that Penstock cannot reach by
    itself."""
    wanted, codec = target.properties().get("write.format.default"), target.properties().get(CODEC)
    folder = classes.folder(target)
    if folder is None or wanted not in (None, "parquet"):
        return None
    fields, names, optional = [], {}, set()
    for column in schema_fields(classes, target):
        kind = _arrow_type(column["type"])
        if kind is None:
            return None
        fields.append(pa.field(column["name"], kind, metadata={FIELD_ID: str(column["id"])}))
        names[column["id"]] = column["name"]
        if not column["required"]:
            optional.add(column["name"])
    layout = layout_of(*classes.layout_json(target), pa.schema(fields), names)
    if layout is None:
        return None
    if codec is None:
        codec = "zstd"
    elif codec not in ("zstd", "gzip", "snappy", "lz4"):
        codec = "none"
    return FileWriter(
        folder, pa.schema(fields), codec, frozenset(optional), strict=True, layout=layout if layout else None
    )


def key_writer(writer: FileWriter, key: tuple[str, ...]) -> FileWriter | None:
    """A writer for files of keys, in the target's types. None: the target lacks a column of the key, or the
    column holds floating-point numbers, of which the source takes 0 and -0 as equal."""
    fields = []
    for name in key:
        place = writer.fields.get_field_index(name)
        if place < 0 or pa.types.is_floating(writer.fields.field(place).type):
            return None
        fields.append(writer.fields.field(place))
    return FileWriter(writer.folder, pa.schema(fields), writer.compression)


def schema_fields(classes: Classes, target: Any) -> list[dict[str, Any]]:
    """The columns of a table (`id`, `name`, `required`, `type`), read from the JVM in one call."""
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


def decimal_parts(name: str) -> tuple[int, int] | None:
    """Precision and scale of Iceberg's name of a decimal type. None: it is another type."""
    decimal = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", name)
    return None if decimal is None else (int(decimal[1]), int(decimal[2]))


def list_element(kind: Any) -> str | None:
    """The type of the elements of a list, which may be NULL and are no lists. None: it is another type."""
    is_list = isinstance(kind, dict) and kind["type"] == "list" and not kind["element-required"]
    return kind["element"] if is_list and isinstance(kind["element"], str) else None


def _arrow_type(kind: Any) -> pa.DataType | None:
    if (element := list_element(kind)) is not None:
        of = _arrow_type(element)
        metadata = {FIELD_ID: str(kind["element-id"])}
        return None if of is None else pa.list_(pa.field("element", of, metadata=metadata))
    if not isinstance(kind, str):
        return None
    parts = decimal_parts(kind)
    return _ARROW.get(kind) if parts is None else pa.decimal128(*parts)


_SNAPSHOTS_MAX = 100
"""Snapshots that are looked through for files of a commit that was refused."""
_REFUSALS = ("ValidationException", "CommitFailedException")


def is_refused(error: JavaError) -> bool:
    """Whether Iceberg has refused a commit: it certainly failed."""
    return class_of(error) in _REFUSALS


@contextmanager
def removed_if_refused(target: Any, files: Files, locations: Iterable[str]) -> Iterator[None]:
    """Removes files that were written for a commit if the commit certainly failed: Iceberg refused it, and
    the table does not have them, or an error came before it. If this is unknown (the catalog did not answer,
    the JVM has ended), the files stay. `locations` may grow during the `with` block.

    A refusal alone proves nothing. The answer to the first attempt may be lost, as when a connection to the
    database of a catalog breaks. Then Iceberg tries again, and the second attempt meets the first one."""
    seen = target.currentSnapshot()
    since = None if seen is None else seen.snapshotId()
    try:
        yield
    except Exception as error:
        if isinstance(error, JAVA_ERRORS):
            refused = is_refused(error) and not _has_any(target, set(locations), since)
        else:
            refused = not isinstance(error, Py4JError | OSError)
        if refused:
            remove_quietly(files, locations)
        raise


def _has_any(target: Any, locations: Container[str], since: int | None) -> bool:
    """Whether a snapshot after this one has added one of the files, or may have."""
    try:
        target.refresh()
        snapshot, io = target.currentSnapshot(), target.io()
        for _ in range(_SNAPSHOTS_MAX):
            if snapshot is None or snapshot.snapshotId() == since:
                return False
            for added in (snapshot.addedDataFiles(io), snapshot.addedDeleteFiles(io)):
                if any(str(one.location()) in locations for one in java_items(added)):
                    return True
            parent = snapshot.parentId()
            snapshot = None if parent is None else target.snapshot(parent)
    except Py4JError:
        pass
    return True


def described(
    classes: Classes,
    spec: Any,
    file: WrittenFile,
    fields: pa.Schema,
    *,
    sort_order: int = 0,
) -> Any:
    """Describes a Parquet file of a table to Iceberg: see `description`.

    Iceberg's own reader of footers would load Hadoop's configuration for each file, which takes as long as
    the rest of a small commit.
    """
    form = description(spec.specId(), file, fields, sort_order=sort_order)
    return classes.described(form, spec)


def description(
    spec_id: int,
    file: WrittenFile,
    fields: pa.Schema,
    *,
    sort_order: int = 0,
) -> dict[str, Any]:
    """Describes a Parquet file of a table, in Iceberg's JSON. `spec_id`: of the spec of the file's
    partition. `fields`: its columns. `sort_order`: id of the order in which its rows are. 0: in none."""
    columns = {
        number: column
        for field, column in zip(fields, file.columns, strict=True)
        if (number := field_id(field)) is not None
        and number < RESERVED_IDS
        and not pa.types.is_nested(field.type)  # Iceberg counts what its elements are, which is optional
    }
    lower, upper = bounds(file, fields)
    form: dict[str, Any] = {
        "spec-id": spec_id,
        "content": "DATA",
        "file-path": file.location,
        "file-format": "PARQUET",
        "partition": list(file.partition),
        "file-size-in-bytes": file.size,
        "record-count": file.rows,
        "column-sizes": _pairs({number: column.bytes for number, column in columns.items()}),
        "value-counts": _pairs({number: column.values for number, column in columns.items()}),
        "null-value-counts": _pairs(
            {number: column.nulls for number, column in columns.items() if column.nulls is not None}
        ),
        "lower-bounds": _pairs({number: value.hex() for number, value in lower.items()}),
        "upper-bounds": _pairs({number: value.hex() for number, value in upper.items()}),
        "split-offsets": list(file.row_groups),
    }
    if sort_order:
        form["sort-order-id"] = sort_order
    return form


def _pairs(values: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}


def bounds(file: WrittenFile, fields: pa.Schema) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """The least and greatest values of columns by field id, in Iceberg's single-value serialization."""
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for field, column in zip(fields, file.columns, strict=True):
        number = field_id(field)
        if number is None or number >= RESERVED_IDS or column.least is None or column.greatest is None:
            continue
        least, greatest = _bound(column.least, field.type), _bound(column.greatest, field.type)
        if least is not None and greatest is not None:
            lower[number], upper[number] = least, greatest
    return lower, upper


def _bound(value: Value, kind: pa.DataType) -> bytes | None:
    """Serializes a value from Parquet's physical form. Python's own form has no dates before the year 1,
    which MySQL has. None: the type has no bounds here."""
    if isinstance(value, bytes):
        return value if kind in (pa.string(), pa.binary()) else None
    if isinstance(value, float):
        form = {pa.float32(): "<f", pa.float64(): "<d"}.get(kind)
        return None if form is None else struct.pack(form, value)
    if pa.types.is_decimal(kind):
        # The shortest form in two's complement.
        return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
    if kind in (pa.int32(), pa.date32()):
        return struct.pack("<i", value)
    if kind == pa.int64() or pa.types.is_timestamp(kind):
        return struct.pack("<q", value)
    return None


@dataclass(frozen=True)
class Step:
    """How a commit adds or removes one file, in names of Iceberg's Java API: the class of the change, its
    method, and the class of the file that the method takes."""

    change: str
    method: str
    file: str


ADD_DELETES = Step("RowDelta", "addDeletes", "DeleteFile")
REMOVE_DELETES = Step("RowDelta", "removeDeletes", "DeleteFile")
DELETE_DATA = Step("RewriteFiles", "deleteFile", "DataFile")
DELETE_DELETES = Step("RewriteFiles", "deleteFile", "DeleteFile")
ADD_DATA = Step("RewriteFiles", "addFile", "DataFile")
ADD_VECTORS = Step("RewriteFiles", "addFile", "DeleteFile")

_FEW = 4
"""Up to this number, files are described to Java one by one. A loop in Java costs as much as a dozen
calls."""
_PACKAGE = "org.apache.iceberg"
_NODE = f"{_PACKAGE}.shaded.com.fasterxml.jackson.databind.JsonNode"


class Classes:
    """Iceberg's Java classes and methods, looked up once. Each lookup asks the JVM for each part of a
    name."""

    def __init__(self, jvm: Any, access: Access) -> None:
        iceberg = jvm.org.apache.iceberg
        self._access = access
        self._content_file = iceberg.ContentFileParser.fromJson
        self._json = iceberg.util.JsonUtil.mapper()
        self.schema_json = iceberg.SchemaParser.toJson
        self.data_manifest = iceberg.ManifestFiles.read
        self.delete_manifest = iceberg.ManifestFiles.readDeleteManifest
        self.everything = iceberg.expressions.Expressions.alwaysTrue()
        self.equal = iceberg.expressions.Expressions.equal
        self.spec_json = iceberg.PartitionSpecParser.toJson
        self._order_json = iceberg.SortOrderParser.toJson
        self._expressions = iceberg.expressions.Expressions
        self._null_order = iceberg.NullOrder
        self._list = jvm.java.util.ArrayList
        self._list_class = jvm.java.lang.Class.forName("java.util.ArrayList")
        self._specs: tuple[Any, dict[int, Any]] = None, {}
        """The last table that was asked for, and its partition specs by id."""
        self.long_type = iceberg.types.Types.LongType.get()
        self._version = iceberg.TableUtil.formatVersion
        self._lister = iceberg.io.SupportsPrefixOperations
        self._jvm = jvm
        self._loops = JavaLoops(jvm)
        parser, kind = f"{_PACKAGE}.ContentFileParser", f"{_PACKAGE}.ContentFile"
        self._from_json = self._loops.method(parser, "fromJson", _NODE, "java.util.Map")
        self._to_json = self._loops.method(parser, "toJson", kind, f"{_PACKAGE}.PartitionSpec")
        self._sequence = self._loops.function(self._loops.method(kind, "dataSequenceNumber"))
        self._steps: dict[Step, Handle] = {}

    def folder(self, target: Any) -> Folder | None:
        """The folder of a table's data files. None: Penstock cannot read and write there by itself. The files
        of an encrypted table are Iceberg's alone."""
        if target.properties().get("encryption.key-id") is not None:
            return None
        location = target.locationProvider().newDataLocation("file").rpartition("/")[0]
        return self._access.folder(location, target.io())

    def format_version(self, target: Any) -> int:
        return int(self._version(target))

    def is_v3(self, target: Any) -> bool:
        """Whether the table's format version has deletion vectors, and defaults for existing rows. Some
        catalogs make tables of version 2, whatever they are asked for."""
        return bool(self._version(target) >= 3)

    def described(self, form: Mapping[str, Any], spec: Any) -> Any:
        """A data or delete file from its description: see `ContentFileParser` of Iceberg."""
        return self._content_file(self._json.readTree(json.dumps(form)), spec)

    def data_file(self, target: Any, form: Mapping[str, Any]) -> Any:
        """A file of a table from its description, which names the spec of its partition."""
        return self.described(form, self._spec(target, form["spec-id"]))

    def for_each(self, target: Any, step: Step, change: Any, described: Sequence[Mapping[str, Any]]) -> None:
        """Calls a method of a change for each file. They are described as for `described`."""
        if len(described) <= _FEW:
            for form in described:
                getattr(change, step.method)(self.data_file(target, form))
            return
        if step not in self._steps:
            names = (f"{_PACKAGE}.{step.change}", step.method, f"{_PACKAGE}.{step.file}")
            self._steps[step] = self._loops.method(*names)
        read = self._loops.function(self._loops.with_second(self._from_json, target.specs()))
        files = self._loops.of(self._json.readTree(json.dumps(described))).map(read)
        files.forEach(self._loops.consumer(self._steps[step].bindTo(change)))

    def contents(self, reader: Any) -> list[tuple[dict[str, Any], int]]:
        """The files in a manifest, described in JSON, and the sequence number of each. Closes its reader."""
        try:
            files = self._loops.of(reader).toList()
            text = self._loops.function(self._loops.with_second(self._to_json, reader.spec()))
            described = self._loops.json_list(self._loops.of(files).map(text))
            sequences = self._loops.json_list(self._loops.of(files).map(self._sequence))
        finally:
            reader.close()
        return list(zip(described, sequences, strict=True))

    def layout_json(self, target: Any) -> tuple[str, str]:
        """The partition spec and the sort order of a table."""
        return self.spec_json(target.spec()), self._order_json(target.sortOrder())

    def identity_columns(self, target: Any) -> frozenset[int]:
        """Ids of the columns by whose values the table is or was partitioned."""
        specs = [json.loads(self.spec_json(spec)) for spec in target.specs().values()]
        fields = [field for spec in specs for field in spec["fields"] if field["transform"] == "identity"]
        return frozenset(field["source-id"] for field in fields)

    def _spec(self, target: Any, number: int) -> Any:
        """A partition spec of a table, present or earlier."""
        whose, known = self._specs
        if whose is not target:
            whose, known = target, {}
            self._specs = whose, known
        if number not in known:
            known[number] = target.specs()[number]
        return known[number]

    def list_of(self, values: Sequence[str]) -> Any:
        """A Java list."""
        return self._json.readValue(json.dumps(values), self._list_class)

    def identifiers(self, target: Any) -> list[str]:
        """Names of the identifier fields."""
        return list(java_items(target.schema().identifierFieldNames()))

    def term(self, term: Term) -> Any:
        """A term of Iceberg's expressions."""
        if term.transform == "identity":
            return self._expressions.ref(term.column)
        make = getattr(self._expressions, term.transform)
        return make(term.column) if term.width is None else make(term.column, term.width)

    def null_order(self, *, first: bool) -> Any:
        return self._null_order.NULLS_FIRST if first else self._null_order.NULLS_LAST

    def lists_files(self, io: Any) -> bool:
        """Whether a `FileIO` of Iceberg can list a directory."""
        return bool(self._lister._java_lang_class.isInstance(io))

    def one_thread(self) -> Any:
        """A Java executor with one thread, which does not keep the process alive."""
        return self._jvm.java.util.concurrent.ForkJoinPool(1)

    def collector(self) -> tuple[Any, Any]:
        """A Java list, and a Java `Consumer` that adds to it."""
        found = self._list()
        add = self._loops.method("java.util.ArrayList", "add", "java.lang.Object")
        return found, self._loops.consumer(add.bindTo(found))
