"""`penstock encode` on the files of a real server. The judges are its SELECT, and what the documentation of
the formats says."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.relaylog.taken_back import statements_of
from tests.sources.mysql.receiving import receiving

from penstock.commands.encode import encode
from penstock.errors import ConfigError
from penstock.testing.servers import FLAVORS, MySql57Server, MySqlServer

TABLE = "CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(40), state ENUM('new','sent'))"


class Encode:
    """Runs the command, and returns key and value of each line."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.errors = ""

    def __call__(
        self, paths: Sequence[Path], format: str = "json", *options: str, code: int = 0, **others: Any
    ) -> list[tuple[str, str]]:
        arguments: dict[str, Any] = {"ddl": [], "ddl_version": "8.0", "server": None, "tables": []}
        found = encode(
            [str(path) for path in paths], format=format, options=options, keys=True, as_json=False,
            **(arguments | others),
        )  # fmt: skip
        captured = self._capture.readouterr()
        self.errors = captured.err
        assert found == code, captured.err
        keyed = [line.partition("\t") for line in captured.out.splitlines()]
        return [(key, value) for key, _, value in keyed]


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str]) -> Encode:
    return Encode(capfd)


def values(lines: list[tuple[str, str]]) -> list[Any]:
    return [json.loads(value) for _, value in lines if value]


def begun(emptied_mysql: Callable[..., MySqlServer], **options: Any) -> MySqlServer:
    server = emptied_mysql(**({"binlog_row_metadata": "FULL"} | options))
    server.execute("CREATE DATABASE shop", TABLE, "FLUSH BINARY LOGS")
    return server


def test_transactions_have_maxwells_marks(emptied_mysql: Callable[..., MySqlServer], lines: Encode) -> None:
    server = begun(emptied_mysql)
    server.execute(
        "BEGIN",
        "INSERT INTO shop.orders VALUES (1, 'a', 'new'), (2, NULL, 'new')",
        "UPDATE shop.orders SET state = 'sent' WHERE id = 1",
        "COMMIT",
        "DELETE FROM shop.orders WHERE id = 2",
    )
    found = lines(server.binlog_files()[-1:], "maxwell")
    assert found[0][0] == '{"database":"shop","table":"orders","pk.id":1}'
    one, two, three, four = values(found)
    assert list(one) == ["database", "table", "type", "ts", "xid", "xoffset", "data"]
    assert [row.get("xoffset") for row in (one, two, three)] == [0, 1, None]
    assert [row.get("commit") for row in (one, two, three, four)] == [None, None, True, True]
    assert one["xid"] == three["xid"] != four["xid"]
    assert (three["type"], three["data"]["state"], three["old"]) == ("update", "sent", {"state": "new"})
    assert (four["type"], four["data"]) == ("delete", {"id": 2, "note": None, "state": "new"})
    [row, *_] = values(
        lines(server.binlog_files()[-1:], "maxwell", "output_nulls=false", "output_xoffset=false")
    )
    assert row["data"] == {"id": 1, "note": "a", "state": "new"} and "xoffset" not in row
    [row, *_] = values(
        lines(
            server.binlog_files()[-1:], "maxwell", "output_binlog_position=true", "output_primary_keys=true",
            "output_primary_key_columns=true", "output_server_id=true", "output_thread_id=true",
            "kafka_key_format=array",
        )
    )  # fmt: skip
    assert (row["primary_key"], row["primary_key_columns"], row["server_id"]) == ([1], ["id"], 1)
    assert row["position"].startswith(server.binlog_files()[-1].name + ":")


def test_a_changed_key_is_a_deletion_a_tombstone_and_a_creation(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode
) -> None:
    server = begun(emptied_mysql)
    server.execute("INSERT INTO shop.orders VALUES (1, 'a', 'new')", "UPDATE shop.orders SET id = 7")
    found = lines(server.binlog_files()[-1:], "debezium")
    assert [key for key, _ in found] == ['{"id":1}', '{"id":1}', '{"id":1}', '{"id":7}']
    assert found[2][1] == ""
    created, deleted, again = values(found)
    assert [one["op"] for one in (created, deleted, again)] == ["c", "d", "c"]
    assert (deleted["before"]["id"], deleted["after"], again["before"], again["after"]["id"]) == (
        1,
        None,
        None,
        7,
    )
    assert len(lines(server.binlog_files()[-1:], "debezium", "tombstones.on.delete=false")) == 3


