"""Public bug reports of other tools, tried on whole pipelines. Each table is one report, with its address."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testing import servers
from penstock.testing.meanwhile import Work, meanwhile
from penstock.testing.scenario import Scenario
from penstock.testing.servers import MySqlClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Before the pipeline, and while it runs; with the table that must be equal.
Report = tuple[str, list[str], list[str]]

OPAQUE = [
    ("1.99", "DECIMAL(3,2)"),
    ("-0.5", "DECIMAL(1,1)"),
    ("'12345678901234567890123456789012345.123456789012345678901234567890'", "DECIMAL(65,30)"),
    ("'-838:59:59'", "TIME"),
    ("'12:34:56.789012'", "TIME(6)"),
    ("'2024-02-29'", "DATE"),
    ("'9999-12-31 23:59:59.999999'", "DATETIME(6)"),
]
"""Values that are opaque in MySQL's JSON, with their types."""

MYSQL_97: list[Report] = [
    (  # MaterializeInc/materialize#25570: an invisible key that the catalog does not show
        "gipk",
        ["CREATE TABLE gipk (v VARCHAR(10))", "INSERT INTO gipk VALUES ('a'), ('a'), (NULL)"],
        ["INSERT INTO gipk VALUES ('a')", "DELETE FROM gipk LIMIT 1", "UPDATE gipk SET v = 'b' LIMIT 1"],
    ),
    (  # estuary/connectors#5188: invisible columns are in the log, but not in SELECT *
        "invisible",
        [
            (
                "CREATE TABLE invisible (a INT, k INT INVISIBLE PRIMARY KEY, hidden VARCHAR(9) INVISIBLE"
                " DEFAULT 'd')"
            ),
            "INSERT INTO invisible (a, k, hidden) VALUES (1, 1, 'x'), (2, 2, 'y')",
        ],
        [
            "INSERT INTO invisible (a, k) VALUES (3, 3)",
            "UPDATE invisible SET hidden = 'z' WHERE k = 1",
            "ALTER TABLE invisible ALTER COLUMN hidden SET VISIBLE, ADD COLUMN more INT INVISIBLE DEFAULT 7",
            "INSERT INTO invisible (a, k) VALUES (4, 4)",
        ],
    ),
    (  # vitessio/vitess#19103: values in JSON that are not JSON's, of every size
        "opaque",
        [
            "CREATE TABLE opaque (id INT PRIMARY KEY, j JSON)",
            "INSERT INTO opaque VALUES (0, JSON_ARRAY(1.5))",
        ],
        [
            f"INSERT INTO opaque VALUES ({number}, CAST(CAST({value} AS {kind}) AS JSON))"
            for number, (value, kind) in enumerate(OPAQUE, 1)
        ]
        + [
            "INSERT INTO opaque VALUES (50, JSON_OBJECT('b', b'1', 'x', x'00ff', 's', _utf8mb4'é'))",
            "INSERT INTO opaque VALUES (51, JSON_OBJECT('long', REPEAT(x'fe', 300)))",
            "INSERT INTO opaque VALUES (52, JSON_ARRAY(b'1111111111', JSON_ARRAY(REPEAT(x'01', 20000))))",
        ],
    ),
    (  # shyiko/mysql-binlog-connector-java#302: holes in JSON after changes in place
        "holes",
        [
            "CREATE TABLE holes (id INT PRIMARY KEY, j JSON)",
            (
                "INSERT INTO holes VALUES (1, JSON_OBJECT('a', REPEAT('x', 9), 'b', JSON_ARRAY(1, '2', NULL),"
                " 'c', 3)), (2, JSON_ARRAY(REPEAT('y', 300), 70000, 'z'))"
            ),
        ],
        [
            "SET SESSION binlog_row_value_options = PARTIAL_JSON",
            "UPDATE holes SET j = JSON_SET(j, '$.a', 'short') WHERE id = 1",
            "UPDATE holes SET j = JSON_REMOVE(JSON_REPLACE(j, '$.b[1]', 2), '$.c') WHERE id = 1",
            "UPDATE holes SET j = JSON_REPLACE(j, '$[0]', 'y', '$[1]', 1) WHERE id = 2",
            "UPDATE holes SET j = JSON_REMOVE(j, '$[0]') WHERE id = 2",
            "SET SESSION binlog_row_value_options = ''",
            "UPDATE holes SET j = JSON_SET(j, '$.late', 'yes') WHERE id = 1",
        ],
    ),
    (  # PeerDB-io/peerdb#4445: BINARY(N) is stored without its zeros at the end
        "zeros",
        [
            "CREATE TABLE zeros (k BINARY(4) PRIMARY KEY, b BINARY(8), c CHAR(8), v VARBINARY(8))",
            "INSERT INTO zeros VALUES (x'00000000', x'', '', x'00'), (x'01000000', x'ff00', 'a ', x'ff00')",
        ],
        [
            "INSERT INTO zeros VALUES (x'0001', x'00', ' ', x''), (x'20202020', x'2020', '  b  ', x'2020')",
            "UPDATE zeros SET b = x'0000', v = x'000000' WHERE k = x'01000000'",
            "DELETE FROM zeros WHERE k = x'00000000'",
        ],
    ),
    (  # Altinity/clickhouse-sink-connector#1140: several ADD COLUMN with algorithms between them
        "algorithms",
        ["CREATE TABLE algorithms (id INT PRIMARY KEY)", "INSERT INTO algorithms VALUES (1)"],
        [
            (
                "ALTER TABLE algorithms ADD COLUMN a INTEGER DEFAULT 5, ALGORITHM=INSTANT,"
                " ADD COLUMN b BIGINT, ALGORITHM=INSTANT"
            ),
            "INSERT INTO algorithms VALUES (2, 2, 2)",
            # The grammar of Debezium gave the first column the default of the second one.
            (
                "ALTER TABLE algorithms ADD COLUMN (created TIMESTAMP DEFAULT '2024-01-01 00:00:00',"
                " updated TIME DEFAULT '08:00')"
            ),
            "INSERT INTO algorithms (id) VALUES (3)",
        ],
    ),
    (  # debezium/dbz#2501: a column with capital letters that is moved behind the last one
        "moved",
        ["CREATE TABLE moved (Foo INT, id INT PRIMARY KEY, Last INT)", "INSERT INTO moved VALUES (1, 2, 3)"],
        [
            "ALTER TABLE moved MODIFY COLUMN fOO INT AFTER lAST",
            "INSERT INTO moved VALUES (20, 30, 10)",
            "ALTER TABLE moved CHANGE LAST first INT FIRST, CHANGE foo Sum INT(11) DEFAULT NULL",
            "INSERT INTO moved VALUES (1, 40, 2)",
        ],
    ),
    (  # debezium/dbz#71, #690, #1272: statements that a grammar did not know
        "grammar",
        ["CREATE TABLE grammar (id INT PRIMARY KEY, d VARCHAR(9))", "INSERT INTO grammar VALUES (1, 'é')"],
        [
            "ALTER DATABASE shop /*!40100 DEFAULT CHARACTER SET utf8mb4 */",
            "ALTER TABLE grammar MODIFY d VARCHAR(512) UNICODE",
            "ALTER TABLE grammar ADD COLUMN s SET('ALL', 'CREDIT,CARD') NOT SECONDARY".replace(
                ",CARD", "_CARD"
            ),
            "INSERT INTO grammar VALUES (2, '語', 'ALL,CREDIT_CARD')",
        ],
    ),
    (  # pingcap/tiflow#12796: keys that a default collation takes for equal, in another case
        "folded",
        [
            "CREATE TABLE folded (id VARCHAR(20) NOT NULL PRIMARY KEY, v INT) DEFAULT CHARSET=utf8mb3",
            "INSERT INTO folded VALUES ('A', 1), ('é', 2), ('ß', 3)",
        ],
        [
            "UPDATE folded SET id = 'a' WHERE id = 'A'",
            "UPDATE folded SET id = 'E' WHERE id = 'é'",
            "INSERT INTO folded VALUES ('e', 9) ON DUPLICATE KEY UPDATE v = 8",
            "REPLACE INTO folded VALUES ('SS', 4)",
            "DELETE FROM folded WHERE id = 'S'",
        ],
    ),
]
"""Also: the server's sessions have SERIALIZABLE as their isolation, in which a SELECT takes locks, and SHOW
CREATE TABLE quotes no names."""

