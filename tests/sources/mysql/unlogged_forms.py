"""Ways in which a statement writes tables that it does not name, or that nobody can tell from its text.

Databases: `a` holds what is written directly, `b` and `c` what is written through something, `n` nothing that
any of them touches. The judge of what a statement has changed is the server: rows before and after.
"""

from __future__ import annotations

from pathlib import Path

from penstock.testing.servers import DatabaseServer

DATABASES = ("a", "b", "c", "n")
SETUP: tuple[str, ...] = (
    *(f"CREATE DATABASE {name}" for name in DATABASES),
    *(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT)" for name in DATABASES),
    *(f"INSERT INTO {name}.t VALUES (1, 1), (2, 2), (3, 3)" for name in DATABASES),
    "CREATE TABLE a.fires (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
    "CREATE TABLE c.parent (id INT PRIMARY KEY)",
    (
        "CREATE TABLE b.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES c.parent (id) "
        "ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    "INSERT INTO c.parent VALUES (1), (2), (3)",
    "INSERT INTO b.child VALUES (1, 1), (2, 2), (3, 3)",
    "CREATE TABLE b.old (id INT) ENGINE = MyISAM",
    "CREATE TABLE a.merged (id INT) ENGINE = MERGE UNION = (b.old) INSERT_METHOD = LAST",
    (
        "CREATE TABLE a.parts (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20), "
        "PARTITION p2 VALUES LESS THAN (30))"
    ),
    "INSERT INTO a.parts VALUES (5, 5), (15, 15), (25, 25)",
    "CREATE VIEW a.seen AS SELECT * FROM b.t",
    "CREATE VIEW c.again AS SELECT * FROM a.seen",
    "CREATE TRIGGER a.fire AFTER INSERT ON a.fires FOR EACH ROW UPDATE b.t SET v = v + 1",
    "CREATE FUNCTION a.f() RETURNS INT DETERMINISTIC BEGIN UPDATE b.t SET v = v + 1; RETURN 1; END",
    (
        "CREATE FUNCTION c.nested() RETURNS INT DETERMINISTIC BEGIN INSERT INTO a.fires (v) VALUES (1); "
        "UPDATE c.t SET v = v + 1; RETURN a.f(); END"
    ),
    "CREATE VIEW c.calls AS SELECT a.f() AS x",
    "CREATE PROCEDURE a.both() BEGIN UPDATE b.t SET v = v + 1; UPDATE c.t SET v = v + 1; END",
)
"""For a server with log_bin_trust_function_creators."""

FORMS: dict[str, tuple[str, ...]] = {
    "a table": ("UPDATE a.t SET v = v + 1",),
    "a view": ("UPDATE a.seen SET v = v + 1",),
    "a view of a view": ("DELETE FROM c.again WHERE id = 3", "INSERT INTO c.again VALUES (3, 3)"),
    "a trigger": ("INSERT INTO a.fires (v) VALUES (1)",),
    "SELECT of a function": ("SELECT a.f()",),
    "DO of a function": ("DO a.f()",),
    "SET to a function": ("SET @x = a.f()",),
    "a function in WHERE": ("DELETE FROM c.t WHERE v = a.f() + 10000",),
    "a function that calls another": ("SELECT c.nested()",),
    "a view that calls a function": ("SELECT * FROM c.calls",),
    "INSERT from a view that calls": (
        "INSERT INTO c.t SELECT 100 + x, 1 FROM c.calls",
        "DELETE FROM c.t WHERE id > 3",
    ),
    "CALL": ("CALL a.both()",),
    "a prepared statement": (
        "PREPARE s FROM 'UPDATE a.seen SET v = v + ?'",
        "SET @n = 5",
        "EXECUTE s USING @n",
    ),
    "UPDATE of several tables": (
        "UPDATE b.t AS x, c.t AS y SET x.v = x.v + 1, y.v = y.v + 1 WHERE x.id = y.id",
    ),
    "DELETE from several tables": (
        "USE b",
        "DELETE x FROM b.t AS x JOIN c.t AS y ON x.id = y.id WHERE x.id = 2",
        "INSERT INTO b.t VALUES (2, 1000000 * RAND())",
    ),
    "a subquery": ("UPDATE b.t SET v = v + (SELECT 1 AS x)",),
    "a versioned comment": (
        "/*!50000 UPDATE a.seen SET v = v + 1 */",
        "UPDATE /*!50000 a.seen */ SET v = v + 1",
    ),
    "a comment in front": (
        "/* by somebody */ UPDATE a.seen SET v = v + 1",
        "-- so\n UPDATE a.seen SET v = v + 1",
    ),
    "REPLACE": ("REPLACE INTO a.seen VALUES (1, 77)", "REPLACE INTO b.t SELECT id, v + 1 FROM c.t"),
    "ON DUPLICATE KEY": ("INSERT INTO a.seen VALUES (1, 5) ON DUPLICATE KEY UPDATE v = v + 3",),
    "LOAD DATA": ("LOAD DATA LOCAL INFILE '{file}' INTO TABLE a.fires (v)",),
    "a MERGE table": ("INSERT INTO a.merged VALUES (1)",),
    "a temporary table": (
        "CREATE TEMPORARY TABLE a.few (id INT PRIMARY KEY)", "INSERT INTO a.few VALUES (1), (2)",
        "UPDATE b.t SET v = v + 1 WHERE id IN (SELECT id FROM a.few)", "DROP TEMPORARY TABLE a.few",
    ),
    "a transaction": ("BEGIN", "UPDATE a.seen SET v = v + 1", "SELECT a.f()", "COMMIT"),
    "XA": ("XA START 'x'", "UPDATE a.seen SET v = v + 1", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"),
    "a cascade": ("DELETE FROM c.parent WHERE id = 1", "UPDATE c.parent SET id = id + 100 ORDER BY id DESC"),
    "DML that is cut": (
        "UPDATE /* {long} */ a.seen SET v = v + 1",
        "UPDATE b.t SET v = v + 1 WHERE '{long}' <> ''",
    ),
    "DDL that is cut": (
        "ALTER TABLE /* {longer} */ a.parts TRUNCATE PARTITION p0",
        "ALTER TABLE a.parts /* {longer} */ DROP PARTITION p1",
    ),
    "many databases": ("UPDATE {many} SET t0.v = t0.v + 1",),
}  # fmt: skip
MYSQL: dict[str, tuple[str, ...]] = {
    "WITH": ("WITH q AS (SELECT 1 AS i) UPDATE b.t, q SET v = v + 1 WHERE id = i",),
    "VALUES of a function": ("VALUES ROW(a.f())",),
    "EXPLAIN ANALYZE": ("EXPLAIN ANALYZE SELECT a.f()",),
}
MARIADB: dict[str, tuple[str, ...]] = {
    "ANALYZE of an UPDATE": ("ANALYZE UPDATE a.seen SET v = v + 1",),
    "SET STATEMENT": ("SET STATEMENT max_statement_time = 10 FOR UPDATE a.seen SET v = v + 1",),
    "a comment for MariaDB": ("/*M! UPDATE a.seen SET v = v + 1 */",),
    "EXECUTE IMMEDIATE": ("EXECUTE IMMEDIATE 'UPDATE a.seen SET v = v + 1'",),
    "BEGIN NOT ATOMIC": ("BEGIN NOT ATOMIC UPDATE a.t SET v = v + 1; UPDATE a.seen SET v = v + 1; END",),
    "RETURNING": ("DELETE FROM b.t WHERE id = 1 RETURNING id", "INSERT INTO b.t VALUES (1, 1) RETURNING id"),
    "a query that makes a table": ("CREATE TABLE a.made SELECT a.f() AS x", "DROP TABLE a.made"),
    "history": (
        "INSERT IGNORE INTO a.kept VALUES (1, 1)",
        "UPDATE a.kept SET v = v + 1",
        "DELETE HISTORY FROM a.kept",
    ),
    "a portion of a period": (
        "INSERT INTO a.times VALUES (1, '2020-01-01', '2021-01-01')",
        "UPDATE a.times FOR PORTION OF app FROM '2020-03-01' TO '2020-04-01' SET id = 2",
        "DELETE FROM a.times FOR PORTION OF app FROM '2020-03-15' TO '2020-03-20'",
    ),
}  # fmt: skip

SETUP_MARIADB = (
    "CREATE TABLE a.kept (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
    "CREATE TABLE a.times (id INT, s DATE, e DATE, PERIOD FOR app(s, e))",
)

ADMINISTRATION = """
CREATE USER u@'%' IDENTIFIED BY 'x'
GRANT SELECT ON *.* TO u@'%'
SET PASSWORD FOR u@'%' = {password}
CREATE ROLE r
GRANT r TO u@'%'
SET DEFAULT ROLE r {to} u@'%'
REVOKE SELECT ON *.* FROM u@'%'
RENAME USER u@'%' TO w@'%'
ALTER USER w@'%' ACCOUNT LOCK
DROP USER w@'%'
DROP ROLE r
FLUSH PRIVILEGES
FLUSH TABLES
FLUSH TABLES a.t
ANALYZE TABLE a.t, b.t
OPTIMIZE TABLE a.t
CHECK TABLE a.t
CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'h', DATABASE 'd')
DROP SERVER s
CREATE TABLESPACE ts ADD DATAFILE 'ts.ibd' ENGINE = InnoDB
DROP TABLESPACE ts
CREATE VIEW b.v AS SELECT a.f() AS x FROM a.t
ALTER VIEW b.v AS SELECT * FROM a.t
DROP VIEW b.v
CREATE TRIGGER b.tr AFTER DELETE ON b.t FOR EACH ROW SET @x = a.f()
DROP TRIGGER b.tr
CREATE PROCEDURE b.p() UPDATE a.t SET v = 1
ALTER PROCEDURE b.p COMMENT 'x'
DROP PROCEDURE b.p
CREATE FUNCTION b.g() RETURNS INT DETERMINISTIC RETURN 1
DROP FUNCTION b.g
CREATE EVENT b.e ON SCHEDULE EVERY 1 YEAR DO DELETE FROM a.t
ALTER EVENT b.e ENABLE
DROP EVENT b.e
CREATE DATABASE d
ALTER DATABASE d CHARACTER SET utf8mb4
DROP DATABASE d
CREATE TEMPORARY TABLE a.few (id INT)
INSERT INTO a.few VALUES (1)
DROP TEMPORARY TABLE a.few
CREATE TABLE n.not_captured (id INT PRIMARY KEY) ENGINE = MEMORY
INSERT INTO n.not_captured VALUES (1)
ALTER TABLE a.t COMMENT 'x'
CREATE INDEX i ON a.t (v)
DROP INDEX i ON a.t
ANALYZE TABLE a.t PERSISTENT FOR ALL
CREATE SEQUENCE n.sq
SELECT NEXTVAL(n.sq)
DROP SEQUENCE n.sq
"""
"""What a server does not know it refuses, and then it is not in its log."""


def administration(server: DatabaseServer, *, mariadb: bool) -> list[str]:
    text = ADMINISTRATION.format(
        password="PASSWORD('y')" if mariadb else "'y'", to="FOR" if mariadb else "TO"
    )
    return text.strip().splitlines()


def forms(*, mariadb: bool) -> dict[str, tuple[str, ...]]:
    return FORMS | (MARIADB if mariadb else MYSQL)


def filled(sql: str, file: Path) -> str:
    """`{long}` is longer than the index keeps of DML, `{longer}` than it keeps of DDL."""
    many = ", ".join(f"m{number}.t AS t{number}" for number in range(18))
    values = {"file": file, "long": "x" * 3000, "longer": "z" * 300_000, "many": many}
    for name, value in values.items():
        sql = sql.replace("{" + name + "}", str(value))
    return sql
