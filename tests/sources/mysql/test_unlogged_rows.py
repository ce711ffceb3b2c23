"""Which captured tables a statement may have written without row events: decided without a server."""

from __future__ import annotations

import pytest
from tests.sources.mysql.test_statements import MADE, Pipeline

from penstock.model.plan import Park
from penstock.model.schema import TableId
from penstock.model.schema_change import TableEffect
from penstock.sources.mysql.ddl.server import SQL_MODE_BITS, Server

T, U = TableId("shop", "t"), TableId("shop", "u")
OTHER = TableId("other", "o")
MARIADB = Server(version=(10, 11, 5), mariadb=True, sql_mode=None)


def made(*, mariadb: bool = False) -> Pipeline:
    pipeline = Pipeline("*.*", server=MARIADB) if mariadb else Pipeline("*.*")
    pipeline.run(MADE)
    pipeline.run("CREATE TABLE u (k INT PRIMARY KEY)")
    pipeline.run("CREATE TABLE other.o (k INT PRIMARY KEY)")
    assert set(pipeline.live) == {T, U, OTHER}
    return pipeline


@pytest.fixture
def shop() -> Pipeline:
    return made()


def parked(effects: list[TableEffect]) -> dict[TableId, str]:
    """Tables that are parked, with the reason."""
    found = {effect.table: effect.steps[0] for effect in effects}
    assert len(found) == len(effects)
    reasons = {}
    for table, step in found.items():
        assert isinstance(step, Park) and f"resnapshot FILE {table}" in step.hint
        reasons[table] = step.reason
    return reasons


def reread(effects: list[TableEffect]) -> dict[TableId, str]:
    """Tables that are read again, with the reason."""
    for effect in effects:
        assert effect.rereads and effect.voids and not effect.steps
    return {effect.table: effect.rereads or "" for effect in effects}


WRITES = {
    "INSERT INTO t SET id = 4711": {T},
    "INSERT INTO t SELECT * FROM v": {T},
    "REPLACE t VALUES (4711)": {T},
    "UPDATE t, other.o SET a = 4711": {T, OTHER},
    "UPDATE v SET a = 4711": set(),
    "DELETE FROM t WHERE id = 4711": {T},
    "DELETE t FROM t JOIN u ON t.id = u.k": {T, U},
    "WITH x AS (SELECT 4711) UPDATE t SET a = 1": {T},
    "/*!50000 UPDATE t SET a = 4711 */": {T},
    "/* by */ UPDATE /*!50000 t */ SET a = 4711": {T},
    "LOAD DATA LOCAL INFILE '4711' INTO TABLE t": {T},
    "SELECT `shop`.`f`(4711)": set(),
    "(SELECT f(4711))": set(),
    "WITH x AS (SELECT f(4711)) SELECT * FROM x": set(),
    "DO f(4711)": set(),
    "CALL p(4711)": set(),
    "VALUES ROW(f(4711))": set(),
    "SET @x = f(4711)": set(),
    "ANALYZE UPDATE t SET a = 4711": set(),
    "EXECUTE IMMEDIATE 'UPDATE t SET a = 4711'": set(),
    "BEGIN NOT ATOMIC UPDATE t SET a = 4711; END": set(),
    "SET STATEMENT max_statement_time = 10 FOR UPDATE t SET a = 4711": {T},
}


@pytest.mark.parametrize("sql", WRITES)
def test_dml_parks_every_table_where_the_log_does_not_say_which_databases_it_wrote_to(
    shop: Pipeline, sql: str
) -> None:
    found = parked(shop.run(sql))
    assert set(found) == {T, U, OTHER}
    for table, reason in found.items():
        assert "statement format" in reason and str(table) in reason and "4711" not in reason
        assert ("were changed" in reason) == (table in WRITES[sql])


@pytest.mark.parametrize("sql", WRITES)
def test_dml_parks_only_tables_of_the_databases_that_its_event_lists(shop: Pipeline, sql: str) -> None:
    assert set(parked(shop.run(sql, updates=("other",)))) == {OTHER}
    found = parked(shop.run(sql, updates=("SHOP", "elsewhere")))
    assert set(found) == {T, U}
    assert {table for table, reason in found.items() if "were changed" in reason} == WRITES[sql] - {OTHER}
    assert shop.run(sql, updates=("elsewhere",)) == []


def test_the_head_of_the_statement_stands_in_the_reason(shop: Pipeline) -> None:
    found = parked(shop.run("UPDATE `v` SET a = 'secret', p = -0x41 WHERE id = 4711", updates=("shop",)))
    assert "`UPDATE `v` SET a = '…', p = -… WHERE id = …`" in found[T]
    assert "wrote to database shop" in found[T] and "views, triggers, functions" in found[T]


@pytest.mark.parametrize("sql", WRITES)
def test_mariadb_says_nothing_so_every_table_is_concerned(sql: str) -> None:
    shop = made(mariadb=True)
    shop.read.clear()
    assert set(parked(shop.run(sql))) == {T, U, OTHER}
    assert not shop.read  # no event is read for what it cannot hold


