"""Changes of tables by chance: rows, columns, keys, names.

What a table looks like is asked of the server before each statement, so one that was refused does no harm.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pymysql

from penstock.sources.mysql.identifiers import quote
from penstock.testing.servers import Database

TYPES = (
    "TINYINT", "SMALLINT UNSIGNED", "INT", "BIGINT", "BIGINT UNSIGNED", "DECIMAL(12,3)", "DECIMAL(30,10)",
    "FLOAT", "DOUBLE", "DATE", "DATETIME", "DATETIME(3)", "TIMESTAMP(6) NULL", "TIME(2)", "VARCHAR(20)",
    "VARCHAR(300)", "VARCHAR(40) CHARACTER SET latin1", "CHAR(12)", "TEXT", "VARBINARY(30)", "BINARY(8)",
    "BLOB", "BIT(11)", "ENUM('a','b','c')", "SET('x','y','z')",
)  # fmt: skip
_WIDER = {
    "tinyint": "INT", "smallint": "INT", "mediumint": "BIGINT", "int": "BIGINT", "float": "DOUBLE",
    "date": "DATETIME", "datetime": "DATETIME(6)", "varchar": "VARCHAR(400)", "char": "VARCHAR(60)",
    "enum": "ENUM('a','b','c','d','e')", "set": "SET('x','y','z','w')", "decimal": "DECIMAL(40,12)",
    "blob": "LONGBLOB", "text": "LONGTEXT", "binary": "VARBINARY(20)", "varbinary": "VARBINARY(200)",
}  # fmt: skip
TEXT = "abcXYZ 0'é€"


@dataclass(frozen=True)
class Column:
    name: str
    kind: str
    definition: str
    nullable: bool
    in_key: bool
    generated: bool


def columns_of(database: Database, table: str) -> list[Column]:
    rows = database.query(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_KEY, EXTRA FROM"
        " information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (database.name, table),
    )
    return [
        Column(
            name=str(name),
            kind=str(kind).lower(),
            definition=str(type_),
            nullable=nullable == "YES",
            in_key=key == "PRI",
            generated=str(extra).upper().startswith(("VIRTUAL", "STORED")),
        )
        for name, kind, type_, nullable, key, extra in rows
    ]


def tables_of(database: Database) -> list[str]:
    rows = database.query(
        "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (database.name,)
    )
    return sorted(str(name) for (name,) in rows)


def literal(column: Column, chance: random.Random) -> str:
    """A value that every width of its kind holds, so that a narrower column is not refused too often."""
    if column.nullable and chance.random() < 0.1:
        return "NULL"
    kind = column.kind
    if kind.endswith("int"):
        return str(chance.choice([0, 1, 7, 100, chance.randint(0, 127)]))
    if kind in ("decimal", "float", "double"):
        return str(chance.choice(["0", "1.5", "99.25", str(chance.randint(0, 9999) / 8)]))
    if kind in ("date", "datetime", "timestamp"):
        day = f"20{chance.randint(10, 37)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
        return f"'{day}'" if kind == "date" else f"'{day} {chance.randint(0, 23):02}:00:59.25'"
    if kind == "time":
        return f"'{chance.choice(['', '-'])}{chance.randint(0, 838):02}:00:01.5'"
    if kind == "bit":
        return str(chance.randint(0, 2047))
    if kind == "year":
        return str(chance.randint(1901, 2155))
    if kind in ("enum", "set"):
        return str(chance.randint(1, 3))
    if kind in ("binary", "varbinary") or kind.endswith("blob"):
        return f"x'{chance.randbytes(chance.randint(0, 8)).hex()}'"
    text = "".join(chance.choices(TEXT, k=chance.randint(0, 12))).replace("'", "''")
    return f"'{text}'"


def write(database: Database, table: str, chance: random.Random, *, first: int, rows: int) -> None:
    """Inserts `rows` rows from `first`, then changes and deletes some of all."""
    columns = [column for column in columns_of(database, table) if not column.generated]
    names = ", ".join(quote(column.name) for column in columns)
    values = ", ".join(
        "(" + ", ".join(str(first + n) if column.name == "id" else literal(column, chance)
                        for column in columns) + ")"
        for n in range(rows)
    )  # fmt: skip
    attempt(database, f"INSERT IGNORE INTO {table} ({names}) VALUES {values}")
    others = [column for column in columns if not column.in_key]
    for _ in range(3):
        low = chance.randint(0, first)
        if others:
            column = chance.choice(others)
            attempt(
                database,
                f"UPDATE IGNORE {table} SET {quote(column.name)} = {literal(column, chance)}"
                f" WHERE id BETWEEN {low} AND {low + 20}",
            )
        attempt(database, f"DELETE FROM {table} WHERE id = {low}")


def attempt(database: Database, statement: str) -> bool:
    try:
        with database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            cursor.execute(statement)
    except (pymysql.err.OperationalError, pymysql.err.ProgrammingError, pymysql.err.DataError,
            pymysql.err.IntegrityError):  # fmt: skip
        return False
    return True


Change = Callable[[Database, str, random.Random], "list[str]"]


_DEFAULTS = {
    "TINYINT": "5", "INT": "-7", "BIGINT": "12", "DOUBLE": "0.5", "VARCHAR(20)": "'v''w'", "CHAR(12)": "'c'",
    "DECIMAL(12,3)": "1.250", "DATE": "'2024-02-29'", "DATETIME": "'2024-02-29 01:02:03'",
    "ENUM('a','b','c')": "'b'", "BIT(11)": "b'101'",
}  # fmt: skip


def _default(kind: str, chance: random.Random) -> str:
    if kind in _DEFAULTS and chance.random() < 0.7:
        return f" {chance.choice(['', 'NOT NULL '])}DEFAULT {_DEFAULTS[kind]}"
    return ""


def _place(columns: list[Column], chance: random.Random) -> str:
    if chance.random() < 0.5:
        return ""
    return chance.choice([" FIRST", f" AFTER {quote(chance.choice(columns).name)}"])


def _others(columns: list[Column]) -> list[Column]:
    return [column for column in columns if not column.in_key and not column.generated]


def add(database: Database, table: str, chance: random.Random) -> list[str]:
    columns = columns_of(database, table)
    kind = chance.choice(TYPES)
    column = f"c{chance.randrange(1000)} {kind}{_default(kind, chance)}{_place(columns, chance)}"
    return [f"ALTER TABLE {table} ADD COLUMN {column}"]


def add_generated(database: Database, table: str, chance: random.Random) -> list[str]:
    kept = chance.choice(["VIRTUAL", "STORED"])
    return [f"ALTER TABLE {table} ADD COLUMN g{chance.randrange(1000)} BIGINT AS (id * 2 + 1) {kept}"]


def drop(database: Database, table: str, chance: random.Random) -> list[str]:
    columns = [column for column in columns_of(database, table) if not column.in_key]
    return [f"ALTER TABLE {table} DROP COLUMN {quote(chance.choice(columns).name)}"] if columns else []


def _renamed(table: str, column: Column, name: str) -> str:
    return f"ALTER TABLE {table} CHANGE COLUMN {quote(column.name)} {quote(name)} {column.definition}"


def rename(database: Database, table: str, chance: random.Random) -> list[str]:
    columns = _others(columns_of(database, table))
    if not columns:
        return []
    column = chance.choice(columns)
    return [_renamed(table, column, f"r{chance.randrange(1000)}")]


def swap_names(database: Database, table: str, chance: random.Random) -> list[str]:
    columns = _others(columns_of(database, table))
    if len(columns) < 2:
        return []
    one, other = chance.sample(columns, 2)
    back = f"CHANGE {quote(other.name)} {quote(one.name)} {other.definition}"
    return [f"{_renamed(table, one, other.name)}, {back}"]


def widen(database: Database, table: str, chance: random.Random) -> list[str]:
    columns = [column for column in _others(columns_of(database, table)) if column.kind in _WIDER]
    if not columns:
        return []
    column = chance.choice(columns)
    unsigned = " UNSIGNED" if "unsigned" in column.definition else ""
    kind = _WIDER[column.kind]
    unsigned = unsigned if kind in ("INT", "BIGINT") else ""
    return [f"ALTER TABLE {table} MODIFY {quote(column.name)} {kind}{unsigned}"]


def convert(database: Database, table: str, chance: random.Random) -> list[str]:
    """Any type into any other; the server says what becomes of the values."""
    columns = _others(columns_of(database, table))
    if not columns:
        return []
    return [f"ALTER TABLE {table} MODIFY {quote(chance.choice(columns).name)} {chance.choice(TYPES)}"]


def move(database: Database, table: str, chance: random.Random) -> list[str]:
    columns = columns_of(database, table)
    others = _others(columns)
    if not others:
        return []
    column = chance.choice(others)
    place = " FIRST" if chance.random() < 0.5 else f" AFTER {quote(chance.choice(columns).name)}"
    return [f"ALTER TABLE {table} MODIFY {quote(column.name)} {column.definition}{place}"]


def several(database: Database, table: str, chance: random.Random) -> list[str]:
    """One statement that does many things, in the order of the server."""
    columns = _others(columns_of(database, table))
    parts = [f"ADD COLUMN s{chance.randrange(1000)} INT DEFAULT 3", "ADD COLUMN (m1 INT, m2 VARCHAR(5))"]
    if columns:
        column = chance.choice(columns)
        renamed = f"CHANGE {quote(column.name)} z{chance.randrange(1000)} {column.definition} FIRST"
        parts.append(chance.choice([f"DROP COLUMN {quote(column.name)}", renamed]))
    chance.shuffle(parts)
    return [f"ALTER TABLE {table} {', '.join(parts)}"]


def rekey(database: Database, table: str, chance: random.Random) -> list[str]:
    columns = columns_of(database, table)
    if any(column.in_key and column.name != "id" for column in columns):
        return [f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY (id)"]
    fit = [column for column in _others(columns) if column.kind in ("int", "bigint", "varchar", "date")]
    if not fit:
        return []
    column = chance.choice(fit)
    name = quote(column.name)
    value = literal(replace(column, nullable=False), chance)
    whole = f"MODIFY {name} {column.definition} NOT NULL"
    return [
        f"UPDATE {table} SET {name} = {value} WHERE {name} IS NULL",
        f"ALTER TABLE {table} {whole}, DROP PRIMARY KEY, ADD PRIMARY KEY (id, {name})",
    ]


def charset(database: Database, table: str, chance: random.Random) -> list[str]:
    return [f"ALTER TABLE {table} CONVERT TO CHARACTER SET {chance.choice(['utf8mb4', 'latin1', 'utf8mb4'])}"]


def index(database: Database, table: str, chance: random.Random) -> list[str]:
    return [f"CREATE INDEX i{chance.randrange(1000)} ON {table} (id)", f"ANALYZE TABLE {table}"]


def rebuild(database: Database, table: str, chance: random.Random) -> list[str]:
    return [f"ALTER TABLE {table} ENGINE = InnoDB", f"ALTER TABLE {table} COMMENT = 'a; b'"]


def empty(database: Database, table: str, chance: random.Random) -> list[str]:
    return [f"TRUNCATE TABLE {table}"]


def make_anew(database: Database, table: str, chance: random.Random) -> list[str]:
    return [f"DROP TABLE {table}", f"CREATE TABLE {table} (id INT PRIMARY KEY, a VARCHAR(20), b INT)"]


def copy(database: Database, table: str, chance: random.Random) -> list[str]:
    name = f"copy{chance.randrange(1000)}"
    return [f"CREATE TABLE {name} LIKE {table}", f"DROP TABLE {name}"]


def rename_table(database: Database, table: str, chance: random.Random) -> list[str]:
    name = f"n{chance.randrange(1000)}"
    return [chance.choice([f"RENAME TABLE {table} TO {name}", f"ALTER TABLE {table} RENAME TO {name}"])]


def swap_tables(database: Database, table: str, chance: random.Random) -> list[str]:
    other = chance.choice([name for name in tables_of(database) if name != table])
    return [f"RENAME TABLE {table} TO aside, {other} TO {table}, aside TO {other}"]


CHANGES: tuple[tuple[int, Change], ...] = (
    (8, add), (2, add_generated), (5, drop), (5, rename), (3, swap_names), (5, widen), (3, convert),
    (4, move), (4, several), (3, rekey), (2, charset), (2, index), (2, rebuild), (1, empty), (1, make_anew),
    (2, copy), (1, rename_table), (1, swap_tables),
)  # fmt: skip


def a_change(database: Database, table: str, chance: random.Random) -> list[str]:
    """Statements that change a table's definition, by chance."""
    weights = [weight for weight, _ in CHANGES]
    (_, change) = chance.choices(CHANGES, weights)[0]
    return change(database, table, chance)
