"""What messages say of the source depends on the kind of its log, and on nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.core.test_encode_binary import avro_reader, protobuf_reader

from penstock._core import RowEncoder, source_fields
from penstock.model.schema import Column, TableId, TableSchema

T = TableSchema(TableId("public", "t"), (Column("id", "int", nullable=False),), ("id",))
ROWS = pa.RecordBatch.from_pydict({"id": pa.array([1, 2], pa.int32())})
AT_US = 1_700_000_000_123_456

PLACES = {
    "mysql-binlog": ("binlog.000007:4711", "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"),
    "rows": ("1700000000000000", "2-1-17"),
    "pgoutput": ("16/B374D848", "571"),
}
BLOCKS: dict[str, dict[str, Any]] = {
    "mysql-binlog": {
        "connector": "mysql", "sequence": None, "table": "t", "server_id": 0,
        "gtid": PLACES["mysql-binlog"][1], "file": "binlog.000007", "pos": 4711, "row": 1,
        "thread": None, "query": None,
    },
    "rows": {
        "connector": "penstock", "sequence": None, "table": "t", "transaction": "2-1-17",
        "pos": 1700000000000000, "row": 1,
    },
    "pgoutput": {
        "connector": "postgresql", "sequence": f'["{0x16B374D848}","{0x16B374D848}"]', "schema": "public",
        "table": "t", "txId": 571, "lsn": 0x16B374D848, "xmin": None,
        "origin": None, "origin_lsn": None,
    },
}  # fmt: skip
"""As in Debezium's documentation of each connector. No tool has a connector for `rows`."""


def encoded(kind: str, format: str, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    encoder = RowEncoder(T.to_json(), format, options=json.dumps(options), segment_format=kind)
    place, transaction = PLACES[kind]
    found = encoder.encode(ROWS, at_us=AT_US, place=place, transaction=transaction)
    return [value for _, _, value, _ in found.messages()], encoder.message_schemas


@pytest.mark.parametrize("kind", list(PLACES))
def test_the_block_of_debezium_is_that_of_the_kind_in_all_forms(kind: str, tmp_path: Path) -> None:
    (_, value), _ = encoded(kind, "debezium", schemas=True)
    message = json.loads(value)
    block = message["payload"]["source"]
    assert BLOCKS[kind].items() <= block.items()
    common = {"version", "name", "ts_ms", "snapshot", "db", "ts_us", "ts_ns"}
    assert block.keys() == common | BLOCKS[kind].keys()
    [schema] = [one for one in message["schema"]["fields"] if one["field"] == "source"]
    assert [one["field"] for one in schema["fields"]] == list(block)
    assert schema["name"].endswith("Source") and (kind == "mysql-binlog") == ("mysql" in schema["name"])
    for format in ("avro", "protobuf"):
        values, schemas = encoded(kind, format)
        read = avro_reader(schemas) if format == "avro" else protobuf_reader(schemas, tmp_path)
        assert read(values[1])["source"] == block


@pytest.mark.parametrize(
    ("kind", "fields", "id"),
    [
        ("mysql-binlog", ("gtid", "file", "pos"), "name:penstock;file:binlog.000007;pos:4711;row:1"),
        ("rows", ("transaction", "pos"), "name:penstock;transaction:2-1-17;pos:1700000000000000;row:1"),
        ("pgoutput", ("xid", "lsn"), f"name:penstock;lsn:{0x16B374D848};txId:571"),
    ],
)
def test_other_formats_name_the_place_in_the_words_of_the_kind(
    kind: str, fields: tuple[str, ...], id: str
) -> None:
    (_, value), _ = encoded(kind, "json")
    fixed = ["database", "table", "op", "before", "after", "ts_us", "sequence"]
    assert [name for name in json.loads(value) if name not in fixed] == list(fields)
    (_, value), _ = encoded(kind, "cloudevents")
    event = json.loads(value)
    assert (event["id"], event["iodebeziumconnector"]) == (id, BLOCKS[kind]["connector"])
    assert ("iodebeziumgtid" in event, "iodebeziumtxid" in event) == (
        kind == "mysql-binlog",
        kind == "pgoutput",
    )


@pytest.mark.parametrize("kind", list(PLACES))
def test_a_message_that_is_not_about_a_row_says_the_same(kind: str) -> None:
    place, transaction = PLACES[kind]
    of: dict[str, Any] = {
        "place": place,
        "transaction": transaction,
        "at_us": AT_US,
        "database": "public",
        "table": "t",
    }
    (first, _), _ = encoded(kind, "debezium", topic_prefix="p")
    block = json.loads(source_fields(kind, "debezium", prefix="p", **of))
    assert block == json.loads(first)["source"] | {"snapshot": "false"}
    (first, _), _ = encoded(kind, "json")
    assert json.loads(source_fields(kind, "json", **of)).items() <= json.loads(first).items()


def test_a_kind_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="no segment format `clay`"):
        RowEncoder(T.to_json(), "json", segment_format="clay")
