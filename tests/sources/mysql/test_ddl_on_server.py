"""The server as the oracle of `ddl.effects`: its catalog and rows before and after each statement must
agree with what we said the statement does."""

from __future__ import annotations

from typing import Any

import pymysql

from penstock.config import TablesConfig
from penstock.model.effect import (
    AddColumns,
    After,
    CreateTable,
    DropDatabase,
    First,
    Harmless,
    RowStatement,
    Truncate,
    Unknown,
    Unsupported,
)
from penstock.model.schema import TableId, TableSchema
from penstock.sources.mysql.catalog import read_tables
from penstock.sources.mysql.ddl import effects
from penstock.testing.servers import Database

SETUP = """
CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20), c INT NOT NULL, KEY ia (a), UNIQUE uc (c))
INSERT INTO t VALUES (1, 10, 'x', 7), (2, 20, 'y', 8), (3, NULL, NULL, 9)
CREATE TABLE u (id INT PRIMARY KEY, a INT)
INSERT INTO u VALUES (1, 1), (2, 2)
CREATE TABLE k (x INT NOT NULL, y INT NOT NULL, UNIQUE ux (x), UNIQUE uy (y))
INSERT INTO k VALUES (1, 2), (3, 4)
CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5))
ALTER TABLE p ADD PARTITION (PARTITION p1 VALUES LESS THAN (10))
INSERT INTO p VALUES (1), (7)
CREATE TABLE q (id INT PRIMARY KEY)
INSERT INTO q VALUES (2)
"""

RUN = """
ALTER TABLE t ADD COLUMN d INT
ALTER TABLE t ADD COLUMN d INT NOT NULL DEFAULT 5 FIRST, ADD e CHAR(5) DEFAULT 'x' AFTER a, ADD f INT AFTER e
ALTER TABLE t ADD (d INT, e INT NOT NULL, INDEX (d)), ADD g INT AFTER id
ALTER TABLE t ADD d INT UNIQUE
ALTER TABLE t ADD `first` INT FIRST, ADD `after` INT AFTER `first`
ALTER TABLE t ADD d ENUM('a,b)','c''') DEFAULT 'c''' COMMENT ', DROP COLUMN a'
ALTER TABLE t ADD d INT /*!50100 DEFAULT 3 */ /* DEFAULT 4 */ /*!99999 DEFAULT 5 */
ALTER TABLE t ADD d INT AS (a + 1)
ALTER TABLE t ADD d DATETIME DEFAULT CURRENT_TIMESTAMP
ALTER TABLE t ADD d INT, DROP COLUMN b
ALTER TABLE t DROP COLUMN b
ALTER TABLE t DROP a
ALTER TABLE t MODIFY b VARCHAR(99)
ALTER TABLE t CHANGE b bb VARCHAR(20)
ALTER TABLE t RENAME COLUMN b TO bb
ALTER TABLE t RENAME INDEX ia TO ib
ALTER TABLE t DROP INDEX ia, ADD INDEX (b)
ALTER TABLE t DROP INDEX uc
ALTER TABLE k DROP INDEX ux
DROP INDEX ux ON k
ALTER TABLE k ADD PRIMARY KEY (y)
ALTER TABLE k ADD UNIQUE (x, y)
CREATE UNIQUE INDEX i ON u (a)
ALTER TABLE t DROP PRIMARY KEY
ALTER TABLE t DROP INDEX `PRIMARY`
ALTER TABLE t ENGINE = InnoDB, COMMENT = 'x', ALGORITHM = COPY
ALTER TABLE t ENGINE = MyISAM
ALTER TABLE t ENGINE = BLACKHOLE
ALTER TABLE t AUTO_INCREMENT 77 ROW_FORMAT = DYNAMIC
ALTER TABLE t ORDER BY a, b DESC
ALTER TABLE t CONVERT TO CHARACTER SET latin1
ALTER TABLE t DEFAULT CHARACTER SET latin1
ALTER TABLE t ALTER a SET DEFAULT 9, ALTER COLUMN a DROP DEFAULT
ALTER TABLE t FORCE
ALTER TABLE t DISABLE KEYS
ALTER TABLE t RENAME tt
ALTER TABLE t RENAME TO tt, ADD d INT
RENAME TABLE t TO old, u TO t
ALTER TABLE u ADD FOREIGN KEY (a) REFERENCES t (id)
ALTER TABLE u ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES t (id) ON DELETE CASCADE
ALTER TABLE p DROP PARTITION p1
ALTER TABLE p TRUNCATE PARTITION p0
ALTER TABLE p ADD PARTITION (PARTITION p2 VALUES LESS THAN (20))
ALTER TABLE p REORGANIZE PARTITION p0, p1 INTO (PARTITION px VALUES LESS THAN (100))
ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE q
ALTER TABLE p REMOVE PARTITIONING
ALTER TABLE p REBUILD PARTITION p0, p1
ALTER TABLE q PARTITION BY HASH (id) PARTITIONS 3
ALTER TABLE q ADD d INT PARTITION BY HASH (id)
TRUNCATE t
TRUNCATE TABLE `t` /* x */
CREATE TABLE n (id INT PRIMARY KEY)
CREATE TABLE n LIKE t
CREATE TABLE IF NOT EXISTS t (id INT)
CREATE TABLE IF NOT EXISTS n (id INT)
CREATE TEMPORARY TABLE n (id INT)
CREATE VIEW v AS SELECT * FROM t
CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1
CREATE PROCEDURE pr() DELETE FROM t
CREATE INDEX i ON t (b)
DROP TABLE u
DROP TABLE IF EXISTS u, nothing, q
ANALYZE TABLE t
OPTIMIZE TABLE t
FLUSH TABLES
INSERT INTO t (id, c) VALUES (9, 99)
INSERT INTO t SELECT id + 10, a, b, c + 10 FROM t
REPLACE INTO u VALUES (1, 5)
UPDATE t SET a = 1
UPDATE t JOIN u ON t.id = u.id SET u.a = 77, t.a = 78
DELETE FROM t WHERE id = 1
DELETE t, u FROM t JOIN u ON t.id = u.id
DELETE FROM t USING t JOIN u ON t.id = u.id
"""