MARIADB_118: list[Report] = [
    (  # MariaDB/server#4933: TIMESTAMP until 2106
        "late",
        [
            "CREATE TABLE late (id INT PRIMARY KEY, t TIMESTAMP NULL, m TIMESTAMP(6) NULL)",
            (
                "INSERT INTO late VALUES (1, '2106-02-07 06:28:15', '2106-02-07 06:28:15.999999'),"
                " (2, '2038-01-19 03:14:08', '2038-01-19 03:14:07.999999')"
            ),
        ],
        [
            (
                "INSERT INTO late VALUES (3, '2106-02-07 06:28:15', '2106-02-07 06:28:15.999999'),"
                " (4, '2100-01-01', '1970-01-01 00:00:01')"
            ),
            "UPDATE late SET m = '2099-12-31 23:59:59.5' WHERE id = 1",
            "ALTER TABLE late ADD COLUMN d TIMESTAMP(3) NOT NULL DEFAULT '2105-05-05 05:05:05.555'",
            "INSERT INTO late (id) VALUES (5)",
        ],
    ),
    (  # siddontang/go-mysql-elasticsearch#15: the server runs in Oracle's mode
        "oracle",
        [
            'CREATE TABLE "oracle" ("id" NUMBER(10) PRIMARY KEY, v VARCHAR2(20), d DATE, r RAW(10))',
            "INSERT INTO oracle VALUES (1, '', '2024-01-02 03:04:05', x'00')",
        ],
        [
            "INSERT INTO oracle VALUES (2, 'a' || 'b', '2024-01-02 03:04:05', x'ff'), (3, '', NULL, '')",
            "ALTER TABLE oracle ADD (c CLOB, w DATE DEFAULT '2024-05-06 07:08:09', n NUMBER)",
            "INSERT INTO oracle (id, c, n) VALUES (4, 'text', 1.5)",
            'CREATE TABLE "made" (id NUMBER(5,2) PRIMARY KEY, d DATE, b BLOB, "from" VARCHAR2(3))',
            "INSERT INTO made VALUES (1.25, '2024-01-02 03:04:05', 'b', '')",
        ],
    ),
    ("made", [], []),
    (  # airbytehq/airbyte#14745: expressions as defaults
        "defaults",
        [
            (
                "CREATE TABLE defaults (id INT PRIMARY KEY, inserted DATE NOT NULL DEFAULT curdate(),"
                " u UUID DEFAULT uuid(), e VARCHAR(9) DEFAULT (concat('a', 1)))"
            ),
            "INSERT INTO defaults (id) VALUES (1)",
        ],
        [
            "INSERT INTO defaults (id) VALUES (2)",
            "ALTER TABLE defaults ADD COLUMN n INT NOT NULL DEFAULT (1 + 1), ALGORITHM=COPY",
            "INSERT INTO defaults (id) VALUES (3)",
        ],
    ),
]

