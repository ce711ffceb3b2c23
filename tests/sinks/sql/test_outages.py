"""Errors of databases that pass: the sink waits, parks nothing, and goes on. The servers are real."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pymysql
import pytest
from tests.connections.faulty import recovers
from tests.connections.test_faulty_http import writer

from penstock.connections import kafka_codes as kafka
from penstock.connections.verdicts import Codes, Verdict
from penstock.errors import ConfigError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.sinks.clickhouse import faults as clickhouse
from penstock.sinks.hbase import faults as hbase
from penstock.sinks.nats import faults as nats
from penstock.sinks.opensearch import faults as opensearch
from penstock.sinks.rabbitmq_streams import faults as rabbitmq
from penstock.sinks.redis import faults as redis
from penstock.sinks.sql import codes
from penstock.sinks.sql.options import JdbcOptions
from penstock.sinks.sql.registration import dialect_of
from penstock.testing import servers

TABLE = TableId("shop", "orders")


def slow(*values: str) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def fails(attempt: Callable[[], object], told: str) -> None:
    """An attempt fails as in an outage, and says which. Some may be done before the server ends them."""
    with pytest.raises(TransientError, match=told) as raised:
        for _ in range(100):
            attempt()
    assert "tried again" in raised.value.hint and "unpark" not in raised.value.hint


@pytest.fixture(scope="module")
def postgresql() -> Iterator[servers.PostgreSqlServer]:
    with servers.postgresql() as server:
        yield server


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("default_transaction_read_only = on", "25006"),
        ("idle_in_transaction_session_timeout = '1ms'", "25P03|lost the connection"),
        slow("statement_timeout = '1ms'", "57014"),
    ],
)
def test_a_setting_of_postgresql_that_ends_transactions_is_waited_for(
    postgresql: servers.PostgreSqlServer, setting: str, told: str
) -> None:
    made = postgresql
    options = {"type": "jdbc", "url": made.url, "user": made.user, "password": made.password}
    attempt = writer(JdbcOptions.model_validate(options))
    attempt()
    with psycopg.connect(made.url, user=made.user, password=made.password, autocommit=True) as admin:
        try:
            admin.execute(f"ALTER DATABASE {made.database} SET {setting}")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                          "WHERE application_name = 'penstock'")  # fmt: skip
            fails(attempt, "57P01|lost the connection")
            fails(attempt, told)
        finally:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute("SET statement_timeout = 0")
            admin.execute(f"ALTER DATABASE {made.database} RESET {setting.split(' ')[0]}")
    recovers(attempt)


@pytest.fixture(scope="module")
def mysql() -> Iterator[servers.MySqlServer]:
    with servers.MySqlServer({}) as server:
        server.execute("CREATE USER u IDENTIFIED WITH mysql_native_password BY 'u'")
        server.execute("GRANT ALL ON lake.* TO u", "GRANT ALL ON shop.* TO u", "GRANT ALL ON penstock.* TO u")
        yield server


@pytest.mark.parametrize(
    ("on", "off", "told"),
    [
        ("SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF", "error 1290 .* read only"),
        slow("SET GLOBAL super_read_only = ON", "SET GLOBAL super_read_only = OFF, read_only = OFF", "1290"),
        slow("SET GLOBAL transaction_read_only = ON", "SET GLOBAL transaction_read_only = OFF", "1792"),
        slow("SET GLOBAL offline_mode = ON", "SET GLOBAL offline_mode = OFF", "3032|2013"),
        slow("ALTER USER u WITH MAX_QUERIES_PER_HOUR 1", "ALTER USER u WITH MAX_QUERIES_PER_HOUR 0", "1226"),
    ],
)
def test_a_setting_of_mysql_that_refuses_all_writes_is_waited_for(
    mysql: servers.MySqlServer, on: str, off: str, told: str
) -> None:
    options = {"type": "jdbc", "url": f"mysql://{mysql.host}:{mysql.port}", "user": "u", "password": "u"}
    attempt = writer(JdbcOptions.model_validate(options))
    attempt()
    mysql.execute(on)
    for (number,) in mysql.query("SELECT id FROM information_schema.processlist WHERE user = 'u'"):
        mysql.execute(f"KILL {number}")
    try:
        with pytest.raises(TransientError, match=f"2013|2006|1927|{told}"):
            attempt()
        fails(attempt, told)
    finally:
        mysql.execute(off)
    recovers(attempt)


def explained(product: str, error: Exception, table: TableId | None = TABLE) -> Exception:
    urls = {"sqlite": "sqlite:///tmp/x.db", "duckdb": "duckdb:///tmp/x.db", "mysql": "mysql://h:1",
            "postgresql": "postgresql://h:1/d"}  # fmt: skip
    options: dict[str, Any] = {"type": "jdbc", "url": urls[product]}
    return dialect_of(JdbcOptions.model_validate(options)).explained(error, "It failed", table)


def test_a_file_of_sqlite_that_is_full_or_read_only_or_away_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE t (a UNIQUE)")

    def refused(url: str, *statements: str) -> Exception:
        with pytest.raises(sqlite3.Error) as raised:
            session = sqlite3.connect(url, uri=True)
            for statement in statements:
                session.execute(statement)
        return explained("sqlite", raised.value)

    assert isinstance(refused(f"file:{path}?mode=ro", "INSERT INTO t VALUES (1)"), TransientError)
    full = refused(f"file:{path}", "PRAGMA max_page_count = 1", "INSERT INTO t VALUES (zeroblob(100000))")
    assert isinstance(full, TransientError) and "SQLITE_FULL" in full.message
    assert isinstance(refused(f"file:{tmp_path}/no/x.db", "SELECT 1"), TransientError)
    assert isinstance(refused(f"file:{path}", "SELECT * FROM gone"), TableError)
    assert isinstance(refused(f"file:{path}", "INSERT INTO t VALUES (1), (1)"), TableError)
    (tmp_path / "text.db").write_text("no database" * 1000)
    assert isinstance(refused(f"file:{tmp_path}/text.db", "SELECT * FROM t"), ConfigError)


POSTGRESQL_CODES = {
    Verdict.OUTAGE: ("25006", "25P02", "25P03", "25P04", "57P01", "57P02", "57P03", "57P04", "57P05", "57014",
                     "53000", "53100", "53200", "53300", "53400", "08000", "08006", "08P01", "40001", "40P01",
                     "40003", "55P03", "55006", "58000", "58030", "58P01", "XX000", "26000"),
    Verdict.POISON: ("23505", "23514", "22001", "22003", "42703", "42P01", "2BP01", "54000", "P0001", "55000",
                     "XX001", "0A000"),
    Verdict.CONFIGURATION: ("28P01", "28000", "3D000", "42501"),
}  # fmt: skip
MYSQL_CODES = {
    Verdict.OUTAGE: (1290, 1836, 1792, 1205, 1213, 1040, 1053, 2006, 2013, 3024, 1969, 1927, 1021, 1114, 3032,
                     1203, 1226, 3100, 1047, 1129, 2003, 9001),
    Verdict.POISON: (1062, 1048, 1264, 1406, 1146, 1054, 1153, 1301, 3750, 3098, 1452, 1644),
    Verdict.CONFIGURATION: (1044, 1045, 1130, 1142, 1227, 1698, 1820, 2059, 3118, 3159),
}  # fmt: skip
CLASSES = {Verdict.OUTAGE: TransientError, Verdict.POISON: TableError, Verdict.CONFIGURATION: ConfigError}


class _Postgres(psycopg.Error):
    """An error as the driver raises it for a code."""

    def __init__(self, state: str) -> None:
        super().__init__("made by a test")
        self.sqlstate = state


@pytest.mark.parametrize("verdict", list(Verdict))
def test_each_code_means_the_same_to_the_sink_as_in_its_table(verdict: Verdict) -> None:
    for state in POSTGRESQL_CODES[verdict]:
        assert isinstance(explained("postgresql", _Postgres(state)), CLASSES[verdict]), state
    for code in MYSQL_CODES[verdict]:
        error = pymysql.err.OperationalError(code, "made by a test")
        assert isinstance(explained("mysql", error), CLASSES[verdict]), code


TABLES: list[Codes] = [
    codes.POSTGRESQL, codes.MYSQL, codes.SQLITE, codes.DUCKDB, redis.CODES, clickhouse.CODES,
    opensearch.CODES, nats.CODES, rabbitmq.CODES, kafka.CODES, hbase.CODES,
]  # fmt: skip


@pytest.mark.parametrize("table", TABLES, ids=str.split("postgresql mysql sqlite duckdb redis clickhouse "
                                                       "opensearch nats rabbitmq kafka hbase"))  # fmt: skip
def test_no_code_means_two_things(table: Codes) -> None:
    sets = (table.outage, table.configuration, table.poison)
    assert sum(map(len, sets)) == len(frozenset().union(*sets))
    assert table.source


@pytest.mark.slow
def test_a_stopped_server_is_noticed_and_a_long_statement_is_not_cut_off(tmp_path: Path) -> None:
    with servers.postgresql() as made:
        options = {"type": "jdbc", "url": made.url, "user": made.user, "password": made.password}
        limits = {"read_timeout": 1000, "connect_timeout": 1000}
        attempt = writer(JdbcOptions.model_validate({**options, **limits}))
        attempt()
        dialect = dialect_of(JdbcOptions.model_validate({**options, **limits}))
        session = dialect.connect()
        with dialect.watched(session):
            assert dialect.run(session, "SELECT pg_sleep(6), 7")[0][1] == 7, "a long statement"
        session.close()
        assert made.pid is not None
        root = psutil.Process(made.pid)
        stopped = [root, *root.children(recursive=True)]
        for process in stopped:
            process.suspend()
        try:
            began = time.monotonic()
            fails(attempt, "lost the connection")
            assert time.monotonic() - began < 60
        finally:
            for process in stopped:
                process.resume()
        recovers(attempt)