def test_debeziums_transaction_messages_count_the_changes(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode
) -> None:
    server = begun(emptied_mysql)
    server.execute(
        "CREATE TABLE shop.other (id INT PRIMARY KEY)",
        "BEGIN",
        "INSERT INTO shop.orders VALUES (1, 'a', 'new')",
        "INSERT INTO shop.other VALUES (1)",
        "INSERT INTO shop.orders VALUES (2, 'a', 'new')",
        "COMMIT",
    )
    found = values(lines(server.binlog_files()[-1:], "debezium", "provide.transaction.metadata=true"))
    begin, *changes, end = found
    assert (begin["status"], end["status"], end["event_count"]) == ("BEGIN", "END", 3)
    assert begin["id"] == end["id"] == changes[0]["source"]["gtid"]
    orders = [
        (one["transaction"]["total_order"], one["transaction"]["data_collection_order"]) for one in changes
    ]
    assert orders == [(1, 1), (2, 1), (3, 2)]
    counts = {one["data_collection"]: one["event_count"] for one in end["data_collections"]}
    assert counts == {"shop.orders": 2, "shop.other": 1}


def test_canals_message_has_the_rows_of_an_event(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode
) -> None:
    server = begun(emptied_mysql)
    server.execute(
        "INSERT INTO shop.orders VALUES (1, 'a', 'new'), (2, 'b', 'new')",
        "UPDATE shop.orders SET note = CONCAT(note, '!'), state = IF(id = 2, 'sent', state)",
    )
    inserted, updated = values(lines(server.binlog_files()[-1:], "canal"))
    assert list(inserted) == sorted(inserted)
    assert (inserted["type"], inserted["isDdl"], inserted["pkNames"], inserted["old"]) == (
        "INSERT",
        False,
        ["id"],
        None,
    )
    assert inserted["data"][1] == {"id": "2", "note": "b", "state": "new"}
    assert inserted["mysqlType"] == {"id": "int", "note": "varchar(40)", "state": "enum('new','sent')"}
    assert updated["old"] == [{"note": "a"}, {"note": "b", "state": "new"}]


def test_canal_has_messages_of_statements_in_their_place(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode
) -> None:
    server = begun(emptied_mysql)
    server.execute(
        "CREATE TABLE shop.t (k INT PRIMARY KEY, v INT)",
        "INSERT INTO shop.t VALUES (3, 1)",
        "CREATE INDEX v ON shop.t (v)",
        "ALTER TABLE shop.t DROP COLUMN v",
        "RENAME TABLE shop.t TO shop.u",
        "TRUNCATE shop.u",
        "DROP TABLE shop.u",
    )
    found = values(lines(server.binlog_files()[-1:], "canal"))
    kinds = [(one["type"], one["table"], one["isDdl"]) for one in found]
    assert kinds == [
        ("CREATE", "t", True), ("INSERT", "t", False), ("CINDEX", "t", True), ("ALTER", "t", True),
        ("RENAME", "u", True), ("TRUNCATE", "u", True), ("ERASE", "u", True),
    ]  # fmt: skip
    assert found[3]["sql"] == "ALTER TABLE shop.t DROP COLUMN v" and found[3]["data"] is None
    assert all(list(one) == sorted(one) for one in found)


def test_names_come_from_sql_files_and_follow_the_statements_of_the_log(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode, tmp_path: Path
) -> None:
    server = begun(emptied_mysql, binlog_row_metadata="MINIMAL")
    server.execute(
        "INSERT INTO shop.orders VALUES (1, 'a', 'sent')",
        "ALTER TABLE shop.orders RENAME COLUMN note TO remark, ADD COLUMN n INT FIRST",
        "INSERT INTO shop.orders VALUES (5, 2, 'b', 'new')",
        "CREATE TABLE shop.more (k INT PRIMARY KEY)",
        "INSERT INTO shop.more VALUES (3)",
    )
    ddl = tmp_path / "tables.sql"
    ddl.write_text(f"CREATE DATABASE shop; {TABLE};")
    found = values(lines(server.binlog_files()[-1:], ddl=[ddl]))
    assert [one["after"] for one in found] == [
        {"id": 1, "note": "a", "state": "sent"},
        {"n": 5, "id": 2, "remark": "b", "state": "new"},
        {"k": 3},
    ]


