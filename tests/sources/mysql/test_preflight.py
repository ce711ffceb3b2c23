from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.signals.settings import TABLES
from penstock.sources.mysql import password_policy, preflight
from penstock.sources.preflight import Finding, refuse
from penstock.state import StateStore
from penstock.testing import servers
from penstock.testing.proxy import Proxy
from penstock.testing.servers import Database, MySqlClient, MySqlServer


@pytest.fixture
def pipeline(mysql: Database, tmp_path: Path) -> Callable[..., PipelineConfig]:
    def make(**options: Any) -> PipelineConfig:
        return config_for(mysql, tmp_path, **{"tables": [f"{mysql.name}.*"], **options})

    return make


def config_for(server: MySqlClient, folder: Path, **options: Any) -> PipelineConfig:
    source = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    document = {"name": "x", "state": str(folder / "state"), "sink": {"type": "iceberg", "path": str(folder)}}
    source |= options.pop("source", {})
    return configuration.parse({**document, "source": source, **options})


def found(config: PipelineConfig, check: str) -> Finding:
    """The worst finding of one check."""
    order = ["error", "warning", "ok"]
    return min(
        (one for one in preflight.check(config) if one.check == check), key=lambda one: order.index(one.level)
    )


def set_globals(server: MySqlClient, **values: Any) -> None:
    server.execute(*(f"SET GLOBAL {name} = {value!r}" for name, value in values.items()))


@pytest.fixture
def account(mysql: Database) -> Iterator[str]:
    """A user without any privilege; its password is its name."""
    user = "u" + secrets.token_hex(4)
    mysql.execute(f"CREATE USER '{user}'@'%' IDENTIFIED WITH mysql_native_password BY '{user}'")
    yield user
    mysql.execute(f"DROP USER '{user}'@'%'")


def test_a_sound_source_has_no_errors_or_warnings(mysql: Database, pipeline: Any) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    findings = preflight.check(pipeline())
    assert [one for one in findings if one.level != "ok"] == []
    refuse(findings)


def test_a_wrong_password_is_told(mysql: Database, pipeline: Any) -> None:
    [finding] = preflight.check(pipeline(source={"password": "wrong"}))
    assert finding.level == "error"
    assert f"refuses user '{mysql.user}'" in finding.message
    assert "source.password" in finding.message
    assert "wrong" not in finding.message


def test_an_unreachable_host_is_told(pipeline: Any) -> None:
    [finding] = preflight.check(pipeline(source={"port": 1}))
    assert finding.level == "error"
    assert "127.0.0.1:1 cannot be reached" in finding.message
    assert "source.port" in finding.message


def test_an_unknown_host_is_told(pipeline: Any) -> None:
    [finding] = preflight.check(pipeline(source={"host": "no-such-host.invalid"}))
    assert finding.level == "error"
    assert "no-such-host.invalid" in finding.message
    assert "source.host" in finding.message


def test_errors_refuse_the_start_with_their_cure(mysql: Database, pipeline: Any) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    with pytest.raises(ConfigError) as raised:
        refuse(preflight.check(pipeline(tables=[f"{mysql.name}.order"])))
    assert f"Near names: {mysql.name}.orders" in str(raised.value)


def test_missing_grants_are_named_with_the_grant(mysql: Database, pipeline: Any, account: str) -> None:
    mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY)", f"GRANT INSERT ON {mysql.name}.* TO '{account}'@'%'"
    )
    config = pipeline(source={"user": account, "password": account})
    errors = [one for one in preflight.check(config) if one.level == "error"]
    assert [one.sql for one in errors] == [
        f"GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO '{account}'@'%';",
        f"GRANT SELECT ON `{mysql.name.replace('_', chr(92) + '_')}`.* TO '{account}'@'%';",
    ]
    mysql.execute(*(one.sql for one in errors))
    assert [one for one in preflight.check(config) if one.level == "error"] == []


def test_a_select_on_some_columns_only_is_not_enough(mysql: Database, pipeline: Any, account: str) -> None:
    mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, secret INT)",
        f"GRANT SELECT (id) ON {mysql.name}.orders TO '{account}'@'%'",
        f"GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO '{account}'@'%'",
    )
    finding = found(pipeline(source={"user": account, "password": account}), "privileges")
    assert finding.level == "error"
    assert f"may not read {mysql.name}.orders" in finding.message


