"""What `information_schema` says of the tables of a database, in the form of `penstock schema --json`."""

from __future__ import annotations

from typing import Any

from penstock.config import TablesConfig
from penstock.model.schema import Column
from penstock.sources.mysql import catalog
from penstock.testing.servers import MySqlClient

_KINDS = {"FULLTEXT": "fulltext", "SPATIAL": "spatial", "VECTOR": "vector"}


class Shown:
    """Reads a database through one connection."""

    def __init__(self, client: MySqlClient) -> None:
        self._connection = client.connect(ssl_disabled=True)
        self._rows("SET NAMES utf8mb4")
        self.server = catalog.describe_server(self._connection)

    def close(self) -> None:
        self._connection.close()

    def _rows(self, sql: str, arguments: tuple[str, ...] | None = None) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return list(cursor.fetchall())

    def tables(self, database: str) -> dict[str, dict[str, Any]]:
        """By table name."""
        schemas = catalog.read_tables(self._connection, TablesConfig(include=[f"{database}.*"]))
        found: dict[str, dict[str, Any]] = {}
        for table, schema in schemas.items():
            found[table.table] = {
                "columns": {column.name: _column(column) for column in schema.columns},
                "order": [column.name for column in schema.columns],
                "keys": {},
                "foreign_keys": {},
            }
        self._columns(database, found)
        self._keys(database, found)
        self._foreign_keys(database, found)
        self._options(database, found)
        return found

    def _columns(self, database: str, found: dict[str, dict[str, Any]]) -> None:
        for table, name, data_type, key, extra, comment in self._rows(
            "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_KEY, EXTRA, COLUMN_COMMENT"
            " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s",
            (database,),
        ):
            if table in found:
                said = str(extra).lower()
                found[table]["columns"][name] |= {
                    "type": data_type,
                    "key": key,
                    "auto_increment": "auto_increment" in said,
                    "on_update": "on update" in said,
                    "comment": comment,
                }

    def _keys(self, database: str, found: dict[str, dict[str, Any]]) -> None:
        for table, name, column, length, free, kind in self._rows(
            "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NON_UNIQUE, INDEX_TYPE"
            " FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s"
            " ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX",
            (database,),
        ):
            if table in found:
                unique = "primary" if name == "PRIMARY" else "unique"
                sort = _KINDS.get(kind, "index") if int(free) else unique
                sized = sort != "spatial" and length is not None
                parts = found[table]["keys"].setdefault(name, (sort, []))[1]
                parts.append((column, int(length) if sized else None))

    def _foreign_keys(self, database: str, found: dict[str, dict[str, Any]]) -> None:
        rules = {
            (table, name): (on_delete, on_update)
            for table, name, on_delete, on_update in self._rows(
                "SELECT TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE"
                " FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s",
                (database,),
            )
        }
        for table, name, column, other, referenced in self._rows(
            "SELECT TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME"
            " FROM information_schema.KEY_COLUMN_USAGE"
            " WHERE TABLE_SCHEMA = %s AND REFERENCED_TABLE_NAME IS NOT NULL"
            " ORDER BY TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION",
            (database,),
        ):
            if table in found:
                key = found[table]["foreign_keys"].setdefault(name, (other, rules.get((table, name)), []))
                key[2].append((column, referenced))

    def _options(self, database: str, found: dict[str, dict[str, Any]]) -> None:
        for table, collation, comment, options in self._rows(
            "SELECT TABLE_NAME, TABLE_COLLATION, TABLE_COMMENT, CREATE_OPTIONS"
            " FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s",
            (database,),
        ):
            if table in found:
                found[table] |= {
                    "collation": collation,
                    "comment": comment,
                    "partitioned": "partitioned" in str(options).lower(),
                }


def _column(column: Column) -> dict[str, Any]:
    plain = not column.default_is_expression and not column.type.endswith(("text", "blob", "json"))
    return {
        "column_type": column.column_type,
        "nullable": column.nullable,
        "default": column.default if plain else None,
        "default_is_expression": column.default_is_expression,
        "length": column.length,
        "precision": column.precision,
        "scale": column.scale,
        "fractional_digits": column.fsp,
        "unsigned": column.unsigned,
        "charset": column.charset,
        "collation": column.collation,
        "labels": column.labels and list(column.labels),
        "generated": column.generated,
        "invisible": column.invisible,
    }


def _comparable(table: dict[str, Any]) -> dict[str, Any]:
    """A table of `penstock schema --json`, as `Shown.tables` has it. Expressions and the order of keys are
    left out: every server prints them in its own way."""
    columns = {}
    for column in table["columns"]:
        text = column["type"].endswith(("text", "blob", "json"))
        plain = not column["default_is_expression"] and not text
        columns[column["name"]] = {
            **{name: value for name, value in column.items() if name not in ("name", "expression")},
            "default": column["default"] if plain else None,
            "on_update": column["on_update"] is not None,
        }
    keys = {key["name"]: (key["kind"], _parts(key)) for key in table["unique_keys"] + table["indexes"]}
    return {
        "columns": columns,
        "order": list(columns),
        "keys": keys,
        "foreign_keys": {
            key["name"]: (
                key["references"]["table"],
                (key["on_delete"], key["on_update"]),
                list(zip(key["columns"], key["references"]["columns"], strict=True)),
            )
            for key in table["foreign_keys"]
        },
        "collation": table["collation"],
        "comment": table["options"].get("comment", ""),
        "partitioned": table["partitioned"],
    }


def _parts(key: dict[str, Any]) -> list[tuple[str | None, int | None]]:
    return [(part["column"], part["length"]) for part in key["parts"]]


def differences(table: str, printed: dict[str, Any], shown: dict[str, Any]) -> list[str]:
    """What of a table is not the same, one line each."""
    ours, primary = _comparable(printed), printed["primary_key"]
    shown = {**shown, "keys": dict(shown["keys"])}
    found = []
    theirs = [column for column, _ in shown["keys"].pop("PRIMARY", (None, []))[1]]
    if theirs != primary:
        found.append(f"{table}: primary key {primary}, shown {theirs}")
    for name in ("order", "collation", "comment", "partitioned"):
        if ours[name] != shown[name]:
            found.append(f"{table}: {name} {ours[name]!r}, shown {shown[name]!r}")
    for name in ("keys", "foreign_keys"):
        for one in sorted(ours[name].keys() | shown[name].keys()):
            if ours[name].get(one) != shown[name].get(one):
                found.append(f"{table}: {name} {one} {ours[name].get(one)}, shown {shown[name].get(one)}")
    for column in ours["columns"].keys() & shown["columns"].keys():
        mine, other = ours["columns"][column], shown["columns"][column]
        found += [
            f"{table}.{column}: {name} {mine[name]!r}, shown {other[name]!r}"
            for name in sorted(mine)
            if mine[name] != other[name]
        ]
    return found