def test_statements_of_the_log_are_read_as_their_sessions_meant_them(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode, tmp_path: Path
) -> None:
    server = begun(emptied_mysql, binlog_row_metadata="MINIMAL")
    server.execute(
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        r"CREATE TABLE shop.t (e ENUM('a\b', 'c\\d'))",
        r"INSERT INTO shop.t VALUES ('a\b'), ('c\\d')",
        "SET sql_mode = 'REAL_AS_FLOAT'",
        "CREATE TABLE shop.r (r REAL)",
        "INSERT INTO shop.r VALUES (0.5)",
        "SET SESSION character_set_server = latin1",
        "CREATE DATABASE old",
        "CREATE TABLE old.t (v TEXT)",
        "INSERT INTO old.t VALUES ('é')",
    )
    ddl = tmp_path / "tables.sql"
    ddl.write_text("")
    found = values(lines(server.binlog_files()[-1:], ddl=[ddl]))
    tables = ("shop.t", "shop.r", "old.t")
    expected = [value for table in tables for (value,) in server.query(f"SELECT * FROM {table}")]
    assert [value for one in found for value in one["after"].values()] == expected


def test_missing_names_are_one_error_with_a_cure(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = begun(emptied_mysql, binlog_row_metadata="MINIMAL")
    server.execute(
        "INSERT INTO shop.orders VALUES (1, 'a', 'sent')",
        "CREATE TABLE shop.t (k INT PRIMARY KEY)",
        "INSERT INTO shop.t VALUES (3)",
    )
    assert lines(server.binlog_files()[-1:], code=1) == []
    assert "names of the columns of shop.orders" in lines.errors and "--ddl" in lines.errors
    # The catalog knows what the table is now, and the log what it creates.
    monkeypatch.setenv("PENSTOCK_PASSWORD", server.password)
    url = f"mysql://{server.user}@{server.host}:{server.port}"
    found = values(lines(server.binlog_files()[-1:], server=url))
    assert [one["after"] for one in found] == [{"id": 1, "note": "a", "state": "sent"}, {"k": 3}]
    server.execute("ALTER TABLE shop.orders ADD COLUMN later INT")
    assert lines(server.binlog_files()[-1:], server=url, code=1) == []
    for said in (
        "names of the columns of shop.orders", "server's definition is not used", "ALTER TABLE shop.orders",
    ):  # fmt: skip
        assert said in lines.errors
    assert "or --server" not in lines.errors


def test_definitions_in_the_log_are_used(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode, tmp_path: Path
) -> None:
    server = begun(emptied_mysql, binlog_row_metadata="MINIMAL")
    server.execute(
        "CREATE TABLE shop.t (k INT UNSIGNED PRIMARY KEY, e ENUM('x', 'y'))",
        "INSERT INTO shop.t VALUES (4000000000, 'y')",
        "ALTER TABLE shop.t CHANGE k id INT UNSIGNED, ADD COLUMN n INT FIRST",
        "INSERT INTO shop.t VALUES (5, 6, 'x')",
        "RENAME TABLE shop.t TO shop.u",
        "CREATE TABLE shop.t LIKE shop.u",
        "INSERT INTO shop.u VALUES (7, 8, NULL)",
        "INSERT INTO shop.t VALUES (9, 10, 'y')",
    )
    found = values(lines(server.binlog_files()[-1:]))
    assert [(one["table"], one["after"]) for one in found] == [
        ("t", {"k": 4000000000, "e": "y"}),
        ("t", {"n": 5, "id": 6, "e": "x"}),
        ("u", {"n": 7, "id": 8, "e": None}),
        ("t", {"n": 9, "id": 10, "e": "y"}),
    ]


def test_a_definition_in_the_log_is_not_used_where_it_may_have_done_nothing(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode
) -> None:
    server = begun(emptied_mysql, binlog_row_metadata="MINIMAL")
    other = TABLE.replace("TABLE", "TABLE IF NOT EXISTS").replace("note", "other")
    server.execute(other, "INSERT INTO shop.orders VALUES (1, 'a', 'sent')")
    assert lines(server.binlog_files()[-1:], code=1) == []
    assert "names of the columns of shop.orders" in lines.errors
    server.execute(
        "FLUSH BINARY LOGS",
        "DROP TABLE shop.orders",
        other,
        "INSERT INTO shop.orders VALUES (1, 'a', 'sent')",
    )
    [found] = values(lines(server.binlog_files()[-1:]))
    assert found["after"] == {"id": 1, "other": "a", "state": "sent"}


@pytest.mark.slow_for("mariadb1011-True", "mariadb118-False", "mariadb118-True")
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("flavor", ["mariadb1011", "mariadb118"])
def test_types_that_only_a_definition_tells_come_from_the_log(flavor: str, full: bool, lines: Encode) -> None:
    with FLAVORS[flavor]({"binlog_row_metadata": "FULL" if full else "NO_LOG"}) as server:
        server.execute(
            "CREATE DATABASE shop CHARACTER SET latin1",
            "FLUSH BINARY LOGS",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, u UUID, f INET4, s INET6, y YEAR(2))",
            "INSERT INTO shop.t VALUES (1, '123e4567-e89b-12d3-a456-426614174000', '1.2.3.4', '::5', 99)",
            "CREATE TABLE shop.inherits (id INT PRIMARY KEY, v VARCHAR(9))",
        )
        if not full:
            # What a table inherits from a database that is older than the log is not known.
            assert lines(server.binlog_files()[-1:], code=1) == []
            assert "names of the columns of shop.t" in lines.errors
            server.execute(
                "FLUSH BINARY LOGS",
                "CREATE OR REPLACE TABLE shop.t (id INT PRIMARY KEY, u UUID, f INET4, s INET6, y YEAR(2))"
                " CHARACTER SET utf8mb4",
                "INSERT INTO shop.t VALUES (1, '123e4567-e89b-12d3-a456-426614174000', '1.2.3.4', '::5', 99)",
            )
        [found] = values(lines(server.binlog_files()[-1:]))
        [row] = server.query("SELECT * FROM shop.t")
        assert list(found["after"].values()) == [*row[:4], int(row[4])]
        server.execute("FLUSH BINARY LOGS", "INSERT INTO shop.inherits VALUES (1, 'é')")
        if full:
            [found] = values(lines(server.binlog_files()[-2:]))[1:]
            assert found["after"]["v"] == "é"


