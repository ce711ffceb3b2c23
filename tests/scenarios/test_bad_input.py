"""What cannot work is refused: one paragraph that names the thing and the cure, before Spark is started, and
nothing is lost by it.

Here: the pipeline file and the source. `test_bad_state.py` has what lies on disk.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import servers
from penstock.testing.scenario import Scenario, refusal
from penstock.testing.servers import Database, MySqlServer


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    """This module's own: tests change its settings, and put them back."""
    with MySqlServer() as one:
        yield one


@pytest.fixture
def case(server: MySqlServer, tmp_path: Path) -> Iterator[Scenario]:
    """A pipeline that has not been run, over one table. Nothing of it needs Spark."""
    database = Database(server)
    database.execute("CREATE TABLE orders (id INT PRIMARY KEY, v INT)", "INSERT INTO orders VALUES (1, 1)")
    nothing: Any = None
    yield Scenario(database, database.name, tmp_path, nothing, tmp_path / "lake")
    database.drop()


def source_of(server: servers.MySqlClient, **changes: Any) -> dict[str, Any]:
    found = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    return found | changes


def first(quick: int, *values: Any) -> list[Any]:
    """The first few are enough for a quick run: each starts a process of its own."""
    return [*values[:quick], *[pytest.param(*one(value), marks=pytest.mark.slow) for value in values[quick:]]]


def one(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def spark_was_started(case: Scenario) -> bool:
    return (case.folder / "state" / "logs").exists()


def refused(case: Scenario, *named: str, command: str = "run") -> str:
    """`penstock run FILE --once` refuses, and has not even started Spark."""
    arguments = ("run", "--once") if command == "run" else (command,)
    paragraph = refusal(case.command(*arguments), *named)
    assert not spark_was_started(case)
    return paragraph


def test_a_port_that_is_taken_is_named(case: Scenario) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        case.write_file(http={"listen": address, "tokens": {"a": {"token": "0123456789abcdef"}}})
        refused(case, "http.listen", address, "another process listens there")


# the pipeline file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    first(
        3,
        ({"snapshot": {"chunk_row": 5}}, ["snapshot.chunk_row`", "did you mean `chunk_rows`"]),
        ({"sinc": {}}, ["`sinc`", "did you mean `sink`"]),
        ({"sink": {"type": "icebreg"}}, ["`sink.type`", "icebreg", "iceberg, delta, parquet, kafka, jdbc"]),
        ({"sink": {"type": "delta"}}, ["`sink.path`", "the sink delta", "missing"]),
        ({"epoch": {"interval": "soon"}}, ["`epoch.interval`", "500ms"]),
        ({"relay_log": {"segment_size": "large"}}, ["`relay_log.segment_size`", "256MiB"]),
        ({"tables": ["orders"]}, ["`tables`", "'orders'", "database.table"]),
        ({"tables": []}, ["`tables.include`"]),
        ({"source": {"user": "u", "start": {"at": "latest", "gtid": ""}}}, ["`source.start`", "give one of"]),
        ({"name": "no good"}, ["`name`"]),
        ({"source": {"user": "u", "port": 70000}}, ["`source.port`", "65535"]),
        ({"source": {"host": "h"}}, ["`source.user`", "missing"]),
        ({"spark": {"conf": {"spark.ui.enabled": False}}}, ["`spark.conf.spark.ui.enabled`", "in quotes"]),
    ),
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_option_that_cannot_be_is_named_with_what_it_could_be(
    case: Scenario, changes: dict[str, Any], named: list[str]
) -> None:
    case.write_file(**changes)
    refused(case, str(case.file), *named)


@pytest.mark.parametrize("command", first(2, "run", "receive", "status", "doctor", "verify"))
def test_every_command_refuses_a_file_with_an_unknown_option(case: Scenario, command: str) -> None:
    case.write_file(snapshot={"chunk_row": 5})
    refused(case, str(case.file), "chunk_rows", command=command)


@pytest.mark.parametrize(
    ("text", "named"),
    first(
        2,
        ("name: x\nsource: {host: a\n", ["not valid YAML", "line"]),
        ("name: x\n\tsource: 1\n", ["not valid YAML", "line 2", "YAML allows no tabs"]),
        ("", ["holds no options"]),
        ("- a\n- b\n", ["holds no options"]),
        ("name: ${PENSTOCK_TEST_NOT_SET}\n", ["PENSTOCK_TEST_NOT_SET", "export"]),
    ),
    ids=["open brace", "tab", "empty", "list", "variable"],
)
def test_a_file_that_is_no_pipeline_file_is_named_with_the_line(
    case: Scenario, text: str, named: list[str]
) -> None:
    case.file.write_text(text)
    refused(case, str(case.file), *named)


