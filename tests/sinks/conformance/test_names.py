"""Names that a target, its engine or its readers have for themselves: the column arrives, or is refused."""

from __future__ import annotations

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
QUICK = ("_file", "_change_type", "_commit_timestamp", "_deleted", "_sequence", "ctid", "rowid", "_metadata")

names = pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in SUSPICIOUS]
)


@names
@pytest.mark.slow_for("delta")
def test_a_column_of_any_name_is_written_and_changed_or_refused_before_the_first_row(
    tables: Case, name: str
) -> None:
    it = tables.other(arrow=pa.schema([("id", pa.int64()), (name, pa.string())]))
    reserved = it.kind.example(it.folder).reserved(name) is not None or name.startswith("_penstock_")
    if reserved:
        with pytest.raises(TableError) as refused:
            it.create()
        assert f"`{name}`" in refused.value.message and refused.value.hint
        it = tables.other(arrow=pa.schema([("id", pa.int64()), ("other", pa.string())])).create()
        with pytest.raises(TableError):  # so is a column that comes later
            it.evolve(2, column("id", pa.int64(), "id"), column(name, pa.string()))
        return
    it = it.create()
    assert it.append(1, (1, "a", False, 10), (2, "b", False, 11))
    assert it.merge(2, (1, "A", False, 20), (2, None, True, 21), (3, "c", False, 22))
    both = [column("id", pa.int64(), "id"), column(name, pa.string(), name)]
    assert it.evolve(3, *both, column("v", pa.int32()))
    assert it.evolve(4, *both, column("v", pa.string(), "v"))
    it = it.with_columns(*both, column("v", pa.string()))
    assert it.merge(5, (4, "d", "x", False, 50))
    assert it.rows() == [(1, "A", None, 20), (3, "c", None, 22), (4, "d", "x", 50)]
    if isinstance(it.sink, Readable):
        found = it.frame().selectExpr(f"`{name}` AS found").collect()
        assert sorted(row["found"] for row in found) == ["A", "c", "d"]
    assert it.evolve(6, column("id", pa.int64(), "id"), column("new", pa.string(), name))
    assert it.with_columns(column("id", pa.int64()), column("new", pa.string())).rows()[0] == (1, "A", 20)


def test_columns_of_both_names_of_a_change_log_are_refused(tables: Case) -> None:
    fields = [("id", pa.int64()), ("_change_type", pa.string()), ("_commit_timestamp", pa.string())]
    with pytest.raises(TableError, match="_change_type"):
        tables.other(arrow=pa.schema(fields)).create()