MYSQL_57: list[Report] = [
    (  # pingcap/dm#1646: names in another case than the server stores them in
        "mixed",
        ["CREATE TABLE Mixed (id INT PRIMARY KEY, V INT)", "INSERT INTO Shop.MIXED VALUES (1, 1)"],
        [
            "ALTER TABLE `SHOP`.`mIxEd` ADD COLUMN w INT DEFAULT 3, CHANGE v VV INT",
            "INSERT INTO MIXED VALUES (2, 2, 2)",
            "CREATE TABLE SHOP.Later (Id INT PRIMARY KEY)",
            "INSERT INTO LATER VALUES (1)",
            "RENAME TABLE later TO LATEST",
            "INSERT INTO latest VALUES (2)",
        ],
    ),
    ("latest", [], []),
]

SERVERS: dict[str, tuple[str, list[Report], dict[str, Any]]] = {
    "mysql97": (
        "mysql97",
        MYSQL_97,
        {
            "sql_generate_invisible_primary_key": "ON",
            "show_gipk_in_create_table_and_information_schema": "OFF",
            "transaction_isolation": "SERIALIZABLE",
            "sql_mode": "",
        },
    ),
    "mariadb118": (
        "mariadb118",
        MARIADB_118,
        {"sql_mode": "ORACLE,EMPTY_STRING_IS_NULL",
         "transaction_isolation": "SERIALIZABLE"},
    ),
    "mysql57": ("mysql57", MYSQL_57, {"lower_case_table_names": 1}),
}  # fmt: skip


def locked_by_nobody(server: MySqlClient) -> Work:
    """Changes a row again and again, and fails if another session holds a lock on it for a second."""

    def write(ending: threading.Event) -> None:
        with server.connect(database="shop") as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
            while not ending.wait(0.02):
                cursor.execute("UPDATE busy SET v = v + 1")

    return write


def has_what_it_claims(name: str, shop: MySqlClient) -> None:
    """Fails if the server does not do what the reports are about."""
    if name == "mysql97":
        assert shop.query("SELECT my_row_id FROM gipk") and "my_row_id" not in str(
            shop.query("SHOW CREATE TABLE gipk")
        )
        assert shop.query("SELECT @@transaction_isolation") == [("SERIALIZABLE",)]
        assert "`Foo`" not in str(shop.query("SHOW CREATE TABLE moved"))
    if name == "mariadb118":
        assert shop.query("SELECT count(*) FROM late WHERE year(t) > 2037") == [(2,)]
        assert shop.query("SELECT v IS NULL, hour(d) FROM oracle") == [(1, 3)]
    if name == "mysql57":
        assert shop.query("SHOW TABLES LIKE 'mi%'") == [("mixed",)]


@pytest.mark.parametrize("name", SERVERS)
def test_what_was_reported_of_other_tools_ends_equal(
    name: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    flavor, reports, options = SERVERS[name]
    with servers.FLAVORS[flavor](options) as server:
        server.execute("CREATE DATABASE shop", "SET GLOBAL sql_quote_show_create = OFF")
        shop = servers.Database.__new__(servers.Database)
        shop.__dict__.update(server.__dict__ | {"server": server, "name": "shop"})
        shop.execute("CREATE TABLE busy (id INT PRIMARY KEY, v INT)", "INSERT INTO busy VALUES (1, 0)")
        for _, before, _ in reports:
            shop.execute(*before)
        has_what_it_claims(name, shop)
        case = Scenario(server, "shop", tmp_path, spark, lake_root)
        with case.running() as pipeline:
            with meanwhile(locked_by_nobody(server)):
                pipeline.wait_until(
                    lambda s: s["snapshot"]["done"] and s["epoch"] > 1, "the snapshot", seconds=900
                )
            for _, _, during in reports:
                shop.execute(*during)
            case.drain(pipeline)
            tables = {one["table"]: one for one in case.status()["tables"]}
            assert pipeline.stop() == 0
        assert [one["parked"] for one in tables.values() if one["parked"]] == []
        case.assert_equal(*(table for table, _, _ in reports))
