"""Names without a database: in which one each server looks for them. The server's catalog is the judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from penstock.model.schema import TableId
from penstock.sources.mysql import catalog
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.ddl.change import Altered
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server
from penstock.testing.servers import Database, DatabaseServer

SCRIPT = """
CREATE TABLE {shop}.parent (id INT PRIMARY KEY)
CREATE TABLE {other}.parent (id INT PRIMARY KEY, z INT)
CREATE TABLE {shop}.first (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id))
USE {other}
CREATE TABLE {shop}.child (id INT KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)
CREATE TABLE {shop}.quoted (id INT PRIMARY KEY, p INT, CONSTRAINT q FOREIGN KEY (p) REFERENCES `parent` (id))
CREATE TABLE {shop}.qualified (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {other}.parent (id))
CREATE TABLE {shop}.inline (id INT PRIMARY KEY, p INT REFERENCES parent (id) ON DELETE CASCADE)
CREATE TABLE {shop}.itself (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES itself (id))
CREATE TABLE {shop}.altered (id INT PRIMARY KEY, p INT)
ALTER TABLE {shop}.altered ADD CONSTRAINT a FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL
CREATE TABLE {shop}.added (id INT PRIMARY KEY)
ALTER TABLE {shop}.added ADD COLUMN p INT REFERENCES parent (id)
ALTER TABLE {shop}.added ADD (q INT, FOREIGN KEY (q) REFERENCES parent (id))
CREATE TABLE {shop}.liked LIKE {shop}.child
CREATE TABLE {shop}.copied LIKE parent
CREATE TABLE {other}.local (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id))
CREATE TABLE {shop}.away (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id))
ALTER TABLE {shop}.away RENAME came
CREATE TABLE {shop}.gone (id INT PRIMARY KEY)
RENAME TABLE {shop}.gone TO went
RENAME TABLE {shop}.child TO {other}.child
RENAME TABLE {shop}.parent TO elder
ALTER TABLE {shop}.altered ADD COLUMN n INT, ADD FOREIGN KEY (n) REFERENCES qualified (id)
RENAME TABLE {other}.elder TO {shop}.parent
"""


class Two:
    """A session of a server, and our catalog after the same statements."""

    def __init__(self, server: DatabaseServer, shop: str, other: str) -> None:
        self.server = server
        self.names = {"shop": shop, "other": other}
        self.connection = server.connect(ssl_disabled=True)
        traits = catalog.describe_server(self.connection)
        self.ours = Catalog(replace(traits.statements, sql_mode=frozenset()))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql.format(**self.names))
            return list(cursor.fetchall())

    def references(self) -> set[tuple[str, ...]]:
        """Child, column, parent, as the server shows them."""
        found = self.query(
            "SELECT CONCAT_WS('.', TABLE_SCHEMA, TABLE_NAME), COLUMN_NAME,"
            " CONCAT_WS('.', REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME)"
            " FROM information_schema.KEY_COLUMN_USAGE"
            " WHERE TABLE_SCHEMA IN ('{shop}', '{other}') AND REFERENCED_TABLE_NAME IS NOT NULL"
        )
        return set(found)

    def tables(self) -> set[tuple[str, ...]]:
        return set(
            self.query(
                "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS"
                " WHERE TABLE_SCHEMA IN ('{shop}', '{other}')"
            )
        )


@pytest.fixture
def two(flavor: DatabaseServer, flavor_database: Database) -> Iterator[Two]:
    other = Database(flavor)
    made = Two(flavor, flavor_database.name, other.name)
    with closing(made.connection):
        yield made
    flavor.execute("SET foreign_key_checks = 0", f"DROP DATABASE {other.name}")


def test_a_parent_without_a_database_is_in_its_child_s_and_other_names_in_the_session_s(
    two: Two,
) -> None:
    for sql in SCRIPT.strip().splitlines():
        two.query(sql)
        two.ours.execute(sql.format(**two.names))
        ours = {
            (str(table), column, str(key.references))
            for table, definition in two.ours.tables.items()
            for key in definition.foreign_keys
            for column in key.columns
        }
        assert ours == two.references(), sql
        columns = {
            (table.database, table.table, column.name)
            for table, definition in two.ours.tables.items()
            for column in definition.columns
        }
        assert columns == two.tables(), sql


def test_a_partition_is_exchanged_with_a_table_of_the_session_s_database(two: Two) -> None:
    shop, other = two.names["shop"], two.names["other"]
    for sql in (
        "CREATE TABLE {shop}.t (id INT KEY) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))",
        "CREATE TABLE {shop}.x (id INT PRIMARY KEY)",
        "CREATE TABLE {other}.x (id INT PRIMARY KEY)",
        "INSERT INTO {shop}.t VALUES (1)",
        "USE {other}",
    ):
        two.query(sql)
        two.ours.execute(sql.format(**two.names))
    sql = "ALTER TABLE {shop}.t EXCHANGE PARTITION p WITH TABLE x"
    changes = two.ours.execute(sql.format(**two.names))
    two.query(sql)
    silent = {change.table for change in changes if isinstance(change, Altered) and change.silent}
    assert silent == {TableId(shop, "t"), TableId(other, "x")}
    assert two.query("SELECT COUNT(*) FROM {other}.x") == [(1,)]


def test_a_parent_is_found_where_the_session_has_no_database() -> None:
    ours = Catalog(Server())
    for sql in (
        "CREATE TABLE shop.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id))",
        "ALTER TABLE shop.child ADD FOREIGN KEY (id) REFERENCES parent (id)",
    ):
        ours.apply(parse(sql, "", ours.server))
    [definition] = ours.tables.values()
    assert [key.references for key in definition.foreign_keys] == [TableId("shop", "parent")] * 2