def test_grants_through_a_role_count(mysql: Database, pipeline: Any, account: str) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    try:
        mysql.execute(f"CREATE ROLE 'r{account}'")
    except pymysql.MySQLError:
        pytest.skip("no roles")
    mysql.execute(
        f"GRANT SELECT, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO 'r{account}'",
        f"GRANT 'r{account}' TO '{account}'@'%'",
        f"SET DEFAULT ROLE ALL TO '{account}'@'%'",
    )
    errors = [one for one in preflight.check(pipeline(source={"user": account, "password": account}))
              if one.level == "error"]  # fmt: skip
    mysql.execute(f"DROP ROLE 'r{account}'")
    assert errors == []


def test_an_unseen_database_is_named_with_the_grant(mysql: Database, pipeline: Any, account: str) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    finding = found(pipeline(source={"user": account, "password": account}), "tables")
    assert finding.level == "error"
    assert "matches no table" in finding.message and "It sees no table." in finding.message
    assert finding.sql.startswith("GRANT SELECT ON `")


def test_databases_that_the_account_sees_are_named(mysql: Database, pipeline: Any) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    message = found(pipeline(tables=["no_such_database.*"]), "tables").message
    assert "It sees tables in: " in message


def test_a_view_is_no_table(mysql: Database, pipeline: Any) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)", "CREATE VIEW v AS SELECT * FROM orders")
    finding = found(pipeline(tables=[f"{mysql.name}.v"]), "tables")
    assert (finding.level, "is a view" in finding.message) == ("error", True)


def test_a_table_that_has_gone_does_not_keep_a_started_pipeline_from_starting(
    mysql: Database, pipeline: Any
) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    config = pipeline(tables=[f"{mysql.name}.orders", f"{mysql.name}.gone"])
    assert found(config, "tables").level == "error"
    config.state.mkdir()
    (config.state / "state.sqlite").touch()
    assert found(config, "tables").level == "warning"


def test_an_exclude_that_leaves_nothing_is_an_error(mysql: Database, pipeline: Any) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    tables = {"include": [f"{mysql.name}.*"], "exclude": ["*.orders"]}
    assert found(pipeline(tables=tables), "tables").level == "error"


@pytest.mark.parametrize(("sink", "level"), [("iceberg", "warning"), ("delta", "warning"), ("parquet", None)])
def test_a_table_without_a_key_is_named_with_the_sql_that_adds_one(
    mysql: Database, pipeline: Any, tmp_path: Path, sink: str, level: str | None
) -> None:
    mysql.execute("CREATE TABLE keyless (id INT)")
    findings = [
        one
        for one in preflight.check(pipeline(sink={"type": sink, "path": str(tmp_path)}))
        if one.check == "key"
    ]
    assert [one.level for one in findings] == ([level] if level else [])
    if level:
        mysql.execute(*findings[0].sql.splitlines())
        assert found(pipeline(), "key").level == "ok"


def test_a_table_of_another_engine_is_warned_of(mysql: Database, pipeline: Any) -> None:
    mysql.execute("CREATE TABLE old (id INT PRIMARY KEY) ENGINE = MyISAM")
    finding = found(pipeline(), "engine")
    assert (finding.level, finding.subject) == ("warning", f"{mysql.name}.old")
    mysql.execute(finding.sql)
    assert [one for one in preflight.check(pipeline()) if one.check == "engine"] == []


@pytest.mark.parametrize("rule", ["ON DELETE CASCADE", "ON DELETE SET NULL", "ON UPDATE CASCADE"])
def test_a_cascading_foreign_key_is_warned_of_and_its_sql_takes_the_rule_off(
    mysql: Database, pipeline: Any, rule: str
) -> None:
    mysql.execute(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, CONSTRAINT c FOREIGN KEY (p) REFERENCES parent "
        f"(id) {rule})",
        "CREATE TABLE plain (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id))",
    )
    warnings = [one for one in preflight.check(pipeline()) if one.level == "warning"]
    assert [(one.check, one.subject) for one in warnings] == [("cascade", f"{mysql.name}.child")]
    assert rule in warnings[0].message
    mysql.execute(*warnings[0].sql.splitlines())
    assert [one for one in preflight.check(pipeline()) if one.level == "warning"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("flavor", "warns"), [("mariadb1011", True), ("mariadb118", False)])
