"""Where the columns of messages come from, and the definitions that they get."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock._core import arrow_schema
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.transforms import TransformRule
from penstock.transforms.lineage import Lineage, NoSuchType, column_for, definition, for_message

SCHEMA = TableSchema(
    TableId("shop", "orders"),
    (
        Column("id", "bigint", nullable=False, unsigned=True, column_type="bigint unsigned"),
        Column("name", "varchar", length=20, charset="latin1", default="secret", column_type="varchar(20)"),
        Column("kind", "enum", labels=("a", "b"), charset="utf8mb4", column_type="enum('a','b')"),
        Column("born", "date", column_type="date"),
        Column("doc", "json", column_type="json"),
    ),
    ("id",),
)
FIELDS = pa.schema(arrow_schema(SCHEMA.to_json(), "rows"))


def followed(*rules: tuple[dict[str, Any], list[str], list[str]]) -> Lineage:
    lineage = Lineage.of(FIELDS.names)
    for rule, looked_at, result in rules:
        lineage.add(TransformRule(tables="shop.*", **rule), looked_at, result)
    return lineage


def shown(lineage: Lineage, **kinds: pa.DataType) -> TableSchema:
    names = list(lineage.lines)
    known = {name: FIELDS.field(name).type for name in FIELDS.names} | kinds
    result = pa.schema([(name, known[name]) for name in names])
    lines = [lineage.lines[name] for name in names]
    return definition(SCHEMA, TableId("a", "b"), lines, FIELDS, result, lineage.key(SCHEMA.key))


def test_a_column_that_no_rule_touches_keeps_its_definition_under_its_new_name() -> None:
    lineage = followed(({"rename": {"kind": "sort"}, "exclude": ["doc"]}, [], ["id", "name", "sort", "born"]))
    table = shown(lineage, sort=pa.string())
    assert table.table == TableId("a", "b") and table.key == ("id",)
    assert table.column("sort") == Column(
        "sort", "enum", labels=("a", "b"), charset="utf8mb4", column_type="enum('a','b')"
    )
    assert table.column("name") == SCHEMA.column("name")
    assert lineage.needed == set()


def test_a_masked_column_keeps_its_type_if_every_value_fits_and_never_its_default() -> None:
    names = list(FIELDS.names)
    table = shown(followed(({"mask": ["name", "kind", "born", "doc"]}, [], names)))
    found = [(one.type, one.default, one.nullable) for one in table.columns[1:]]
    assert found == [
        ("varchar", None, True), ("longtext", None, True), ("date", None, True), ("longtext", None, True),
    ]  # fmt: skip


def test_hashes_are_texts_and_identify_rows_and_masked_columns_do_not() -> None:
    names = list(FIELDS.names)
    lineage = followed(({"hash": ["id"]}, [], names))
    table = shown(lineage, id=pa.string())
    assert table.key == ("id",)
    assert (table.column("id").type, table.column("id").length, table.column("id").nullable) == (
        "varchar", 64, False,
    )  # fmt: skip
    assert shown(followed(({"mask": {"id": 0}}, [], names))).key == ()
    assert (
        shown(followed(({"mask": {"id": 0}}, [], names), ({"hash": ["id"]}, [], names)), id=pa.string()).key
        == ()
    )
    assert (
        shown(followed(({"hash": ["id"]}, [], names), ({"mask": {"id": "x"}}, [], names)), id=pa.string()).key
        == ()
    )
    assert shown(followed(({"exclude": ["id"]}, [], names[1:]))).key == ()


def test_only_the_columns_that_rules_look_at_are_needed() -> None:
    names = list(FIELDS.names)
    renamed = [("kind" if name == "name" else "name" if name == "kind" else name) for name in names]
    lineage = followed(
        ({"rename": {"name": "kind", "kind": "name"}}, [], renamed),
        ({"columns": {"long": "upper(kind)"}, "hash": ["name"]}, ["kind"], [*renamed, "long"]),
    )
    assert lineage.needed == {"name", "kind"}
    assert lineage.lines["kind"].source == "name" and lineage.lines["kind"].how == "kept"
    assert lineage.lines["name"].source == "kind" and lineage.lines["name"].how == "hashed"
    assert lineage.lines["long"].source is None
    lineage = followed(({"python": "a:b"}, [], ["id", "other"]))
    assert lineage.needed == set(names)
    assert [(one.source, one.how) for one in lineage.lines.values()] == [
        ("id", "computed"),
        (None, "computed"),
    ]


@pytest.mark.parametrize(
    ("values", "type", "given"),
    [
        (pa.array([True, None]), "tinyint", [1, None]),
        (pa.array([200], pa.uint8()), "smallint", [200]),
        (pa.array([2**64 - 1], pa.uint64()), "decimal", [2**64 - 1]),
        (pa.array(["x"], pa.large_string()), "longtext", ["x"]),
        (pa.array([[1, None], None, []]), "list", [[1, None], None, []]),
        (pa.array([[[1]]]), "json", ["[[1]]"]),
        (pa.array([{"a": "ä"}]), "json", ['{"a":"ä"}']),
        (pa.array([1], pa.time64("us")), "longtext", ["00:00:00.000001"]),
        (pa.array([None]), "longtext", [None]),
    ],
)
def test_a_new_column_gets_the_type_that_fits_its_values(
    values: pa.Array, type: str, given: list[Any]
) -> None:
    assert column_for("c", values.type).type == type
    assert for_message(values).to_pylist() == given


def test_a_type_that_no_message_has_is_refused() -> None:
    with pytest.raises(NoSuchType):
        column_for("c", pa.duration("s"))
