"""Names that a target, its engine or its readers have for themselves: the column arrives, or is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conformance.case import Case, column

from penstock.errors import TableError
from penstock.sinks.base import Readable

SUSPICIOUS = (
    # Iceberg, and what its views of changes add
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
    "_change_type", "_change_ordinal", "_commit_snapshot_id", "file_path", "pos", "row",
    # Delta and Spark
    "_metadata", "_commit_version", "_commit_timestamp", "_row_commit_version", "__row_index",
    # PostgreSQL, MySQL, SQLite, DuckDB
    "ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "oid", "rowid", "_rowid_", "my_row_id", "_rowid",
    "DB_ROW_ID", "DB_TRX_ID", "DB_ROLL_PTR", "FTS_DOC_ID", "row_start", "row_end", "filename",
    # OpenSearch
    "_id", "_source", "_index", "_type", "_routing", "_field_names", "_ignored", "_size", "_seq_no",
    "_score", "_doc_count", "_meta", "_tier", "_nested_path", "_doc", "_primary_term", "_feature",
    # ClickHouse
    "_table", "_part", "_part_index", "_part_uuid", "_partition_id", "_sample_factor", "_part_offset",
    "_block_number", "_block_offset", "_row_exists", "_partition_value", "_shard_num",
    # Penstock
    "_sequence", "_penstock_next_v", "_penstock_deleted", "_present", "_base", "penstock_commit",
)  # fmt: skip
CHANGE_LOG = {"_change_type", "_commit_timestamp"}


def is_reserved(it: Case, name: str) -> bool:
    return it.kind.example(it.folder).reserved(name) is not None or name.startswith("_penstock_")


@pytest.mark.slow_for("delta")
def test_columns_of_any_name_that_is_not_reserved_are_written_changed_and_read(tables: Case) -> None:
    names = [name for name in SUSPICIOUS if not is_reserved(tables, name)]
    if set(names) >= CHANGE_LOG:
        names.remove("_commit_timestamp")  # a table of its own has it, below
    assert len(names) > 40
    of_any_names(tables, names)


def test_a_column_with_the_time_of_a_change_log_is_written_changed_and_read(tables: Case) -> None:
    if not is_reserved(tables, "_commit_timestamp"):
        of_any_names(tables, ["_commit_timestamp"])


def of_any_names(tables: Case, names: list[str]) -> None:
    fields = [pa.field("id", pa.int64()), *[pa.field(name, pa.string()) for name in names]]
    it = tables.other(arrow=pa.schema(fields)).create()

    def row(number: int, text: str | None, gone: bool, *, more: tuple[str, ...] = ()) -> tuple[Any, ...]:
        texts = [None if text is None else f"{text} {place}" for place in range(len(names))]
        return (number, *texts, *more, gone, 10 * number)

    assert it.append(1, row(1, "a", False), row(2, "b", False))
    assert it.merge(2, row(5, "c", False), (*row(2, None, True)[:-1], 21), (*row(1, "A", False)[:-1], 20))
    whole = [column(field.name, field.type, field.name) for field in fields]
    assert it.evolve(3, *whole, column("v", pa.int32()))
    assert it.evolve(4, *whole, column("v", pa.string(), "v"))
    it = it.with_columns(*whole, column("v", pa.string()))
    assert it.merge(5, row(6, "d", False, more=("x",)))
    expected = [(1, "A", None, 20), (5, "c", None, 50), (6, "d", "x", 60)]
    assert it.rows() == [(*row(one, text, False)[:-2], v, at) for one, text, v, at in expected]
    if isinstance(it.sink, Readable):  # each can be named
        found = it.frame().selectExpr("id", *[f"`{name}` AS c{place}" for place, name in enumerate(names)])
        assert sorted(map(tuple, found.collect())) == [
            row(one, text, False)[:-2] for one, text, *_ in expected
        ]
    others = [column(f"new{place}", pa.string(), name) for place, name in enumerate(names)]
    assert it.evolve(6, column("id", pa.int64(), "id"), *others)
    assert it.with_columns(column("id", pa.int64()), *others).rows()[0] == (*row(1, "A", False)[:-2], 20)


def test_a_column_of_a_reserved_name_is_refused_before_the_first_row_and_when_it_comes_later(
    tables: Case,
) -> None:
    reserved = [name for name in SUSPICIOUS if is_reserved(tables, name)]
    assert "_sequence" in reserved and "_penstock_deleted" in reserved
    later = tables.other().create()
    for name in reserved:
        with pytest.raises(TableError) as refused:
            tables.other(arrow=pa.schema([("id", pa.int64()), (name, pa.string())])).create()
        assert f"`{name}`" in refused.value.message and refused.value.hint
        with pytest.raises(TableError):
            later.evolve(2, column("id", pa.int64(), "id"), column(name, pa.string()))


def test_columns_of_both_names_of_a_change_log_are_refused(tables: Case) -> None:
    fields = [("id", pa.int64()), ("_change_type", pa.string()), ("_commit_timestamp", pa.string())]
    with pytest.raises(TableError, match="_change_type"):
        tables.other(arrow=pa.schema(fields)).create()
