"""Effects of statements, against a list written by hand; and what no text may do."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.effect import (
    AddCascade,
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
from penstock.model.schema import TableId
from penstock.sources.mysql.ddl import effects

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
        case AddCascade(table=table):
            return f"cascade {table}"
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
alter table t add a int references p (id) on delete cascade -> add t: a; cascade db.t
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
alter table t add foreign key (a) references u (a) on delete set null -> cascade db.t
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
