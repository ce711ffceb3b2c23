"""A first pipeline file, written after a look at a real server."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import config as configuration
from penstock.commands.init import pipeline_name
from penstock.config.schema import SCHEMA_FILE
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sources.mysql.options import options_of
from penstock.testing import servers
from penstock.testing.scenario import refusal
from penstock.testing.servers.postgresql import PostgreSqlServer

VARIABLE = "INIT_TEST_PASSWORD"
PASSWORD = "s3cret: #'\""


@pytest.fixture(scope="module")
def server() -> Iterator[servers.MySqlServer]:
    """Its own: the databases that the account sees are those of this test."""
    with servers.MySqlServer() as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY)",
            "CREATE TABLE shop.items (id INT PRIMARY KEY)",
            "CREATE USER cdc@'%' IDENTIFIED BY 's3cret: #\\'\"'",
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO cdc@'%'",
        )
        yield server


def init(
    folder: Path, *arguments: object, password: str | None = PASSWORD
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if password is not None:
        environment[VARIABLE] = password
    return subprocess.run(
        [sys.executable, "-m", "penstock", "init", *map(str, arguments)],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180,
    )  # fmt: skip


def address(server: servers.MySqlServer) -> list[Any]:
    return ["--host", server.host, "--port", server.port, "--user", "cdc", "--password-env", VARIABLE]


def test_the_file_is_commented_and_a_pipeline_can_load_it(
    server: servers.MySqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = init(tmp_path, "shop.yaml", *address(server), "--sink", "delta", "--path", "the lake")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "shop.yaml").read_text()
    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE.as_uri()}\n")
    assert f"${{{VARIABLE}}}" in text and PASSWORD not in text + done.stdout
    monkeypatch.setenv(VARIABLE, PASSWORD)
    config = configuration.load(tmp_path / "shop.yaml")
    assert (config.name, config.tables.include, config.sink.type) == ("shop", ["shop.*"], "delta")
    assert isinstance(config.sink, DeltaOptions) and config.sink.path == tmp_path / "the lake"
    assert config.state == tmp_path / "state" / "shop"
    source = options_of(config)
    assert source.password.reveal() == PASSWORD and source.port == server.port
    assert done.stdout.endswith("  penstock run shop.yaml\n  penstock status shop.yaml\n")
    assert "2 tables are captured" in done.stdout


def test_a_file_that_exists_is_never_overwritten(server: servers.MySqlServer, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("mine")
    refusal(init(tmp_path, "shop.yaml", *address(server)), "shop.yaml exists already")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "elsewhere")
    refusal(init(tmp_path, "link.yaml", *address(server)), "link.yaml exists already")
    assert (tmp_path / "shop.yaml").read_text() == "mine" and not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("arguments", "password", "named"),
    [
        (["--host", "127.0.0.1"], PASSWORD, "--user"),
        (["--host", "127.0.0.1", "--port", "1", "--user", "cdc"], PASSWORD, "127.0.0.1:1"),
        (["--user", "cdc"], None, VARIABLE),
        (["--user", "cdc", "--password-env", "a b"], PASSWORD, "a b"),
    ],
)
def test_without_a_terminal_what_is_missing_is_named_and_nothing_is_written(
    arguments: list[str], password: str | None, named: str, tmp_path: Path
) -> None:
    variable = [] if "--password-env" in arguments else ["--password-env", VARIABLE]
    refusal(init(tmp_path, *arguments, *variable, password=password), named)
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_at_the_server_is_told_and_the_file_is_written(
    server: servers.MySqlServer, tmp_path: Path
) -> None:
    server.execute("CREATE USER poor@'%' IDENTIFIED BY 'x'", "GRANT SELECT ON shop.* TO poor@'%'")
    arguments = [*address(server), "--user", "poor", "--json"]
    done = init(tmp_path, *arguments, password="x")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    cures = [one["sql"] for one in found["findings"] if one["level"] == "error"]
    assert not found["ok"] and any("GRANT" in sql and "REPLICATION SLAVE" in sql for sql in cures)
    assert found["next"] == ["penstock doctor pipeline.yaml", "penstock run pipeline.yaml"]
    assert (tmp_path / "pipeline.yaml").exists()


def test_at_a_terminal_it_asks_and_the_password_is_not_shown(
    server: servers.MySqlServer, tmp_path: Path
) -> None:
    answers = {
        "Source": "",
        "Host": server.host,
        "Port": str(server.port),
        "Account": "cdc",
        "Environment variable": VARIABLE,
        "Password": PASSWORD,
        "Tables": "shop.orders, shop.items",
        "Sink": "",
        "Directory": "",
    }
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "init", "shop.yaml"],
        cwd=tmp_path, env={**environment, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    try:
        for question, answer in answers.items():  # one after the other: asking for a password drops the rest
            said += read_until(ours, f"{question}.*: ")
            os.write(ours, f"{answer}\n".encode())
        said += read_until(ours, None)
        assert process.wait(60) == 0, said.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert PASSWORD not in said.decode() and f"export {VARIABLE}=…" in said.decode()
    text = (tmp_path / "shop.yaml").read_text()
    assert "  - shop.orders\n  - shop.items\n" in text and "type: iceberg" in text and "path: lake" in text


def test_a_file_for_postgresql_and_the_sql_that_its_server_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgreSqlServer(settings={"wal_level": "logical"}) as pg:
        with psycopg.connect(pg.url, user=pg.user, password=pg.password, autocommit=True) as sql:
            sql.execute("CREATE ROLE cdc LOGIN PASSWORD 'short'")
            sql.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE notes (body text)")
        monkeypatch.setenv(VARIABLE, "short")
        given = ["--source", "postgresql", "--host", pg.host, "--port", pg.port, "--user", "cdc",
                 "--database", pg.database, "--password-env", VARIABLE]  # fmt: skip
        done = init(tmp_path, "shop.yaml", *given, password="short")
        assert done.returncode == 0, done.stderr
        config = configuration.load(tmp_path / "shop.yaml")
        assert (config.name, config.tables.include, config.source.type) == (
            "shop",
            ["public.*"],
            "postgresql",
        )
        said = done.stdout.replace('"', "")
        published = "CREATE PUBLICATION penstock_shop FOR TABLE public.notes, public.orders"
        for told in (
            "ALTER ROLE cdc REPLICATION", published, "max_slot_wal_keep_size",
            "GRANT SELECT ON public.orders TO cdc", "ALTER TABLE public.notes REPLICA IDENTITY FULL",
        ):  # fmt: skip
            assert told in said, said
        refused = init(tmp_path, "other.yaml", *given[:-4], "--database", pg.database, "--user", "nobody",
                       "--password-env", VARIABLE, password="short")  # fmt: skip
        refusal(refused, "nobody")
        assert "CREATE ROLE" in refused.stderr


def test_a_source_without_tables_of_its_own_is_refused(tmp_path: Path) -> None:
    refusal(init(tmp_path, "--source", "debezium"), "debezium")
    refusal(init(tmp_path, "--source", "nonesuch"), "nonesuch")


def read_until(terminal: int, end: str | None) -> bytes:
    """What the terminal shows, up to a pattern or until the program has gone."""
    said = b""
    while end is None or re.search(end.encode(), said) is None:
        try:
            said += os.read(terminal, 4096)
        except OSError:  # the program has closed its side
            break
    return said


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("shop.yaml", "shop"), ("a b.yml", "a_b"), ("1.yaml", "pipeline"), (".yaml", "pipeline"),
        ("x" * 99, "x" * 63),
    ],
)  # fmt: skip
def test_the_pipeline_is_named_after_its_file(file: str, name: str) -> None:
    assert pipeline_name(Path(file)) == name