@pytest.mark.parametrize(
    "sql",
    [
        "MAKE COFFEE 4711",
        "CLONE INSTANCE FROM x",
        "IMPORT TABLE FROM 'x'",
        "BINLOG 'x'",
        "'",
        "CREATE SOMETHING",
    ],
)
def test_a_statement_that_nobody_can_read_makes_tables_be_read_again_whatever_the_catalog_says(
    sql: str,
) -> None:
    shop = made()
    found = reread(shop.run(sql))
    assert set(found) == {T, U, OTHER} and all("4711" not in reason for reason in found.values())
    assert set(reread(shop.run(sql, updates=("other",)))) == {OTHER}
    assert shop.run(sql, updates=("elsewhere",)) == []
    assert not shop.asked
    assert set(reread(made(mariadb=True).run(sql))) == {T, U, OTHER}


HARMLESS = """
ANALYZE TABLE t
ANALYZE LOCAL TABLE t
OPTIMIZE TABLE t, u
OPTIMIZE NO_WRITE_TO_BINLOG TABLE t
CHECK TABLE t
CHECKSUM TABLE t
ANALYZE TABLE t PERSISTENT FOR ALL
FLUSH PRIVILEGES
FLUSH TABLES t WITH READ LOCK
CREATE USER u@'%' IDENTIFIED BY 'x'
ALTER USER u@'%' ACCOUNT LOCK
DROP USER u@'%'
RENAME USER a TO b
GRANT ALL ON *.* TO u
REVOKE ALL ON *.* FROM u
CREATE ROLE r
DROP ROLE r
SET DEFAULT ROLE r TO u
SET PASSWORD FOR u = PASSWORD('x')
SET ROLE NONE
SET NAMES utf8mb4
SET @x = 5
SET SESSION a = 1, b = 'c'
CREATE VIEW v AS SELECT f() FROM t
CREATE OR REPLACE ALGORITHM = MERGE DEFINER = `a`@`b` VIEW v AS SELECT 1
ALTER VIEW v AS SELECT 1
DROP VIEW v
CREATE DEFINER = a@b TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET @a = f()
DROP TRIGGER x
CREATE PROCEDURE p() UPDATE t SET a = 1
ALTER PROCEDURE p COMMENT 'x'
DROP PROCEDURE p
CREATE DEFINER=`a`@`b` FUNCTION f() RETURNS INT BEGIN UPDATE t SET a = 1; RETURN 1; END
DROP FUNCTION f
CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO DELETE FROM t
ALTER EVENT e ENABLE
DROP EVENT IF EXISTS`shop`.`e`
CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'h')
DROP SERVER s
CREATE TABLESPACE s ADD DATAFILE 's'
ALTER TABLESPACE s RENAME TO r
DROP TABLESPACE s
CREATE UNDO TABLESPACE u ADD DATAFILE 'u'
DROP UNDO TABLESPACE u
CREATE SPATIAL REFERENCE SYSTEM 1 NAME 'x'
CREATE RESOURCE GROUP g TYPE = USER
CREATE LOGFILE GROUP g ADD UNDOFILE 'u'
INSTALL PLUGIN p SONAME 'x'
UNINSTALL PLUGIN p
INSTALL COMPONENT 'x'
PURGE BINARY LOGS TO 'x'
RESET MASTER
BEGIN
COMMIT
SAVEPOINT s
XA END 'x'
LOCK TABLES t WRITE
UNLOCK TABLES
KILL 5
START SLAVE
STOP SLAVE
CREATE DATABASE d
ALTER DATABASE shop CHARACTER SET utf8mb4
CREATE TABLE IF NOT EXISTS t (a INT)
ALTER SEQUENCE s
DROP TEMPORARY TABLE IF EXISTS `shop`.`x`
DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `x`
REPAIR VIEW v
PREPARE s FROM 'UPDATE t SET a = 1'
DEALLOCATE PREPARE s
ALTER TABLE t COMMENT = 'x'
REPAIR TABLE elsewhere.t
"""


@pytest.mark.parametrize("sql", HARMLESS.strip().splitlines())
@pytest.mark.parametrize("mariadb", [False, True])
def test_administration_and_definitions_of_what_holds_no_rows_concern_no_table_and_cost_no_look(
    sql: str, mariadb: bool
) -> None:
    shop = made(mariadb=mariadb)
    shop.read.clear()
    assert shop.run(sql) == []
    assert not shop.asked and not shop.read


def test_a_repair_concerns_the_tables_that_it_names(shop: Pipeline) -> None:
    found = reread(shop.run("REPAIR NO_WRITE_TO_BINLOG TABLE t, other.o QUICK"))
    assert found == dict.fromkeys((T, OTHER), "REPAIR TABLE may lose rows")