def test_a_missing_file_is_named(case: Scenario) -> None:
    case.file.unlink()
    refused(case, str(case.file), "No such file")


def test_an_unknown_command_line_option_is_wrong_usage(case: Scenario) -> None:
    done = case.command("run", "--onec")
    assert done.returncode == 2
    assert "--onec" in done.stderr and "--once" in done.stderr and "Traceback" not in done.stderr


# reaching the source ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", first(1, "run", "receive"))
def test_a_wrong_password_names_account_and_option(case: Scenario, command: str) -> None:
    case.write_file(source=source_of(case.server, password="wrong"))
    paragraph = refused(case, f"127.0.0.1:{case.server.port}", "'root'", "source.password", command=command)
    assert "wrong" not in paragraph


def test_doctor_reports_a_wrong_password_as_an_error(case: Scenario) -> None:
    case.write_file(source=source_of(case.server, password="wrong"))
    done = case.command("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1 and not report["ok"]
    assert "source.password" in report["findings"][0]["message"]


@contextmanager
def closed_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]  # bound, and nobody listens


@contextmanager
def silent_port() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        yield listening.getsockname()[1]  # accepts, and never says a word


@pytest.mark.parametrize("command", first(1, "run", "receive"))
@pytest.mark.parametrize("port", [closed_port, silent_port], ids=["closed", "silent"])
def test_a_source_that_cannot_be_reached_is_named(case: Scenario, port: Any, command: str) -> None:
    with port() as number:
        case.write_file(source=source_of(case.server, port=number, connect_timeout="1s"))
        refused(case, f"127.0.0.1:{number}", "source.port", command=command)


def test_a_host_name_that_does_not_exist_is_named(case: Scenario) -> None:
    case.write_file(source=source_of(case.server, host="db.invalid"))
    refused(case, "'db.invalid'", "source.host")


def test_a_certificate_that_is_not_the_servers_is_said(case: Scenario, tmp_path: Path) -> None:
    case.write_file(source=source_of(case.server, tls="verify_ca", tls_ca=str(tmp_path / "ca.pem")))
    refused(case, "source.tls_ca", str(tmp_path / "ca.pem"))
    case.write_file(source=source_of(case.server, tls="verify_identity"))
    refused(case, "TLS", "source.tls")


# what the account may do -----------------------------------------------------------------------------------


@contextmanager
def account(server: servers.MySqlClient, *grants: str) -> Iterator[str]:
    server.execute(
        "CREATE USER 'reader'@'127.0.0.1' IDENTIFIED BY 'pw'",
        *[f"GRANT {grant} TO 'reader'@'127.0.0.1'" for grant in grants],
    )
    yield "reader"
    server.execute("DROP USER 'reader'@'127.0.0.1'")


@pytest.mark.parametrize(
    ("grants", "named"),
    first(
        2,
        (["SELECT ON *.*"], ["REPLICATION CLIENT", "REPLICATION SLAVE"]),
        (["SELECT, REPLICATION CLIENT ON *.*"], ["REPLICATION SLAVE"]),
        (["SELECT, REPLICATION SLAVE ON *.*"], ["REPLICATION CLIENT"]),
        (["REPLICATION SLAVE, REPLICATION CLIENT ON *.*"], ["SELECT", "orders"]),
    ),
    ids=["no replication", "no slave", "no client", "no select"],
)
def test_a_missing_grant_is_printed_as_the_statement_that_gives_it(
    case: Scenario, grants: list[str], named: list[str]
) -> None:
    with account(case.server, *grants) as user:
        case.write_file(
            source=source_of(case.server, user=user, password="pw"), tables=[f"{case.database}.orders"]
        )
        paragraph = refused(case, "GRANT", "'reader'@'127.0.0.1'", *named)
        # The statement is right: with it the same check passes.
        statement = paragraph[paragraph.index("GRANT") :].split(";")[0]
        case.server.execute(statement)
        assert case.command("doctor").returncode == 0


def test_a_grant_taken_away_later_stops_the_receiver_with_the_statement(case: Scenario) -> None:
    with account(case.server, "SELECT, REPLICATION CLIENT ON *.*") as user:
        case.write_file(source=source_of(case.server, user=user, password="pw"))
        refused(case, "GRANT REPLICATION SLAVE", "'reader'", command="receive")


# how the source writes its log -----------------------------------------------------------------------------


@contextmanager
def setting(server: servers.MySqlClient, name: str, value: str) -> Iterator[None]:
    before = server.variable(name)
    server.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        server.execute(f"SET GLOBAL {name} = '{before}'")


