"""Keys that somebody names, as SQL."""

from __future__ import annotations

from penstock.model.schema import Column, TableId, TableSchema
from penstock.sources.mysql.snapshot.keys import key_condition

T = TableId("shop", "t")
NAME = Column("name", "varchar", column_type="varchar(20)", charset="latin1", collation="latin1_swedish_ci")


def table(*columns: Column) -> TableSchema:
    return TableSchema(T, (*columns, Column("n", "int", column_type="int")), tuple(c.name for c in columns))


ID = table(Column("id", "int", column_type="int"))
PAIR = table(Column("id", "bigint", column_type="bigint"), NAME)


def test_nothing_of_a_value_is_read_as_sql() -> None:
    assert key_condition(ID, [(5,), ("7",)]) == "`id` IN (5, 7)"
    hostile = "a'; DROP TABLE x; --"
    hidden = hostile.encode().hex()
    assert key_condition(PAIR, [(1, hostile)]) == f"(`id` = 1 AND `name` = _utf8mb4 x'{hidden}')"
    binary = table(Column("id", "binary", length=2, charset="binary"))
    assert key_condition(binary, [("0x0aFF",)]) == "`id` IN (x'0aff')"