def test_rows_of_an_xa_transaction_come_at_its_commit(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode
) -> None:
    server = begun(emptied_mysql)
    for name in "xy":
        number = ord(name)
        server.execute(
            f"XA START '{name}'",
            f"INSERT INTO shop.orders VALUES ({number}, 'prepared {name}', 'new')",
            f"XA END '{name}'",
            f"XA PREPARE '{name}'",
        )
    server.execute("INSERT INTO shop.orders VALUES (4, 'before the commit', 'new')", "FLUSH BINARY LOGS")
    server.execute("XA ROLLBACK 'y'", "XA COMMIT 'x'")
    first, second = server.binlog_files()[-2:]
    found = values(lines([first, second]))
    assert [one["after"]["note"] for one in found] == ["before the commit", "prepared x"]
    assert len(values(lines([first]))) == 1
    assert lines([second], code=1) == []
    assert "prepared before this log begins" in lines.errors


@pytest.mark.slow
def test_rows_that_were_taken_back_have_no_messages(lines: Encode, tmp_path: Path) -> None:
    with MySql57Server({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
        # A temporary table cannot be taken back, so the transaction is logged, and that it was undone.
        begin, forced = ("CREATE TEMPORARY TABLE d.tmp (id INT)", "BEGIN"), "DROP TEMPORARY TABLE d.tmp"
        server.execute(
            *begin, *(f"INSERT INTO d.t VALUES ({n})" for n in range(60)), forced, "ROLLBACK",
            *begin, "INSERT INTO d.t VALUES (101)", forced, "SAVEPOINT `A b`",
            "INSERT INTO d.t VALUES (102)", "ROLLBACK TO `A b`", "INSERT INTO d.t VALUES (103)", "COMMIT",
            *begin, "INSERT INTO d.t VALUES (104)", forced, "SAVEPOINT c",
            "INSERT INTO d.t VALUES (105)", "ROLLBACK TO c", "COMMIT",
        )  # fmt: skip
        logged = [sql for sql in statements_of(server) if sql.startswith("ROLLBACK")]
        assert logged == ["ROLLBACK", "ROLLBACK TO `A b`", "ROLLBACK TO `c`"]
        ddl = tmp_path / "tables.sql"
        ddl.write_text("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY);")
        found = values(lines(server.binlog_files()[-1:], "maxwell", ddl=[ddl], ddl_version="5.7.22"))
        assert (
            [one["data"]["id"] for one in found]
            == [101, 103, 104]
            == [id for (id,) in server.query("SELECT id FROM d.t ORDER BY id")]
        )
        # The last row that counts ends the transaction.
        assert [one.get("commit") for one in found] == [None, True, True]


def test_statements_that_changed_rows_are_said(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode
) -> None:
    server = begun(emptied_mysql)
    server.execute(
        "CREATE TABLE shop.one (id INT PRIMARY KEY)",
        "CREATE TABLE shop.parts (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
        " (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20))",
        "ALTER TABLE shop.parts TRUNCATE PARTITION a",
        "ALTER TABLE shop.parts EXCHANGE PARTITION a WITH TABLE shop.one",
        "ALTER TABLE shop.parts DROP PARTITION b",
        "ALTER TABLE shop.parts ADD COLUMN n INT",
        "SET SESSION binlog_format = 'STATEMENT'",
        "INSERT INTO shop.orders VALUES (1, 'a', 'new')",
    )
    assert lines(server.binlog_files()[-1:]) == []
    said = re.findall("rows that a statement changed are not in the log: (.*)", lines.errors)
    assert [text.removeprefix("ALTER TABLE shop.parts ").split()[0] for text in said] == [
        "TRUNCATE", "EXCHANGE", "DROP", "INSERT",
    ]  # fmt: skip
    assert "'a'" not in lines.errors


def test_a_relay_log_gives_the_same_messages_as_the_servers_files(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode, tmp_path: Path
) -> None:
    server = begun(emptied_mysql)
    with receiving(server, tmp_path, start="latest") as receiver:
        receiver.wait_until_level()
        for number in range(3):
            server.execute(
                f"INSERT INTO shop.orders VALUES ({number}, 'a', 'new'), ({number + 10}, 'b', 'new')",
                f"UPDATE shop.orders SET note = 'c' WHERE id = {number}",
                "FLUSH BINARY LOGS",
            )
        receiver.wait_until_level()
        for format in ("maxwell", "debezium"):
            options = ["output_binlog_position=true"] if format == "maxwell" else []
            relayed = lines([receiver.log.path], format, *options)
            assert relayed == lines(server.binlog_files()[-4:], format, *options) and len(relayed) == 9


def test_a_password_on_the_command_line_is_refused(lines: Encode) -> None:
    with pytest.raises(ConfigError) as caught:
        lines([], server="mysql://root:secret@127.0.0.1:1")
    assert "secret" not in str(caught.value)


def test_options_that_do_not_exist_are_refused(lines: Encode) -> None:
    for format, option in (("maxwell", "x=1"), ("debezium", "decimal.handling.mode=x"), ("nonsense", "x=1")):
        with pytest.raises(ConfigError):
            lines([], format, option)


def test_binary_messages_come_in_base64_behind_their_schemas(
    emptied_mysql: Callable[..., MySqlServer], lines: Encode
) -> None:
    server = begun(emptied_mysql)
    server.execute("INSERT INTO shop.orders VALUES (1, 'a', 'new')", "DELETE FROM shop.orders")
    for format, kind in (("avro", "AVRO"), ("protobuf", "PROTOBUF")):
        found = lines(server.binlog_files()[-1:], format)
        schemas = [json.loads(key) for key, _ in found if key.startswith("{")]
        assert [(one["id"], one["type"], one["table"], one["is_key"]) for one in schemas] == [
            (1, kind, "shop.orders", False), (2, kind, "shop.orders", True),
        ]  # fmt: skip
        messages = [(base64.b64decode(key), base64.b64decode(value)) for key, value in found[2:]]
        assert [key[:5] for key, _ in messages] == [b"\0\0\0\0\2"] * 3
        # The last one is a tombstone.
        assert [value[:5] for _, value in messages] == [b"\0\0\0\0\1"] * 2 + [b""]


def test_options_that_a_format_does_not_have_are_named(lines: Encode) -> None:
    for format, option in (("avro", "schemas=true"), ("protobuf", "time.precision.mode=connect")):
        with pytest.raises(ConfigError, match=option.partition("=")[0].replace(".", r"\.")):
            lines([], format, option)