def test_servers_that_may_damage_indexes_of_foreign_keys_are_named(
    flavor: str, warns: bool, tmp_path: Path
) -> None:
    with servers.FLAVORS[flavor]() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.p (id INT PRIMARY KEY)")
        config = config_for(server, tmp_path, tables=["d.*"], cascades="apply")
        assert not [one for one in preflight.check(config) if one.check == "cascade"]
        server.execute(
            "CREATE TABLE d.c (id INT PRIMARY KEY, p INT,"
            " FOREIGN KEY (p) REFERENCES d.p (id) ON DELETE CASCADE)"
        )
        findings = [one for one in preflight.check(config) if one.check == "cascade"]
        assert [one.level for one in findings] == ["warning"] * warns + ["ok"]
        assert not warns or "10.11.6" in findings[0].message


def test_prepared_xa_transactions_are_named_with_the_sql_that_ends_them(
    mysql: Database, pipeline: Any
) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    mysql.execute("XA START 'it''s', 'b', 7", "INSERT INTO orders VALUES (1)", "XA END 'it''s', 'b', 7",
                  "XA PREPARE 'it''s', 'b', 7")  # fmt: skip
    finding = found(pipeline(), "xa")
    assert finding.level == "warning"
    mysql.execute(*finding.sql.splitlines())
    assert mysql.query("XA RECOVER") == []


@pytest.mark.slow
@pytest.mark.parametrize("flavor", ["mysql57", "mariadb1011"])
def test_triggers_and_functions_that_set_savepoints_are_named(flavor: str, tmp_path: Path) -> None:
    options = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"} if flavor == "mysql57" else {}
    with servers.FLAVORS[flavor](options) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        config = config_for(server, tmp_path, tables=["d.*"])
        assert not [one for one in preflight.check(config) if one.check == "savepoints"]
        server.execute(
            "CREATE TRIGGER d.w BEFORE INSERT ON d.t FOR EACH ROW BEGIN savepoint a; END",
            "CREATE FUNCTION d.f() RETURNS INT DETERMINISTIC BEGIN SAVEPOINT a; RETURN 1; END",
            "CREATE PROCEDURE d.p() SAVEPOINT a",
        )
        finding = found(config, "savepoints")
        assert finding.level == "warning" and "set savepoints: d.f, d.w." in finding.message


def test_a_relay_log_whose_place_was_purged_is_told(mysql: Database, pipeline: Any) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    config = pipeline()
    config.relay_log_path.mkdir(parents=True)
    report = {"position": {"file": "gone.000001", "position": 4}, "last_commit_us": int(time.time() * 1e6)}
    (config.relay_log_path / "receiver.json").write_text(json.dumps(report))
    finding = found(config, "backlog")
    assert finding.level == "error"
    assert "gone.000001" in finding.message


@pytest.mark.slow
def test_settings_that_spoil_the_log_are_errors_until_their_sql_has_run(
    mysql_factory: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = mysql_factory(
        binlog_format="STATEMENT", binlog_row_image="MINIMAL", gtid_mode="OFF",
        enforce_gtid_consistency="OFF",
        binlog_row_value_options="PARTIAL_JSON", binlog_expire_logs_seconds=3600, server_id=0,
    )  # fmt: skip
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)")
    config = config_for(server, tmp_path, tables=["shop.*"])
    findings = {one.check: one for one in preflight.check(config) if one.level != "ok"}
    assert {name: one.level for name, one in findings.items()} == {
        "server_id": "error", "binlog_format": "error", "binlog_row_image": "warning",
        "binlog_row_value_options": "error", "gtid_mode": "error", "retention": "warning",
    }  # fmt: skip
    assert "binlog_format = STATEMENT" in findings["binlog_format"].message
    assert "binlog_row_image = MINIMAL" in findings["binlog_row_image"].message
    assert "snapshot.mode: never" in findings["gtid_mode"].message
    never = config_for(server, tmp_path, tables=["shop.*"], snapshot={"mode": "never"})
    assert found(never, "gtid_mode").level == "warning"
    for finding in findings.values():
        server.execute(*finding.sql.splitlines())
    assert [one for one in preflight.check(config) if one.level != "ok"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "check", "text"),
    [
        ({"log_bin": None, "skip_log_bin": True, "gtid_mode": "OFF"}, "log_bin", "writes no binary log"),
        ({"binlog_ignore_db": "shop"}, "binlog_filter", "binlog_ignore_db"),
        ({"binlog_do_db": "other"}, "binlog_filter", "binlog_do_db"),
    ],
)
def test_settings_that_need_a_restart_say_so(
    mysql_factory: Callable[..., MySqlServer], tmp_path: Path, options: dict[str, Any], check: str, text: str
) -> None:
    server = mysql_factory(**options)
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)")
    finding = found(config_for(server, tmp_path, tables=["shop.*"]), check)
    assert finding.level == "error"
    assert text in finding.message
    assert "option file" in finding.message


