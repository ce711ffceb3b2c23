"""What statements say, against a list written by hand; and what no text may do."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server, sql_mode
from penstock.sources.mysql.ddl.statement import (
    AlterTable,
    CreateTable,
    DropDatabase,
    DropTables,
    NoTable,
    RenameTables,
    RepairTables,
    RowStatement,
    SetDatabase,
    SetVariables,
    Statement,
    TruncateTable,
    Unknown,
    UseDatabase,
)

OLD = Server(version=(8, 0, 15))


def kind(action: object) -> str:
    return type(action).__name__.removesuffix("Element")


def brief(statement: Statement) -> str:
    """A statement in one line: kind, tables, and what matters about it."""
    match statement:
        case CreateTable(table=table):
            flags = [
                name
                for name in (
                    "as_select",
                    "if_not_exists",
                    "or_replace",
                    "temporary",
                    "partitioned",
                    "sequence",
                )
                if getattr(statement, name)
            ]
            like = f" like {statement.like}" if statement.like else ""
            unknown = " ?" if statement.unknown else ""
            return f"create {table}{like}" + "".join(f" {flag}" for flag in flags) + unknown
        case AlterTable(table=table, actions=actions):
            return f"alter {table}: " + (", ".join(map(kind, actions)) or "nothing")
        case DropTables(tables=tables):
            return "drop " + " ".join(str(table) for table in tables)
        case RenameTables(pairs=pairs):
            return "rename " + " ".join(f"{old}>{new}" for old, new in pairs)
        case TruncateTable(table=table):
            return f"truncate {table}"
        case SetDatabase(name=name, charset=charset, collation=collation, replaces=replaces):
            return f"database {name} {charset} {collation}" + (" replaces" if replaces else "")
        case DropDatabase(name=name):
            return f"drop database {name}"
        case UseDatabase(name=name):
            return f"use {name}"
        case SetVariables(values=values):
            return "set " + (" ".join(f"{name}={value}" for name, value in values) or "nothing")
        case RepairTables(tables=tables):
            return "repair " + " ".join(str(table) for table in tables)
        case RowStatement(tables=tables):
            return "rows " + " ".join(str(table) for table in tables)
        case NoTable():
            return "-"
        case Unknown():
            return "unknown"


LISTED = """
alter table t add column a int default 5 first, add index (a) -> alter db.t: Add, Add
ALTER TABLE `t` ADD a INT -> alter db.t: Add
alter table t add (a int, b int default -1.5e3, key (a)) -> alter db.t: Add, Add, Add
alter table t add column if not exists a int -> alter db.t: Add
alter table x.t add column a enum('x,y','(','''') after b, comment 'drop b' -> alter x.t: Add, SetOptions
alter online table t add column a int -> alter db.t: Add
alter table t add a int, add b int, algorithm=instant -> alter db.t: Add, Add, NoChange
alter table t add a int unique -> alter db.t: Add
alter table t add a int primary key -> alter db.t: Add
alter table t add a int auto_increment, add key (a) -> alter db.t: Add, Add
alter table t add a int as (b + 1) -> alter db.t: Add
alter table t add a datetime default now() -> alter db.t: Add
alter table t add a int default (rand()) -> alter db.t: Add
alter table t add a timestamp default now() on update now() -> alter db.t: Add
alter table t add a int references p (id) on delete cascade -> alter db.t: Add
alter table t add a int partition by hash (a) partitions 4 -> alter db.t: Add, Partitioning
alter table t modify a bigint, add b int -> alter db.t: ChangeColumn, Add
alter table t change a b int -> alter db.t: ChangeColumn
alter table t drop a -> alter db.t: DropColumn
alter table t drop column a, drop column b -> alter db.t: DropColumn, DropColumn
alter table t rename column a to b -> alter db.t: RenameColumn
alter table t rename index a to b -> alter db.t: RenameKey
alter table t rename u -> alter db.t: RenameTo
alter table t rename to x.u -> alter db.t: RenameTo
alter table t rename as u, add a int -> alter db.t: RenameTo, Add
alter table t add primary key (a) -> alter db.t: Add
alter table t drop primary key, add primary key (a) -> alter db.t: DropKey, Add
alter table t drop index `PRIMARY` -> alter db.t: DropKey
alter table t add constraint pk primary key (a) -> alter db.t: Add
alter table t add unique (a), drop index b -> alter db.t: Add, DropKey
alter table t add constraint unique key u (a) -> alter db.t: Add
alter table t add fulltext index f (a) with parser x, add spatial key (g) -> alter db.t: Add, Add
alter table t add constraint f foreign key (a) references u (a) -> alter db.t: Add
alter table t add foreign key (a) references u (a) on delete set null -> alter db.t: Add
alter table t add check (a > 0), add constraint c check (b in (1,2)) -> alter db.t: Add, Add
alter table t drop foreign key f, drop constraint d -> alter db.t: DropKey, DropKey
alter table t drop check c -> alter db.t: DropKey
alter table t alter a set default 5, alter index i invisible -> alter db.t: AlterColumn, NoChange
alter table t alter column b drop default -> alter db.t: AlterColumn
alter table t engine=innodb row_format=fixed, lock none, force -> alter db.t: SetOptions, NoChange, NoChange
alter table t engine=blackhole -> alter db.t: SetOptions
alter table t auto_increment=1 comment='' charset utf8mb4 collate=utf8mb4_bin -> alter db.t: SetOptions
alter table t convert to character set utf8mb4 -> alter db.t: ConvertCharset
alter table t order by a, b desc -> alter db.t: nothing
alter table t order by a, drop b -> alter db.t: DropColumn
alter table t disable keys -> alter db.t: NoChange
alter table t discard tablespace -> alter db.t: LosesRows
alter table t import tablespace -> alter db.t: LosesRows
alter table t partition by range (a) (partition p values less than (5)) -> alter db.t: Partitioning
alter table t remove partitioning -> alter db.t: Partitioning
alter table t add partition (partition p values less than (7)) -> alter db.t: NoChange
alter table t drop partition p0, p1 -> alter db.t: LosesRows
alter table t truncate partition all -> alter db.t: LosesRows
alter table t exchange partition p with table x.y without validation -> alter db.t: ExchangeRows
alter table t reorganize partition p, q into (partition r values less than (9)) -> alter db.t: NoChange
alter table t coalesce partition 2 -> alter db.t: NoChange
alter table t rebuild partition p, q -> alter db.t: NoChange
alter table t add system versioning -> alter db.t: Versioning
alter table t something new -> alter db.t: UnknownAction
alter ignore table t add unique (a) -> alter db.t: Add
create table t (a int primary key, b int default 5) engine=innodb -> create db.t
create table if not exists `a`.`b` like c -> create a.b like db.c if_not_exists
create table b (like x.c) -> create db.b like x.c
create table t (a int, foreign key (a) references x (a) on update cascade) -> create db.t
create table t select 1 as a -> create db.t as_select
create table t (a int) ignore as (select 1) -> create db.t as_select
create table t (a int) engine=innodb start transaction -> create db.t
create table t as table x -> create db.t as_select
create table t as values row(1) -> create db.t as_select
create table t (a int) comment='select' partition by key (a) -> create db.t partitioned
create or replace table t (a int) -> create db.t or_replace
create temporary table t (a int) -> create db.t temporary
drop temporary table if exists t -> drop db.t
drop table if exists a, `b`.c cascade /* generated by server */ -> drop db.a b.c
drop table `a.b` -> drop db.a.b
drop database if exists x -> drop database x
drop schema `x` -> drop database x
create database x default charset utf8 -> database x utf8 None
alter database x collate utf8_bin -> database x None utf8_bin
rename table a to b, x.c to d -> rename db.a>db.b x.c>db.d
rename user a to b -> -
truncate t -> truncate db.t
TRUNCATE TABLE x . `y` ; -> truncate x.y
create index i on t (a) -> alter db.t: Add
create unique index i using btree on x.t (a) -> alter x.t: Add
drop index i on t -> alter db.t: DropKey
drop index `primary` on t -> alter db.t: DropKey
create view v as select 1 -> -
create or replace algorithm=merge definer=`a`@`b` sql security invoker view v as select 1 -> -
create definer=trigger@localhost procedure p() begin drop table t; end -> -
create definer=current_user() trigger x after insert on t for each row set @a = 1 -> -
create aggregate function f returns int soname 'x' -> -
create user a identified by 'x' -> -
grant all on *.* to a -> -
set password for a = 'x' -> -
analyze table t -> -
optimize table t -> -
flush tables -> -
begin -> -
xa commit x'01' -> -
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
do release_lock('x') -> -
do release_lock(f()) -> unknown
do release_lock('x'), f() -> unknown
create external table x.t (a int) -> create x.t
create or replace json relational duality view v as select 1 -> -
create materialized view v as select 1 -> -
repair table t, x.u quick -> repair db.t x.u
repair local table t -> repair db.t
analyze table t -> -
analyze update t set a = 1 -> unknown
explain analyze select f() -> unknown
begin -> -
begin not atomic update t set a = 1; end -> unknown
set default role r to u -> -
create or replace database x -> database x None None replaces
create index i on t (a somehow -> alter db.t: UnknownAction
alter table t add column (' -> alter db.t: UnknownAction
create table t (a int comment ' -> create db.t as_select ?
select f(3) -> unknown
call p() -> unknown
import table from 'x.sdi' -> unknown
make coffee -> unknown
/*!50003 create table t (a int) */ -> create db.t
/*!99999 drop table x */ truncate t -> truncate db.t
/*!99999 drop /* nested */ table x */ truncate t -> truncate db.t
/* drop table x */ truncate t -- and more -> truncate db.t
truncate /*+ hint */ t # more -> truncate db.t
alter table t /*!50100 partition by key (a) partitions 3 */ -> alter db.t: Partitioning
alter table t /*! add column a int */ -> alter db.t: Add
alter table "t" add column "a b" int after "c" -> alter db.t: Add
alter table t/**/add/**/a/**/int -> alter db.t: Add
set statement max_statement_time = 5 for alter table t add x int -> alter db.t: Add
-- nothing -> -
"""


@pytest.mark.parametrize("line", [line for line in LISTED.splitlines() if line])
def test_a_statement_says_what_is_listed(line: str) -> None:
    sql, _, expected = line.rpartition(" -> ")
    assert brief(parse(sql, "db", OLD)) == expected


def test_names_are_lowered_where_the_server_stores_them_so() -> None:
    parsed = parse("TRUNCATE Shop.Orders", "X", Server(lower_case=True))
    assert parsed == TruncateTable(TableId("shop", "orders"))


def test_mariadb_comments_are_code_for_mariadb_only() -> None:
    sql = "ALTER TABLE t /*M!100100 DROP COLUMN a */"
    assert brief(parse(sql, "db", OLD)) == "alter db.t: nothing"
    assert brief(parse(sql, "db", Server((10, 11, 5), mariadb=True))) == "alter db.t: DropColumn"


def test_a_date_is_a_datetime_in_mariadbs_oracle_mode() -> None:
    catalog = Catalog(Server((10, 11, 5), mariadb=True, sql_mode=sql_mode("ORACLE")))
    catalog.database = "d"
    catalog.databases["d"] = ("utf8mb4", "utf8mb4_general_ci")
    catalog.execute("CREATE TABLE t (a DATE, b BLOB, c NUMBER, e NUMBER(5), f mariadb_schema.date)")
    kinds = [column.type for column in catalog.tables[TableId("d", "t")].to_schema().columns]
    assert kinds == ["datetime", "longblob", "double", "decimal", "date"]


def test_backslashes_and_quotes_mean_what_the_sql_mode_says() -> None:
    catalog = Catalog(OLD)
    catalog.database = "db"
    catalog.execute("SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
    catalog.execute("""CREATE TABLE "t" ("a" ENUM('\\', 'x'))""")
    assert catalog.tables[TableId("db", "t")].columns[0].column.labels == ("\\", "x")


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
    assert parse(HOSTILE[name], "db", OLD)
    assert time.process_time() - began < 10


WORDS = re.findall(
    r"\S+",
    """ALTER TABLE t ADD COLUMN a INT ( ) , DEFAULT 5 'x' CREATE DROP LIKE SELECT FIRST AFTER `b` . PARTITION
    BY RENAME TO IF NOT NULL EXISTS /*! */ ORDER UNIQUE KEY PRIMARY AS DELETE FROM UPDATE SET INSERT WITH
    - @ = DEFINER TRUNCATE ENGINE CONVERT EXCHANGE ' " -- x'4 0x ;""",
)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
def test_no_sequence_of_words_raises(sql: str) -> None:
    catalog = Catalog(OLD)
    catalog.database = "db"
    catalog.execute("CREATE TABLE t (a INT, b INT)")
    catalog.execute(sql)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_no_text_raises(sql: str) -> None:
    assert parse(sql, "db", OLD)