def test_a_memory_table_that_a_restart_has_emptied_is_the_only_one_concerned() -> None:
    shop, sql = made(), "DELETE FROM `shop`.`u`"
    assert set(parked(shop.run(sql, unsaid=True))) == {U}
    assert shop.run("DELETE FROM `cache`.`m`", unsaid=True) == []
    assert set(parked(shop.run(sql, lost=True))) == {
        T,
        U,
        OTHER,
    }  # whether the event says nothing is not known
    assert set(parked(shop.run("DELETE FROM u", unsaid=True))) == {T, U, OTHER}
    assert set(parked(shop.run(sql, updates=("shop", "other")))) == {T, U, OTHER}
    mariadb = made(mariadb=True)
    assert set(parked(mariadb.run(sql, alone=True))) == {U}
    assert mariadb.run("DELETE FROM `cache`.`m`", alone=True) == []
    assert set(parked(mariadb.run(sql))) == {T, U, OTHER}


def test_a_table_made_of_a_query_concerns_others_only_where_functions_may_write_them() -> None:
    assert made().run("CREATE TABLE x SELECT f() AS a FROM v") == []  # and the catalog knows no x
    for temporary in ("", "TEMPORARY "):
        mariadb = made(mariadb=True)
        for query in (
            "SELECT f() AS a",
            "SELECT id FROM v",
            "SELECT id FROM t WHERE a = f(5)",
            "(SELECT id FROM t)",
        ):
            found = mariadb.run(f"CREATE {temporary}TABLE elsewhere.x{len(query)} {query}")
            concerned = {effect.table for effect in found if effect.steps}
            assert {T, U, OTHER} <= concerned, query
        found = mariadb.run(f"CREATE {temporary}TABLE x SELECT id, a FROM t WHERE id > 5")
        assert {effect.table for effect in found} <= {TableId("shop", "x")}


def test_replacing_a_database_drops_its_tables() -> None:
    found = made(mariadb=True).run("CREATE OR REPLACE DATABASE shop CHARACTER SET utf8mb4")
    assert {effect.table for effect in found if effect.dropped} == {T, U}


LONG = "x" * 2000


def test_a_long_statement_is_judged_by_all_of_it(shop: Pipeline) -> None:
    options = f"ALTER TABLE t COMMENT = '{LONG}', "
    [effect] = shop.run(options + "ADD z INT", kept=1000)
    assert effect.rereads is None and effect.steps
    partitions = ", ".join(f"p{number}" for number in range(500))
    [effect] = shop.run(f"ALTER TABLE t DROP PARTITION {partitions}", kept=1000)
    assert effect.rereads == "drops partitions"
    both = shop.run(f"ALTER TABLE t COMMENT = '{LONG}', EXCHANGE PARTITION p WITH TABLE u", kept=1000)
    assert {one.table for one in both if one.rereads} == {T, U}
    for action in ("TRUNCATE PARTITION p", "DISCARD TABLESPACE", "DISCARD PARTITION p TABLESPACE"):
        [effect] = shop.run(f"ALTER TABLE /* {LONG} */ t {action}", kept=1000)
        assert effect.rereads, action
    [effect] = shop.run(f"CREATE TABLE c (a INT COMMENT '{LONG}', PRIMARY KEY (a))", kept=1000)
    assert effect.created is not None and effect.created.key == ("a",) and not shop.asked
    assert set(parked(shop.run(f"UPDATE /* {LONG} */ t SET a = 1", kept=1000, updates=("shop",)))) >= {T, U}


def test_a_long_statement_whose_event_cannot_be_read_concerns_all_tables(shop: Pipeline) -> None:
    everything = {T, U, OTHER}
    found = shop.run(f"ALTER TABLE t COMMENT = '{LONG}', DROP PARTITION p", kept=1000, lost=True)
    assert set(reread(found)) == everything
    assert set(reread(shop.run(f"ALTER TABLE t ADD z INT /* {LONG} */", kept=1000, lost=True))) == everything
    found = shop.run(f"UPDATE t SET b = '{LONG}'", kept=1000, lost=True)
    assert set(parked(found)) == everything
    shop.run(f"CREATE TABLE c (a INT PRIMARY KEY, b INT COMMENT '{LONG}')", kept=1000, lost=True)
    assert shop.asked[-1] == TableId("shop", "c")


def test_what_may_be_about_a_temporary_table_makes_the_table_it_hides_be_read_again(shop: Pipeline) -> None:
    shop.run("CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)")
    for sql in ("TRUNCATE t", "ALTER TABLE t ADD zz INT", "ALTER TABLE t DROP a, ADD q INT"):
        for restarted in (False, True):
            if restarted:
                shop.restart()
            [reason] = reread(shop.run(sql)).values()
            assert reason.startswith("a temporary table had this name"), sql
    assert [effect.steps != () for effect in shop.run("TRUNCATE u")] == [True]


def test_quotes_end_where_the_sql_mode_of_the_statement_says(shop: Pipeline) -> None:
    sql = "UPDATE u JOIN (SELECT '\\' AS x) AS y SET k = 1"
    mode = SQL_MODE_BITS["NO_BACKSLASH_ESCAPES"]
    found = parked(shop.run(sql, mode, updates=("shop",)))
    assert {table for table, reason in found.items() if "were changed by update" in reason} == {U}
    assert set(reread(shop.run(sql, 0, updates=("shop",)))) == {T, U}  # a quote that is not closed
