"""Effects of statements. Two oracles: the list below, written by hand, and (further down) the server, whose
catalog and rows before and after each statement must agree with what we said the statement does."""

from __future__ import annotations

import re
import time
from typing import Any

import pymysql
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import TablesConfig
from penstock.model.effect import (
    AddColumns,
    After,
    CreateTable,
    DefaultLiteral,
    DropDatabase,
    Effect,
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

T = TableId("db", "t")


def brief(effect: Effect) -> str:
    """An effect in one line: kind, tables, and what matters about it."""
    match effect:
        case AddColumns(table=table, columns=columns):
            return f"add {table.table}: " + ", ".join(column.name for column in columns)
        case CreateTable(table=table) as create:
            flags = [name for name in ("as_select", "if_not_exists", "cascades") if getattr(create, name)]
            like = f" like {create.like}" if create.like else ""
            return f"create {table}{like}" + "".join(f" {flag}" for flag in flags)
        case Truncate(table=table):
            return f"truncate {table}"
        case Harmless(table=table, key_may_change=key):
            return f"harmless {table.table if table else '-'}" + (" key" if key else "")
        case Unsupported(table=table):
            return f"unsupported {table}"
        case DropDatabase(database=database):
            return f"drop database {database}"
        case RowStatement(tables=tables):
            return "rows " + " ".join(str(table) for table in tables)
        case Unknown():
            return "unknown"


LISTED = """
alter table t add column a int default 5 first, add index (a) -> add t: a; harmless t
ALTER TABLE `t` ADD a INT -> add t: a
alter table t add (a int, b int not null default -1.5e3, key (a)) -> add t: a, b; harmless t
alter table t add column if not exists a int -> add t: a
alter table x.t add column a enum('x,y','(','''') after b, comment 'drop column b' -> add t: a; harmless t
alter online table t add column a int -> add t: a
alter table t add a int, add b int, algorithm=instant -> add t: a, b; harmless t
alter table t add a int unique -> add t: a; harmless t key
alter table t add a int primary key -> add t: a; unsupported db.t
alter table t add a int auto_increment, add key (a) -> add t: a; unsupported db.t; harmless t
alter table t add a int as (b + 1) -> add t: a; unsupported db.t
alter table t add a datetime default now() -> add t: a; unsupported db.t
alter table t add a int default (rand()) -> add t: a; unsupported db.t
alter table t add a timestamp default now() on update now() -> add t: a; unsupported db.t
alter table t add a int references p (id) on delete cascade -> add t: a; unsupported db.t
alter table t add a int partition by hash (a) partitions 4 -> add t: a; harmless t
alter table t modify a bigint, add b int -> add t: b; unsupported db.t
alter table t change a b int -> unsupported db.t
alter table t drop a -> unsupported db.t
alter table t drop column a, drop column b -> unsupported db.t; unsupported db.t
alter table t rename column a to b -> unsupported db.t
alter table t rename index a to b -> harmless t
alter table t rename u -> unsupported db.t; unsupported db.u
alter table t rename to x.u -> unsupported db.t; unsupported x.u
alter table t rename as u, add a int -> add t: a; unsupported db.t; unsupported db.u
alter table t add primary key (a) -> unsupported db.t
alter table t drop primary key, add primary key (a) -> unsupported db.t; unsupported db.t
alter table t drop index `PRIMARY` -> unsupported db.t
alter table t add constraint pk primary key (a) -> unsupported db.t
alter table t add unique (a), drop index b -> harmless t key; harmless t key
alter table t add constraint unique key u (a) -> harmless t key
alter table t add fulltext index f (a) with parser ngram, add spatial key (g) -> harmless t; harmless t
alter table t add constraint f foreign key (a) references u (a) -> harmless t
alter table t add foreign key (a) references u (a) on delete set null -> unsupported db.t
alter table t add check (a > 0), add constraint c check (b in (1,2)) -> harmless t; harmless t
alter table t drop foreign key f, drop constraint d -> harmless t; harmless t key
alter table t drop check c -> harmless t
alter table t alter a set default 5, alter index i invisible -> harmless t; harmless t
alter table t alter column b drop default -> harmless t
alter table t engine = innodb row_format=dynamic, lock none, force -> harmless t; harmless t; harmless t
alter table t engine=blackhole -> unsupported db.t
alter table t auto_increment = 100 comment='x' default charset utf8mb4 collate = utf8mb4_bin -> harmless t
alter table t convert to character set utf8mb4 -> unsupported db.t
alter table t order by a, b desc -> harmless t
alter table t order by a, drop b -> unsupported db.t
alter table t disable keys -> harmless t
alter table t discard tablespace -> unsupported db.t
alter table t import tablespace -> unsupported db.t
alter table t partition by range (a) (partition p values less than (5)) -> harmless t
alter table t remove partitioning -> harmless t
alter table t add partition (partition p values less than (7)) -> harmless t
alter table t drop partition p0, p1 -> unsupported db.t
alter table t truncate partition all -> unsupported db.t
alter table t exchange partition p with table x.y without validation -> unsupported db.t; unsupported x.y
alter table t reorganize partition p, q into (partition r values less than (9)) -> harmless t
alter table t coalesce partition 2 -> harmless t
alter table t rebuild partition p, q -> harmless t
alter table t add system versioning -> unsupported db.t
alter table t something new -> unsupported db.t
alter ignore table t add unique (a) -> unsupported db.t
create table t (a int primary key, b int default 5) engine=innodb -> create db.t
create table if not exists `a`.`b` like c -> create a.b like db.c if_not_exists
create table b (like x.c) -> create db.b like x.c
create table t (a int, foreign key (a) references x (a) on update cascade) -> create db.t cascades
create table t select 1 as a -> create db.t as_select
create table t (a int) ignore as (select 1) -> create db.t as_select
create table t (a int) engine=innodb start transaction -> create db.t
create table t as table x -> create db.t as_select
create table t as values row(1) -> create db.t as_select
create table t (a int) comment='select' partition by list (a) (partition p values in (1)) -> create db.t
create or replace table t (a int) -> unsupported db.t
create temporary table t (a int) -> harmless -
drop temporary table if exists t -> harmless -
drop table if exists a, `b`.c cascade /* generated by server */ -> unsupported db.a; unsupported b.c
drop table `a.b` -> unsupported db.a.b
drop database if exists x -> drop database x
drop schema `x` -> drop database x
create database x default charset utf8 -> harmless -
alter database x collate utf8_bin -> harmless -
rename table a to b, x.c to d -> unsupported db.a; unsupported db.b; unsupported x.c; unsupported db.d
rename user a to b -> harmless -
truncate t -> truncate db.t
TRUNCATE TABLE x . `y` ; -> truncate x.y
create index i on t (a) -> harmless t
create unique index i using btree on x.t (a) -> harmless t key
drop index i on t -> harmless t key
drop index `primary` on t -> unsupported db.t
create view v as select 1 -> harmless -
create or replace algorithm=merge definer=`a`@`b` sql security invoker view v as select 1 -> harmless -
create definer=trigger@localhost procedure p() begin drop table t; end -> harmless -
create definer=current_user() trigger x after insert on t for each row set @a = 1 -> harmless -
create aggregate function f returns int soname 'x' -> harmless -
create user a identified by 'x' -> harmless -
grant all on *.* to a -> harmless -
set password for a = 'x' -> harmless -
analyze table t -> harmless -
optimize table t -> harmless -
flush tables -> harmless -
begin -> harmless -
xa commit x'01' -> harmless -
insert into t values ('drop table x') -> rows db.t
insert ignore x.t select * from y -> rows x.t
replace into t values (1) -> rows db.t
update low_priority t set a = 1 -> rows db.t
update t a join (select * from z) d on a.id = d.id, q set a.x = 1 -> rows db.t db.z db.q
delete from t where a in (select b from x) -> rows db.t
delete a.* from x.t a, u where a.id = u.id -> rows db.a x.t db.u
delete from x.t.* using x.t join u -> rows x.t db.u
with c as (select 1) delete from t where 1 -> rows db.t
load data local infile 'x' replace into table t fields terminated by ',' -> rows db.t
do release_lock('x') -> unknown
select f(3) -> unknown
call p() -> unknown
import table from 'x.sdi' -> unknown
make coffee -> unknown
/*!50003 create table t (a int) */ -> create db.t
/*!99999 drop table x */ truncate t -> truncate db.t
/*!99999 drop /* nested */ table x */ truncate t -> truncate db.t
/* drop table x */ truncate t -- and more -> truncate db.t
truncate /*+ hint */ t # more -> truncate db.t
alter table t /*!50100 partition by key (a) partitions 3 */ -> harmless t
alter table t /*! add column a int */ -> add t: a
alter table "t" add column "a b" int after "c" -> add t: a b
alter table t/**/add/**/a/**/int -> add t: a
set statement max_statement_time = 5 for alter table t add x int -> add t: x
-- nothing -> harmless -
"""


@pytest.mark.parametrize("line", [line for line in LISTED.splitlines() if line])
def test_a_statement_has_the_effects_listed(line: str) -> None:
    sql, _, expected = line.rpartition(" -> ")
    assert "; ".join(brief(one) for one in effects(sql, "db", server_version=(8, 0, 15))) == expected


def test_an_added_column_says_where_and_with_what() -> None:
    sql = (
        "ALTER TABLE t ADD `x``y` VARCHAR(5) DEFAULT 'it''s' 'x' NOT NULL AFTER `q`, ADD ts TIMESTAMP,"
        " ADD COLUMN n DECIMAL(5,2) COMMENT 'DEFAULT 7' DEFAULT - 1.50 FIRST, ADD b BIT(3) DEFAULT b'101'"
    )
    [added] = effects(sql, "db")
    assert isinstance(added, AddColumns)
    assert [(one.name, one.position, one.default, one.nullable) for one in added.columns] == [
        ("x`y", After("q"), DefaultLiteral("string", "it'sx"), False),
        ("ts", None, None, None),
        ("n", First(), DefaultLiteral("number", "-1.50"), True),
        ("b", None, DefaultLiteral("bits", "101"), True),
    ]
    assert added.columns[0].definition == "VARCHAR(5) DEFAULT 'it''s' 'x' NOT NULL"


def test_names_are_lowered_where_the_server_stores_them_so() -> None:
    assert effects("TRUNCATE Shop.Orders", "X", lower_case=True) == [Truncate(TableId("shop", "orders"))]


def test_mariadb_comments_are_code_for_mariadb_only() -> None:
    sql = "ALTER TABLE t /*M!100100 DROP COLUMN a */"
    assert brief(effects(sql, "db", server_version=(8, 0, 15))[0]) == "harmless t"
    assert brief(effects(sql, "db", server_version=(10, 11, 5), mariadb=True)[0]) == "unsupported db.t"


HOSTILE = {
    "nothing": "",
    "spaces": " " * 1_000_000,
    "open comment": "/*" * 200_000,
    "open version comments": "/*!50000 " * 100_000,
    "skipped nested comments": "/*!99999 " + "/* " * 300_000 + " */",
    "open quote": "ALTER TABLE t COMMENT '" + "\\'" * 300_000,
    "doubled quotes": "ALTER TABLE t COMMENT '" + "''" * 300_000,
    "open parentheses": "ALTER TABLE t ADD a INT DEFAULT " + "(" * 200_000,
    "parentheses": "ALTER TABLE t ADD a INT DEFAULT " + "(" * 100_000 + "1" + ")" * 100_000,
    "closing parentheses": "ALTER TABLE t ADD a INT" + ")" * 200_000,
    "commas": "ALTER TABLE t " + "," * 200_000,
    "with": "WITH " * 100_000,
    "set statement": "SET STATEMENT a=1 FOR " * 20_000,
    "dots": "TRUNCATE " + "." * 200_000,
    "names": "DROP TABLE " + "a," * 100_000,
    "insert": "INSERT INTO t VALUES " + "(1,'x')," * 500_000,
    "backticks": "`" * 300_001,
    "nul": "ALTER TABLE t\0ADD a INT",
    "surrogate": "ALTER TABLE t ADD \udc80 INT",
    "labels": "ALTER TABLE t ADD a ENUM(" + ",".join(f"'{n}'" for n in range(65_535)) + ")",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_answered_in_bounded_time(name: str) -> None:
    began = time.process_time()
    assert effects(HOSTILE[name], "db")
    assert time.process_time() - began < 10


WORDS = re.findall(
    r"\S+",
    """ALTER TABLE t ADD COLUMN a INT ( ) , DEFAULT 5 'x' CREATE DROP LIKE SELECT FIRST AFTER `b` . PARTITION
    BY RENAME TO IF NOT NULL EXISTS /*! */ ORDER UNIQUE KEY PRIMARY AS DELETE FROM UPDATE SET INSERT WITH
    - @ = DEFINER TRUNCATE ENGINE CONVERT EXCHANGE ' " -- x'4 0x ;""",
)


@settings(max_examples=2000, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
def test_no_sequence_of_words_raises(sql: str) -> None:
    assert effects(sql, "db")


@settings(max_examples=1000, deadline=None)
@given(st.text(max_size=60))
def test_no_text_raises(sql: str) -> None:
    assert effects(sql, "db")


# The server as the oracle ---------------------------------------------------------------------------------

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