def test_doctor_says_by_its_exit_code_whether_something_is_to_be_mended(
    mysql: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.commands.doctor import doctor

    mysql.execute("CREATE TABLE orders (Penstock_Id INT)")
    file = tmp_path / "pipeline.yaml"
    document = {
        "name": "x", "state": "state", "tables": [f"{mysql.name}.*"],
        "sink": {"type": "iceberg", "path": "w"},
        "source": {"host": mysql.host, "port": mysql.port, "user": mysql.user, "password": mysql.password},
    }  # fmt: skip
    file.write_text(json.dumps(document))
    assert doctor(file, as_json=False) == 0
    shown = capsys.readouterr().out
    assert f"ALTER TABLE `{mysql.name}`.`orders` ADD COLUMN `penstock_id_2`" in shown
    file.write_text(json.dumps({**document, "tables": [f"{mysql.name}.missing"]}))
    assert doctor(file, as_json=True) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert answer["findings"][0]["level"] == "error"
    assert not (tmp_path / "state").exists(), "looking leaves no traces"


def test_doctor_looks_at_tables_that_signals_added(mysql: Database, pipeline: Any, tmp_path: Path) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY)", "CREATE TABLE later (id INT) ENGINE = MyISAM")
    config = pipeline(tables=[f"{mysql.name}.orders"])
    file = tmp_path / "pipeline.yaml"
    configuration.save(config, file)

    def subjects() -> set[str]:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "doctor", str(file), "--json"],
            capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return {one["subject"] for one in json.loads(done.stdout)["findings"] if one["level"] != "ok"}

    assert not [subject for subject in subjects() if "later" in subject]
    state = StateStore(config.state)
    state.set_meta(TABLES, json.dumps({"include": [f"{mysql.name}.later"], "removed": []}))
    state.close()
    assert [subject for subject in subjects() if "later" in subject]


@pytest.mark.parametrize("network", ["refuse", "stall", "cut"])
def test_a_connection_that_fails_in_the_middle_is_no_missing_grant(
    mysql: Database, pipeline: Any, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    with Proxy(mysql.host, mysql.port) as proxy:

        def breaks(source: Any) -> Iterator[Finding]:
            getattr(proxy, network)()
            yield from ()

        def register(source: Any) -> Iterator[Finding]:
            """As on MariaDB: over a connection of its own."""
            preflight._register(source)
            yield from ()

        short = {"port": proxy.port, "connect_timeout": "500ms", "read_timeout": "500ms"}
        for check in (preflight.ensure_privileges, register, preflight.note_prepared_transactions):
            proxy.pass_on()
            monkeypatch.setattr(preflight, "_checks", lambda check=check: [breaks, check])
            findings = preflight.check(pipeline(source=short))
            if check is register and network == "cut":
                continue  # a new connection is let in
            [finding] = [one for one in findings if one.level == "error"]
            assert finding.check == "connection" and "cannot be reached" in finding.message
            assert not [one for one in findings if "GRANT" in one.sql or "GRANT" in one.message]


@pytest.mark.parametrize(
    ("options", "level", "word"),
    [
        ({"tls": "preferred"}, "warning", "not verified"),
        ({"tls": "disabled"}, "warning", "not encrypted"),
        ({"tls": "preferred", "allow_cleartext_password": True}, "warning", "allow_cleartext_password"),
    ],
)
def test_a_server_elsewhere_that_has_not_proven_itself_is_told(
    mysql: Database, pipeline: Any, monkeypatch: pytest.MonkeyPatch, options: Any, level: str, word: str
) -> None:
    monkeypatch.setattr(password_policy, "is_local", lambda host: False)
    finding = found(pipeline(source=options), "tls")
    assert finding.level == level and word in finding.message and "verify_ca" in finding.message