@pytest.mark.parametrize(
    ("name", "value"),
    first(
        1,
        ("binlog_format", "'STATEMENT'"),
        ("binlog_format", "'MIXED'"),
        ("gtid_mode", "'ON_PERMISSIVE'"),
    ),
)
def test_a_setting_that_spoils_the_log_is_named_with_its_cure(case: Scenario, name: str, value: str) -> None:
    with setting(case.server, name, value):
        refused(case, name, value.strip("'"), f"SET GLOBAL {name} =")


@pytest.mark.parametrize("value", first(1, "MINIMAL", "NOBLOB"))
def test_row_images_that_lack_columns_are_refused_for_a_change_log(case: Scenario, value: str) -> None:
    case.write_file(sink={"type": "parquet", "path": str(case.folder / "log")})
    with setting(case.server, "binlog_row_image", f"'{value}'"):
        refused(case, "binlog_row_image", value, "a change log", "SET GLOBAL binlog_row_image =")


def test_a_source_without_binary_log_is_refused_by_run_and_receive(
    mysql_factory: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = mysql_factory(log_bin=None, skip_log_bin=True, gtid_mode="OFF", enforce_gtid_consistency="OFF")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    nothing: Any = None
    case = Scenario(
        server, "d", tmp_path, nothing, tmp_path / "lake", options={"snapshot": {"mode": "never"}}
    )
    refused(case, "log_bin", "[mysqld]")
    refused(case, "log_bin", command="receive")


# which tables ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tables", "named"),
    first(
        2,
        (["{d}.order"], ["`{d}.order`", "Near names: {d}.orders"]),
        (["{d}.orders", "{d}.nothing"], ["`{d}.nothing`"]),
        (["nowhere.*"], ["`nowhere.*`", "SELECT"]),
        ({"include": ["{d}.*"], "exclude": ["{d}.*"]}, ["tables.exclude"]),
    ),
    ids=["typo", "one of two", "no database", "all excluded"],
)
def test_a_table_that_is_not_there_is_named_with_its_neighbours(
    case: Scenario, tables: Any, named: list[str]
) -> None:
    case.write_file(tables=json.loads(json.dumps(tables).replace("{d}", case.database)))
    refused(case, *[name.replace("{d}", case.database) for name in named])


# where to begin --------------------------------------------------------------------------------------------


def purge(server: servers.MySqlClient) -> tuple[str, int]:
    """Removes all binlog files but the newest; the end of the log before."""
    before = server.position()
    server.execute(
        "INSERT INTO orders VALUES (1000, 0)", "FLUSH BINARY LOGS", "DELETE FROM orders WHERE id = 1000"
    )
    server.execute(f"PURGE BINARY LOGS TO '{server.position()[0]}'")
    return before


@pytest.mark.parametrize("command", first(1, "run", "receive"))
def test_a_start_that_the_source_has_purged_names_what_is_gone_and_what_is_left(
    case: Scenario, command: str
) -> None:
    executed = case.server.gtid_executed()
    file, position = purge(case.server)
    oldest = case.server.query("SHOW BINARY LOGS")[0][0]
    for start in (
        {"file": file, "position": position},
        {"gtid": executed},
        {"timestamp": "2001-01-01T00:00:00Z"},
    ):
        case.write_file(source=source_of(case.server, start=start))
        refused(case, "no longer has", oldest, "`source.start`", "latest", command=command)


@pytest.mark.parametrize(
    ("start", "named"),
    first(
        2,
        ({"gtid": "not a gtid"}, ["source.start.gtid"]),
        (
            {"gtid": "11111111-1111-1111-1111-111111111111:1-5"},
            ["source.start.gtid", "never had", "11111111"],
        ),
        ({"file": "binlog.999999", "position": 4}, ["binlog.999999", "SHOW BINARY LOGS"]),
        ({"timestamp": "yesterday"}, ["source.start.timestamp", "'yesterday'", "2026-"]),
    ),
    ids=["no gtid", "foreign gtid", "no file", "no time"],
)
def test_a_start_that_never_was_is_named(case: Scenario, start: dict[str, Any], named: list[str]) -> None:
    case.write_file(source=source_of(case.server, start=start))
    refused(case, *named)


# for programs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "hinted"),
    [
        ({"snapshot": {"chunk_row": 5}}, "ConfigError", "chunk_rows"),
        ({"source": {"host": "db.invalid", "user": "u"}}, "ConfigError", "source.host"),
    ],
    ids=["file", "source"],
)
def test_with_json_the_error_is_one_object(
    case: Scenario, changes: dict[str, Any], error: str, hinted: str
) -> None:
    case.write_file(**changes)
    done = case.command("run", "--once", "--json")
    assert done.returncode == 1 and done.stdout == ""
    [line] = done.stderr.splitlines()
    found = json.loads(line)
    assert found["error"] == error and hinted in found["message"] + found["hint"]