class Server:
    """One connection: thousands of small questions."""

    def __init__(self, mysql: Database) -> None:
        self.database = mysql.name
        self.connection = mysql.connect(ssl_disabled=True, database=mysql.name)
        self.made: dict[str, Any] = {}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def reset(self) -> None:
        """Makes what the last statement changed anew, and only that."""
        present = [str(row[0]) for row in self.query("SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")]
        wanted: dict[str, list[str]] = {}
        for line in SETUP.strip().splitlines():
            wanted.setdefault(line.split()[2], []).append(line)
        fresh = {name for name in wanted if name in present and self.as_made(name) == self.made.get(name)}
        self.query("SET foreign_key_checks = 0")
        for name in present:
            if name not in fresh:
                self.query(f"DROP TABLE {name}")
        for name in wanted.keys() - fresh:
            for line in wanted[name]:
                self.query(line)
            self.made[name] = self.as_made(name)
        for kind in ("VIEW v", "PROCEDURE pr"):
            self.query(f"DROP {kind.replace(' ', ' IF EXISTS ')}")
        self.query("DROP TEMPORARY TABLE IF EXISTS n")
        self.query("SET foreign_key_checks = 1")

    def as_made(self, name: str) -> list[Any]:
        questions = (f"SHOW CREATE TABLE {name}", f"SELECT * FROM {name}", f"SHOW TRIGGERS LIKE '{name}'")
        return [self.query(sql) for sql in questions]


class World:
    """What the server says: definitions and rows of every table."""

    def __init__(self, server: Server) -> None:
        self.schemas = read_tables(server.connection, TablesConfig(include=[f"{server.database}.*"]))
        self.rows: dict[TableId, list[dict[str, Any]]] = {}
        for table, schema in self.schemas.items():
            names = [column.name for column in schema.columns]
            found = server.query(f"SELECT * FROM {table.quoted}")
            self.rows[table] = [dict(zip(names, row, strict=True)) for row in found]

    def kept(self, table: TableId, columns: list[str]) -> list[Any]:
        return sorted((tuple(row[name] for name in columns) for row in self.rows[table]), key=repr)


def structure(schema: TableSchema) -> list[tuple[Any, ...]]:
    """What a change event depends on; the default is not part of it."""
    return [
        (one.name, one.type, one.column_type, one.nullable, one.charset, one.generated)
        for one in schema.columns
    ]


def differs(before: World, after: World, table: TableId) -> bool:
    one, other = before.schemas.get(table), after.schemas.get(table)
    if one is None or other is None:
        return one is not other
    columns = [column.name for column in one.columns]
    return structure(one) != structure(other) or before.kept(table, columns) != after.kept(table, columns)


def expected_order(before: TableSchema, added: AddColumns) -> list[str]:
    names = [column.name for column in before.columns]
    for column in added.columns:
        match column.position:
            case First():
                names.insert(0, column.name)
            case After(column=other):
                names.insert(names.index(other) + 1, column.name)
            case None:
                names.append(column.name)
    return names


def test_the_server_agrees_with_every_effect(mysql: Database) -> None:
    """Each statement runs on fresh tables: whatever changed must have been said, and what was said must be
    so."""
    refused: list[str] = []
    server = Server(mysql)
    for statement in [line for line in RUN.splitlines() if line]:
        server.reset()
        before = World(server)
        try:
            server.query(statement)
        except pymysql.MySQLError as error:
            refused.append(f"{statement}: {error}")
            continue
        agree(statement, mysql.name, before, World(server))
    assert len(refused) < 5, refused


def agree(statement: str, database: str, before: World, after: World) -> None:
    said = effects(statement, database, server_version=(8, 0, 15))
    tables = before.schemas.keys() | after.schemas.keys()
    changed = {table for table in tables if differs(before, after, table)}
    free: set[TableId] = set()  # of these nothing is promised
    for effect in said:
        match effect:
            case Unsupported(table=table):
                free.add(table)
            case RowStatement(tables=concerned):
                free |= set(concerned)
            case DropDatabase() | Unknown():
                raise AssertionError(f"{statement}: {effect}")
            case Harmless() | Truncate() | CreateTable() | AddColumns():
                pass
    for effect in said:
        match effect:
            case Harmless(table=named, key_may_change=key) if named and named not in free:
                assert key or after.schemas[named].key == before.schemas[named].key, statement
            case Truncate(table=table):
                assert after.rows[table] == [], statement
                changed.discard(table)
            case CreateTable(table=table, if_not_exists=known):
                assert table in after.schemas and (known or table not in before.schemas), statement
                if table not in before.schemas:
                    changed.discard(table)
            case AddColumns(table=table) if table not in free:
                assert [one.name for one in after.schemas[table].columns] == expected_order(
                    before.schemas[table], effect
                ), statement
                old = [one.name for one in before.schemas[table].columns]
                assert before.kept(table, old) == after.kept(table, old), statement
                changed.discard(table)
            case _:
                pass
    assert changed <= free, f"{statement} changed {changed}, of which {said} says nothing"
    mentioned = {getattr(effect, "table", None) for effect in said} | free
    for table in before.schemas.keys() & after.schemas.keys() - mentioned:
        assert before.schemas[table].key == after.schemas[table].key, statement
