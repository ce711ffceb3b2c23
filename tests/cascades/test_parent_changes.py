"""What is told of a parent's rows: deletions, and changes of the columns that keys refer to."""

from __future__ import annotations

import pyarrow as pa

from penstock.cascades.parent_changes import Watched, change_schema, changes_of
from penstock.model.schema import DEFAULT_TYPES, CascadingKey, Column, TableId, TableSchema

P = TableId("shop", "p")
SCHEMA = TableSchema(P, (Column("id", "int"), Column("note", "varchar"), Column("code", "varchar")), ("id",))
ROWS = [
    (1, "a", "insert", 10),
    (1, "a", "update_preimage", 20),
    (1, "a", "update_postimage", 21),
    (1, "a", "update_preimage", 30),
    (1, "A", "update_postimage", 31),
    (2, None, "update_preimage", 40),
    (3, None, "update_postimage", 41),
    (3, None, "update_preimage", 42),
    (3, "b", "update_postimage", 43),
    (3, "b", "delete", 50),
]


def key(column: str, on_delete: str, on_update: str) -> CascadingKey:
    return CascadingKey("k", ("x",), P, (column,), on_delete, on_update)


def found(*keys: CascadingKey) -> list[dict[str, object]]:
    watched = Watched.by(SCHEMA, keys)
    names = [SCHEMA.columns[place].name for place in watched.places]
    columns = {name: pa.array([row[at] for row in ROWS]) for at, name in enumerate(("id", "code"))}
    batch = pa.record_batch(
        {name: columns[name] for name in names}
        | {
            "_change_type": pa.array([row[2] for row in ROWS]),
            "_sequence": pa.array([row[3] for row in ROWS]),
        }
    )
    if "id" in names:
        batch = batch.set_column(names.index("id"), "id", batch.column("id").cast(pa.int32()))
    schema = change_schema(SCHEMA, watched, DEFAULT_TYPES)
    return [row for one in changes_of([batch], names, watched, schema) for row in one.to_pylist()]


def test_a_deletion_has_the_place_of_its_image_and_an_update_that_of_the_one_behind() -> None:
    changes = found(key("id", "CASCADE", "CASCADE"))
    assert changes == [
        {"o0": 3, "n0": None, "gone": True, "p": 50},
        {"o0": 2, "n0": 3, "gone": False, "p": 41},
    ]


def test_what_no_key_carries_on_is_left_out() -> None:
    assert [one["p"] for one in found(key("id", "RESTRICT", "SET NULL"))] == [41]
    assert [one["p"] for one in found(key("id", "SET NULL", "NO ACTION"))] == [50]


def test_texts_change_by_their_bytes_and_null_is_a_value() -> None:
    assert [(one["o2"], one["n2"]) for one in found(key("code", "RESTRICT", "CASCADE"))] == [
        ("a", "A"),
        (None, "b"),
    ]
